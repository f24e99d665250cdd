"""``hf/REPO_OR_PATH``: weights on this machine, run by transformers. n samples are drawn in one batch."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from kernelllm.core.errors import ModelError, UsageError
from kernelllm.models.extras import need
from kernelllm.models.language_model import (
    Completion,
    LanguageModel,
    Message,
    SamplingParams,
    StopCutter,
    as_chat,
    as_text,
    cut_at_stop,
    plain_text,
)

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

HUB_S = 10.0
"""How long the hub may take to say whether it has a repository."""


class HF(LanguageModel):
    """A causal language model of transformers.

    ``model`` is a repository of the hub or a folder. ``device``: ``auto`` (a GPU if there is one), ``cpu``,
    ``cuda``, ``cuda:1``. ``dtype``: ``auto`` (as the weights were saved; float32 on a CPU), ``bfloat16``,
    ``float16``, ``float32``. ``device_map`` spreads the weights (accelerate). ``quantization``: ``4bit`` or
    ``8bit`` (bitsandbytes). ``adapter`` is a LoRA adapter (peft). ``batch`` is the largest number of samples
    drawn at once; it is halved when the GPU's memory does not suffice.

    :meth:`wrapping` makes one from a model and a tokenizer that are in memory.
    """

    provider: ClassVar[str] = "hf"
    summary: ClassVar[str] = "weights on this machine, by transformers: batched samples, 4/8 bit, LoRA adapters"
    package: ClassVar[str] = "transformers"
    extra: ClassVar[str] = "hf"
    needs: ClassVar[str] = "a repository or a folder"
    example: ClassVar[str] = "hf/REPO_OR_PATH, for example hf/facebook/KernelLLM"
    local = True

    def __init__(
        self,
        model: str,
        *,
        device: str = "auto",
        dtype: str = "auto",
        device_map: str | None = None,
        quantization: str | None = None,
        adapter: str | None = None,
        batch: int = 32,
        trust_remote_code: bool = False,
    ) -> None:
        super().__init__(model)
        if quantization not in (None, "4bit", "8bit"):
            raise UsageError(f"Unknown quantization {quantization!r}.", fix="Known: 4bit, 8bit.")
        self.device = device
        self.dtype = dtype
        self.device_map = device_map
        self.quantization = quantization
        self.adapter = adapter
        self.batch = int(batch)
        self.trust_remote_code = trust_remote_code
        self._lock = threading.RLock()
        self._model: Any = None
        self._tokenizer: Any = None

    @classmethod
    def wrapping(cls, model: Any, tokenizer: Any, *, name: str = "in-memory", batch: int = 32) -> HF:
        """A provider around a model and a tokenizer that are loaded already."""
        made = cls(name, batch=batch)
        made._model, made._tokenizer = model.eval(), tokenizer
        return made

    @property
    def identity(self) -> str:
        """Adapter and quantization change the answers."""
        return f"{self.adapter or ''}|{self.quantization or ''}|{self.dtype}"

    # -- loading -------------------------------------------------------------------------------

    def load(self) -> tuple[Any, Any]:
        """(model, tokenizer), loaded once. Raises ModelError that says what to do where there are no weights."""
        with self._lock:
            if self._model is None:
                self._load()
            return self._model, self._tokenizer

    def _load(self) -> None:
        transformers = need("transformers", "hf")
        import torch

        options = self._options(torch, transformers)
        where = {"trust_remote_code": self.trust_remote_code, "local_files_only": only_local(self.model)}
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(self.model, **where)
            model = transformers.AutoModelForCausalLM.from_pretrained(self.model, **where, **options)
        except (OSError, ValueError) as error:
            raise no_weights(self.model, error) from error
        if self.adapter:
            need("peft", "hf")
            try:
                model.load_adapter(self.adapter)
            except (OSError, ValueError) as error:
                raise ModelError(f"The adapter {self.adapter!r} cannot be loaded: {str(error).splitlines()[0]}.") from error
        if "device_map" not in options:
            model = model.to(_device(torch, self.device))
        self._model, self._tokenizer = model.eval(), tokenizer

    def _options(self, torch: Any, transformers: Any) -> dict[str, Any]:
        options: dict[str, Any] = {"dtype": self.dtype}
        if self.dtype == "auto" and _device(torch, self.device) == "cpu":
            options["dtype"] = torch.float32  # half precision on a CPU is slow, and missing for some operators
        elif self.dtype != "auto":
            if not isinstance(getattr(torch, self.dtype, None), torch.dtype):
                raise UsageError(f"Unknown dtype {self.dtype!r}.", fix="Known: auto, bfloat16, float16, float32.")
            options["dtype"] = getattr(torch, self.dtype)
        if self.device_map:
            options["device_map"] = self.device_map
        if self.quantization:
            need("bitsandbytes", "quantization")
            bits = (
                {"load_in_4bit": True, "bnb_4bit_compute_dtype": torch.bfloat16} if self.quantization == "4bit" else {"load_in_8bit": True}
            )
            options["quantization_config"] = transformers.BitsAndBytesConfig(**bits)
            options.setdefault("device_map", "auto" if self.device == "auto" else self.device)
        return options

    def close(self) -> None:
        """Let go of the weights."""
        self._model = self._tokenizer = None

    # -- prompts -------------------------------------------------------------------------------

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of the prompt."""
        return prompt_ids(self.load()[1], messages)

    # -- generation ----------------------------------------------------------------------------

    def sample(self, messages: Sequence[Message], params: SamplingParams, n: int = 1, first: int = 0) -> Iterator[Completion]:
        """``n`` answers, in batches. With a seed, the batch that begins at sample ``i`` is drawn with ``seed + i``."""
        self._cancelled.clear()
        ids = self.encode(messages)
        at, batch = 0, self.batch
        while at < n and not self._cancelled.is_set():
            count = 1 if params.temperature == 0 else min(batch, n - at)
            try:
                completions = self._batch(ids, params, count, first + at)
            except _OutOfMemory:
                if count == 1:
                    raise ModelError(
                        f"{self.name} ran out of GPU memory with a single sample.", fix="Use quantization, or fewer tokens."
                    ) from None
                batch = max(1, count // 2)
                continue
            yield from completions
            at += count

    def _batch(self, ids: list[int], params: SamplingParams, count: int, first: int) -> list[Completion]:
        import torch

        model, tokenizer = self.load()
        started = time.monotonic()
        tokens = torch.tensor([ids], device=model.device)
        with self._lock, _seeded(torch, model.device, params.for_sample(first).seed), torch.inference_mode():
            try:
                out = model.generate(
                    input_ids=tokens, attention_mask=torch.ones_like(tokens), num_return_sequences=count, **self._generation(params)
                )
            except torch.cuda.OutOfMemoryError as error:
                raise _OutOfMemory from error
            new = out[:, len(ids) :].tolist()  # the prompt is cut by tokens: never echoed
        seconds = (time.monotonic() - started) / count
        return [self._completion(tokenizer, row, len(ids), params, first + i, seconds) for i, row in enumerate(new)]

    def _completion(self, tokenizer: Any, row: list[int], tokens_in: int, params: SamplingParams, index: int, seconds: float) -> Completion:
        ends = self._end_tokens()
        length = next((i for i, token in enumerate(row) if token in ends), len(row))
        text = tokenizer.decode(row[:length], skip_special_tokens=True)
        text, stopped = cut_at_stop(text, params.stop)
        ended = length < len(row)
        finish = "stop" if ended or stopped else "cancelled" if self._cancelled.is_set() else "length"
        # The end token was generated too: servers count it.
        return Completion(text=text, tokens_in=tokens_in, tokens_out=length + ended, finish=finish, seconds=seconds, sample=index)

    def _end_tokens(self) -> set[int]:
        model, tokenizer = self.load()
        found: set[int] = {t for t in (tokenizer.eos_token_id, tokenizer.pad_token_id) if t is not None}
        configured = model.generation_config.eos_token_id
        if configured is not None:
            found.update([configured] if isinstance(configured, int) else configured)
        return found

    def _generation(self, params: SamplingParams) -> dict[str, Any]:
        """Arguments of ``generate``. All sampling limits are said: transformers has defaults of its own (top_k 50)."""
        transformers = need("transformers", "hf")
        criteria: Any = transformers.StoppingCriteria
        model, tokenizer = self.load()
        cancelled = self._cancelled

        class Cancel(criteria):  # type: ignore[misc]
            def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **kwargs: Any) -> torch.Tensor:
                import torch

                return torch.full((input_ids.shape[0],), cancelled.is_set(), device=input_ids.device, dtype=torch.bool)

        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        found: dict[str, Any] = {
            "max_new_tokens": params.max_tokens,
            "do_sample": params.temperature > 0,
            "pad_token_id": model.generation_config.pad_token_id if pad is None else pad,
            "stopping_criteria": transformers.StoppingCriteriaList([Cancel()]),
        }
        if params.temperature > 0:
            found |= {"temperature": params.temperature, "top_p": 1.0 if params.top_p is None else params.top_p, "top_k": params.top_k or 0}
        else:
            found |= {"temperature": None, "top_p": None, "top_k": None}
        if params.stop:
            found |= {"stop_strings": list(params.stop), "tokenizer": tokenizer}
        return found

    def stream(self, messages: Sequence[Message], params: SamplingParams) -> Iterator[str]:
        """One answer as it is written; afterwards ``last`` has its counts."""
        import torch

        transformers = need("transformers", "hf")
        self._cancelled.clear()
        ids = self.encode(messages)
        model, tokenizer = self.load()
        streamer: Any = transformers.TextIteratorStreamer(tokenizer, skip_prompt=True, timeout=600.0, skip_special_tokens=True)
        tokens = torch.tensor([ids], device=model.device)
        outcome: list[Any] = []

        def work() -> None:
            try:
                with self._lock, _seeded(torch, model.device, params.seed), torch.inference_mode():
                    mask = torch.ones_like(tokens)
                    outcome.append(model.generate(input_ids=tokens, attention_mask=mask, streamer=streamer, **self._generation(params)))
            except BaseException as error:  # noqa: BLE001 - raised again below, in the reader's thread
                outcome.append(error)
                streamer.end()

        started = time.monotonic()
        thread = threading.Thread(target=work, name="kernelllm-stream", daemon=True)
        thread.start()
        cutter = StopCutter(params.stop)
        whole = False
        try:
            for piece in streamer:
                if shown := cutter.feed(piece):
                    yield shown
            whole = True
            if rest := cutter.rest():
                yield rest
        finally:
            if not whole:  # the reader went away
                self._cancelled.set()
            thread.join()
        if isinstance(outcome[0], BaseException):
            raise outcome[0]
        row = outcome[0][0, len(ids) :].tolist()
        self.last = self._completion(tokenizer, row, len(ids), params, 0, time.monotonic() - started)


