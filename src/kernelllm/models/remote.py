"""What all providers behind a server share: concurrent requests, retries, and the cause of a failed request."""

from __future__ import annotations

import logging
import queue
import random
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from kernelllm.core.background import DaemonPool
from kernelllm.core.errors import ModelError, UsageError
from kernelllm.core.text import printable
from kernelllm.models.extras import scrubbed
from kernelllm.models.language_model import Completion, LanguageModel, Message, SamplingParams

log = logging.getLogger(__name__)
T = TypeVar("T")

LONGEST_WAIT_S = 120.0
"""A server that asks for a longer pause is not waited for."""
_BACKOFF_MOST_S = 30.0
_SPENT = re.compile(r"insufficient_quota|billing_hard_limit|billing_not_active|insufficient_balance")
"""What services call an account that has nothing left: with status 429, like a rate limit, but it does not pass."""
_CODE = re.compile(r"^Error code: \d+( - |\.)?")
_SHOWN = 160


class RemoteModel(LanguageModel):
    """A provider that asks a server: at most ``concurrency`` requests at once, in all threads together."""

    needs: ClassVar[str] = "a model's name"

    def __init__(self, model: str, *, concurrency: int, retries: int, timeout_s: float, base_url: str | None = None) -> None:
        super().__init__(model)
        self.concurrency = int(concurrency)
        self.retries = int(retries)
        self.timeout_s = float(timeout_s)
        self.base_url = server_address(base_url)
        self._client: Any = None
        self._slots = threading.Semaphore(self.concurrency)
        self._key: str | None = None
        self._reached = False

    def client(self) -> Any:
        """The SDK, or its client. Raises MissingExtra, or ModelError where there is no key."""
        raise NotImplementedError

    def ready(self) -> None:
        """The client needs the package and the key."""
        self.client()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def sample(self, messages: Sequence[Message], params: SamplingParams, n: int = 1, first: int = 0) -> Iterator[Completion]:
        """``n`` requests, as they are answered."""
        self._cancelled.clear()
        self.client()
        ask = partial(self._ask, messages, params)
        yield from concurrent_samples(ask, first, n, self._slots, self.concurrency, self._cancelled)

    def _ask(self, messages: Sequence[Message], params: SamplingParams, index: int) -> Completion:
        """The answer to one request."""
        raise NotImplementedError

    def _retried(self, ask: Callable[[], T], errors: type[Exception] | tuple[type[Exception], ...]) -> T:
        """``ask()``, and again after faults that pass; each time the log says why. Raises ModelError with the cause."""
        tried = 0
        while True:
            try:
                answer = ask()
            except errors as error:
                wait = pause(error, tried, reached=self._reached)
                if wait is None or tried >= self.retries or self._cancelled.is_set():
                    raise self._failed(error, tried) from None  # the cause may hold the request's headers
                tried += 1
                why = scrubbed(cause(error), self._key).rstrip(".")
                log.warning("%s: %s; retry %d of %d in %.1f s", self.name, why, tried, self.retries, wait)
                self._cancelled.wait(wait)
            else:
                self._reached = True
                return answer

    def _failed(self, error: Exception, tried: int = 0) -> ModelError:
        """A provider's error as ours: its cause, with no secret in it, and what to do."""
        what = f"{self.name} failed: {scrubbed(cause(error), self._key)}"
        if tried:
            what = f"{what.rstrip('.')}, {tried} {'retries' if tried > 1 else 'retry'} later"
        return ModelError(what if what.endswith(".") else what + ".", fix=self._advice(error))

    def _foreign(self, response: Any, protocol: str) -> ModelError:
        """For a reply that is none of the protocol's, although its status says that all is well."""
        what = f"{self.name}: the server at {response.url.host} does not seem to speak {protocol}: it answered with status"
        fix = "Check --base-url: it is the API's address, not a web page's, and ends in /v1 with most servers."
        return ModelError(f"{what} {response.status_code}, {scrubbed(reply_summary(response), self._key)}.", fix=fix)

    def _need_events(self, response: Any, protocol: str) -> None:
        """Raises ModelError where the reply to a request for a stream is a page or an object."""
        if response.headers.get("content-type", "").startswith(("text/html", "application/json")):
            response.read()
            raise self._foreign(response, protocol)

    def _advice(self, error: Exception) -> str:
        status = getattr(error, "status_code", None)
        where = "--base-url" if self.base_url else "the service's address"
        if status in (401, 403):
            return "Check the key."
        if status == 404:
            return "Check the model's name" + (" and --base-url: with most servers it ends in /v1." if self.base_url else ".")
        if status == 402 or out_of_quota(error):
            return "The account has no credit left: add some, or use another key or model."
        if status == 429:
            return "Wait, or lower the concurrency (-O concurrency=2)."
        reason = _reason(error)
        if isinstance(reason, socket.gaierror):
            return f"Check the network and {where}."
        if isinstance(reason, ssl.SSLError):
            return f"Check {where}: a local server speaks http://, not https://."
        if isinstance(reason, OSError) or "Connection" in type(error).__name__:
            return f"Check that the server runs and that {where} is right."
        return ""


def server_address(url: str | None) -> str | None:
    """The address of a server, None where there is none. Raises UsageError where it is no http(s) address."""
    if not url:
        return None
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        sound = False
    if not sound:
        raise UsageError(f"{url!r} is not the address of a server.", fix="Write --base-url http://HOST:PORT/v1.")
    return url


def pause(error: Exception, tried: int, *, reached: bool) -> float | None:
    """Seconds until the request is worth another try, None where the fault does not pass.

    ``reached``: the server has answered before. One that was never there is not waited for.
    """
    status = getattr(error, "status_code", None)
    if status is None:
        reason = _reason(error)
        if isinstance(reason, ConnectionRefusedError | socket.gaierror):
            passes = reached
        else:
            lasting = isinstance(reason, ssl.SSLCertVerificationError)
            passes = not lasting and any(word in type(error).__name__ for word in ("Connection", "Timeout"))
    else:
        passes = status in (408, 409, 429) or (status >= 500 and status != 501)
    if not passes or out_of_quota(error):
        return None
    wanted = _asked_to_wait(error)
    if wanted is not None:
        return wanted if wanted <= LONGEST_WAIT_S else None
    return min(0.5 * 2.0**tried, _BACKOFF_MOST_S) * random.uniform(0.75, 1.0)


def out_of_quota(error: Exception) -> bool:
    """Whether the account has nothing left."""
    told = (getattr(error, name, "") for name in ("code", "type", "body"))
    return bool(_SPENT.search(" ".join(str(t) for t in (*told, error))))


def _asked_to_wait(error: Exception) -> float | None:
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers[name]) * unit)
        except (KeyError, ValueError):
            continue
    return None


def _reason(error: BaseException) -> BaseException:
    """The error of the operating system behind an error of a library, or else the error itself."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, OSError):
            return at
        at = at.__cause__ or at.__context__
    return error


def cause(error: Exception) -> str:
    """What happened, in one line: the server's words, the reply that was not understood, or why there was no connection."""
    response, status = getattr(error, "response", None), getattr(error, "status_code", None)
    if response is not None and not isinstance(getattr(error, "body", None), dict):
        return f"HTTP {status}, the reply is {reply_summary(response)}"
    reason = _reason(error)
    text = _CODE.sub("", " ".join(printable(str(error)).split()))
    if status:
        return f"HTTP {status}: {text[:400]}"
    if reason is not error:
        address = getattr(getattr(error, "request", None), "url", None)
        text = f"{reason.strerror or reason}" if isinstance(reason, OSError) else str(reason)
        text += f" ({urlsplit(str(address)).netloc.rpartition('@')[2]})" if address else ""
    return text[:400] or type(error).__name__


def reply_summary(response: Any) -> str:
    """Status, content type and first characters of an HTTP reply."""
    kind = response.headers.get("content-type", "").partition(";")[0] or "of no content type"
    try:
        text = " ".join(printable(response.text).split())
    except RuntimeError:  # a stream that was not read: SDKs read those of errors
        text = ""
    return f"{kind}: {text[:_SHOWN]!r}{' ...' if len(text) > _SHOWN else ''}" if text else f"{kind}, and empty"


def concurrent_samples(
    ask: Callable[[int], Completion], first: int, n: int, slots: threading.Semaphore, workers: int, cancelled: threading.Event
) -> Iterator[Completion]:
    """``ask(index)`` for every index, ``workers`` at once, each while it holds one of the provider's ``slots``.

    When one request fails the answers of the others are handed on all the same and the error is raised at
    the end. Closing the iterator, or ``cancelled``, drops the requests that have not begun and waits for none.
    """
    done: queue.SimpleQueue[Completion | BaseException] = queue.SimpleQueue()

    def work(index: int) -> None:
        try:
            with slots:
                done.put(ask(index))
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            done.put(error)

    pool = DaemonPool(min(n, workers), "kernelllm-request")
    error: ModelError | None = None
    try:
        for index in range(first, first + n):
            pool.submit(partial(work, index))
        left = n
        while left and not cancelled.is_set():
            try:
                outcome = done.get(timeout=0.2)
            except queue.Empty:
                continue
            left -= 1
            if isinstance(outcome, ModelError):
                error = error or outcome
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                yield outcome
    finally:
        pool.close()
    if error is not None:
        raise error