def prompt_ids(tokenizer: Any, messages: Sequence[Message]) -> list[int]:
    """Token ids of a prompt, with the beginning-of-text token exactly once where the tokenizer has one."""
    text = plain_text(messages)
    if text is None and not tokenizer.chat_template:
        text = as_text(messages) + "\n"
    if text is not None:
        ids = list(tokenizer(text)["input_ids"])
    else:
        # The template's text has the special tokens: adding them again would double the first.
        whole = tokenizer.apply_chat_template(as_chat(messages), add_generation_prompt=True, tokenize=False)
        ids = list(tokenizer(whole, add_special_tokens=False)["input_ids"])
    bos = tokenizer.bos_token_id
    if bos is not None:
        while ids[:1] == [bos]:
            ids = ids[1:]
        ids = [bos, *ids]
    return ids


class _OutOfMemory(Exception):
    """A batch did not fit into the GPU's memory."""


def _device(torch: Any, device: str) -> str:
    if device != "auto":
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"


@contextmanager
def _seeded(torch: Any, device: Any, seed: int | None) -> Iterator[None]:
    """Draw with a seed and leave the process's random state as it was; without one, do nothing."""
    if seed is None:
        yield
        return
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def only_local(model: str) -> bool:
    """Whether the weights can only come from this machine: a folder, or the cache where the hub cannot be reached.

    Raises ModelError at once where they are not here and the hub has none of that name or cannot be reached: transformers itself would
    ask for each file, again and again.
    """
    if Path(model).is_dir():
        return True
    hub = need("huggingface_hub", "hf")
    if hub.constants.HF_HUB_OFFLINE:
        return True
    errors = need("huggingface_hub.errors", "hf")
    try:
        cached = isinstance(hub.try_to_load_from_cache(model, "config.json"), str)
        hub.HfApi().model_info(model, timeout=HUB_S)
    except (errors.HTTPError, OSError, ValueError) as error:
        answered = getattr(error, "response", None) is not None
        if answered and not isinstance(error, errors.RepositoryNotFoundError | errors.GatedRepoError):
            return False  # a fault of the hub's that may pass
        if isinstance(error, errors.HFValidationError) or not cached:
            raise no_weights(model, error, reached=answered) from error
        log.warning("The hub cannot be asked for %s (%s); the copy in the cache is used", model, _first_line(error))
        return True
    return False


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def no_weights(model: str, error: Exception, *, reached: bool = True) -> ModelError:
    """Why the weights cannot be loaded, in the first line, and what to do in the others."""
    name = type(error).__name__
    if name == "RepositoryNotFoundError":
        why = "there is no folder of that name, and no such repository on the hub that this machine may see"
    elif name == "GatedRepoError":
        why = "its owner gives access on request: ask for it on its page, then log in with 'hf auth login'"
    elif name == "HFValidationError":
        why = "there is no folder of that name, and a repository is called ORGANISATION/NAME"
    elif not reached:
        why = f"they are not in the cache, and the hub cannot be reached ({_first_line(error)})"
    else:
        why = _first_line(error)
    lines = [
        f"The weights of {model!r} cannot be loaded: {why}.",
        f"Download them (hf download {model}), or name a folder that has them (hf/FOLDER, KernelLLM('FOLDER')).",
        "Or use a served model (openai/NAME with --base-url), or none at all: -m compiler.",
    ]
    return ModelError("\n".join(lines))
