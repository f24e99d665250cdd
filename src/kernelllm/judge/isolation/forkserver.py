"""Starts forkservers and workers, and holds the judge's end of them."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from kernelllm.backends.base import Backend, Mode
from kernelllm.core import registry
from kernelllm.core.closing import Closing
from kernelllm.core.errors import WorkerError
from kernelllm.core.text import printable
from kernelllm.core.types import DEFAULT_BACKEND
from kernelllm.judge.isolation import folders, sandbox
from kernelllm.judge.isolation.limits import SIZE, Ended, Limits, Ready, Spawn
from kernelllm.judge.isolation.owned_folders import OwnedFolder
from kernelllm.judge.isolation.server_process import END_SECONDS, ServerProcess
from kernelllm.judge.transport import protocol, wire

if TYPE_CHECKING:
    from kernelllm.judge.transport.arenas import Arena

START_SECONDS = 120.0


class Worker:
    """One live worker: ask it commands, then close it. Not for use from several threads at once."""

    def __init__(self, sock: socket.socket, status: int, leash: int, folder: Path) -> None:
        self._sock, self._status, self._leash = sock, status, leash
        self.folder = folder
        self.ended: Ended | None = None
        self._ids = itertools.count(1)
        self._opened: set[int] = set()
        self._closed = False
        self._leash_lock = threading.Lock()

    def cut(self) -> None:
        """Let the supervisor kill the worker; returns at once. May be called from another thread."""
        with self._leash_lock:
            if self._leash >= 0:
                os.close(self._leash)
                self._leash = -1

    def _tell_size(self, size: int) -> None:
        """Tell the supervisor that arenas of so many bytes follow, which it must not count as the candidate's own shared memory."""
        with self._leash_lock, contextlib.suppress(OSError):
            if size and self._leash >= 0:
                os.write(self._leash, SIZE.pack(size))

    def ask(
        self, kind: type[Any], deadline: float, *, arenas: tuple[Arena, ...] = (),
        on_request: Callable[[str], float] = lambda access: 0.0, **fields: Any,
    ) -> protocol.Reply:  # fmt: skip
        """Send a command and wait for its reply. Arena arguments are references made by :meth:`ref` from ``arenas``.

        ``deadline`` by ``time.monotonic``; ``on_request`` does what the worker asks for of the device meanwhile, and returns the
        seconds by which that puts the deadline off. Raises WorkerGone, WorkerTimeout or ProtocolError.
        """
        number = next(self._ids)
        command = kind(id=number, **fields)
        self._tell_size(sum(a.size for a in arenas if a.fd >= 0 and a.key not in self._opened))
        fds = tuple(a.fd for a in arenas if a.fd >= 0 and a.key not in self._opened)
        wire.send(self._sock, command, fds, deadline)
        self._opened.update(a.key for a in arenas)
        while True:
            reply = wire.receive_reply(self._sock, number, deadline, self._status)
            if not isinstance(reply, protocol.AccessRequest):
                return reply
            deadline += on_request(reply.access)
            wire.send(self._sock, protocol.AccessGranted(number), deadline=deadline)

    def ref(self, arena: Arena, beside: tuple[Arena, ...]) -> protocol.ArenaRef:
        """How a command that travels with the arenas ``beside`` names one of them."""
        if arena.fd < 0:
            return arena.ref(arena.key in self._opened)
        new = [a.key for a in beside if a.fd >= 0 and a.key not in self._opened]
        return msgspec.structs.replace(arena.ref(True), fd=new.index(arena.key) if arena.key in new else -1)

    def alive(self) -> bool:
        """False once its supervisor has reported its end."""
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        return not poll.poll(0)

    def end(self, seconds: float = 20.0) -> Ended:
        """Kill the worker with everything it started and learn how it ended. Safe to call twice."""
        if self.ended is None:
            self.cut()
            self.ended = self._read_status(seconds)
        return self.ended

    def fate(self, seconds: float = 2.0) -> Ended:
        """How a worker ended that is already gone: waits briefly for its supervisor's word before killing it."""
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        poll.poll(seconds * 1000)
        return self.end()

    def close(self) -> Ended:
        """End the worker and remove its folder."""
        try:
            return self.end()
        finally:
            if not self._closed:
                self._closed = True
                self._sock.close()
                os.close(self._status)
                folders.remove(self.folder)

    def _read_status(self, seconds: float) -> Ended:
        deadline = time.monotonic() + seconds
        data = b""
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        while True:
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                return Ended(reason="the supervisor did not answer")
            piece = os.read(self._status, 2**16)
            if not piece:
                break
            data += piece
        try:
            ended = msgspec.msgpack.decode(data, type=Ended)
            return msgspec.structs.replace(ended, printed=printable(ended.printed.decode(errors="replace")).encode())
        except msgspec.DecodeError:
            return Ended(reason="the supervisor was killed")


class ForkServer(Closing):
    """One forkserver process for a mode and a kernel language. Starts in the background; thread-safe. Raises UnknownName.

    ``spares``: workers kept ready, confined and with their device initialised, that wait for a candidate. Each serves one candidate.
    ``light``: what few candidates need is imported by the worker that needs it. :meth:`together` starts several out of one import.
    """

    def __init__(
        self, mode: str, target: str, spares: int = 0, backend: str = DEFAULT_BACKEND, *, light: bool = False, start: bool = True
    ) -> None:
        self.mode, self.target, self.spares = Mode(mode), target, spares
        found = registry.require("backends", backend)
        self.backend: Backend = registry.imported(found)()
        self.options = (target, found, "light" if light else "")
        self._waiting: list[tuple[Limits, str | None, Worker]] = []
        self.ready: Ready | None = None
        self._lock = threading.Lock()
        self._process: ServerProcess | None = None
        self._numbers = itertools.count(1)
        self.folder = OwnedFolder()
        self.root = self.folder.path
        # Passable, not readable: compilers look at their temporary folder with access(2), as the worker's own user.
        self.root.chmod(0o711)
        if start:
            _start((self,))

    @classmethod
    def together(
        cls, modes: Sequence[Mode], target: str, spares: int = 0, backend: str = DEFAULT_BACKEND, *, light: bool = False
    ) -> list[Self]:  # fmt: skip
        """Servers of several modes. One process imports torch for all of them, and becomes none of them: each is forked from it."""
        servers = [cls(mode, target, spares, backend, light=light, start=False) for mode in modes]
        # inside bubblewrap a process may write into the folders of its server, and those of another are none of its business
        apart = sandbox.bubblewrap(gpu=Mode.CUDA in modes)
        for several in [[one] for one in servers] if apart else [servers]:
            if several:
                _start(several)
        return servers

    def started(self, process: ServerProcess, control: socket.socket) -> None:
        """It is one of the servers of this process, and listens to the other end of ``control``."""
        self._process, self._control, self.ready = process, control, None

    def _wait_ready(self) -> None:
        if self.ready is not None:
            return
        self._control.settimeout(START_SECONDS)
        try:
            self.ready = msgspec.msgpack.decode(self._control.recv(65536), type=Ready)
        except (OSError, msgspec.DecodeError) as error:
            assert self._process is not None
            log = printable(self._process.log().strip())
            logging.getLogger(__name__).debug("The log of the worker server (%s): %s", self.mode, log)
            why = log.rpartition("\n")[2][-400:] or str(error)
            raise WorkerError(f"The worker server ({self.mode}) did not start: {why}.", fix="See kernelllm doctor.") from error

    def spawn(self, source: str, limits: Limits, sandbox: str | None = None) -> Worker:
        """A fresh worker whose folder holds ``source`` as the candidate's file. Raises WorkerError when none can be started."""
        with self._lock:
            self._wait_ready()
            assert self._process is not None
            if not self._process.alive() or _hung_up(self._control):  # a hostile candidate killed it: start another
                self._control.close()
                self._dismiss()
                self._process.leave()
                _start((self,))
                self._wait_ready()
            worker = self._spare(limits, sandbox) or self._spawn(limits, sandbox)
            (worker.folder / f"candidate{self.backend.suffix}").write_text(source, encoding="utf-8", errors="surrogateescape")
            return worker

    def stock(self, limits: Limits, sandbox: str | None = None) -> None:
        """Have the spare workers made ready, for the next candidate."""
        with self._lock, contextlib.suppress(WorkerError):
            if self._process is None:
                return
            self._wait_ready()
            while len(self._waiting) < self.spares:
                self._waiting.append((limits, sandbox, self._spawn(limits, sandbox)))

    def _spare(self, limits: Limits, sandbox: str | None) -> Worker | None:
        """A living spare under these limits; those of other limits are let go."""
        while self._waiting:
            its_limits, its_sandbox, worker = self._waiting.pop(0)
            if its_limits == limits and its_sandbox == sandbox and worker.alive():
                return worker
            worker.close()
        return None

    def _dismiss(self) -> None:
        while self._waiting:
            self._waiting.pop()[2].close()

    def _spawn(self, limits: Limits, sandbox: str | None) -> Worker:
        folder = self.root / f"w{next(self._numbers)}"
        folder.mkdir(mode=0o700)
        ours, theirs = socket.socketpair()
        status_r, status_w = os.pipe()
        leash_r, leash_w = os.pipe()
        body = msgspec.msgpack.encode(Spawn(str(folder), limits, sandbox))
        try:
            socket.send_fds(self._control, [body], [theirs.fileno(), status_w, leash_r])
        except OSError as error:
            for fd in (status_r, leash_w):
                os.close(fd)
            ours.close()
            folders.remove(folder)
            raise WorkerError(f"The worker server is gone ({error}).") from error
        finally:
            theirs.close()
            os.close(status_w)
            os.close(leash_r)
        return Worker(ours, status_r, leash_w, folder)

    def close(self) -> None:
        """End the server with all its workers and remove its files."""
        with self._lock:
            if self._process is None:
                return
            self._dismiss()
            if self.ready is not None:
                with contextlib.suppress(OSError):
                    self._control.shutdown(socket.SHUT_WR)  # it ends its workers, then itself
                _hung_up(self._control, END_SECONDS)
            self._control.close()
            # nobody has asked it for a worker: no need to wait until it has imported everything
            self._process.leave(at_once=self.ready is None)
            self._process = None
            self.folder.remove()


def _start(servers: Sequence[ForkServer]) -> None:
    """Start one process for these servers, which differ in their modes alone. Removes their folders where that fails."""
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in servers]
    places = [(one.root, one.mode, theirs.fileno()) for one, (_, theirs) in zip(servers, pairs, strict=True)]
    try:
        process = ServerProcess(places, servers[0].backend, servers[0].options)
    except BaseException:
        for one, (ours, _) in zip(servers, pairs, strict=True):
            ours.close()
            one.folder.remove()
        raise
    finally:
        for _, theirs in pairs:
            theirs.close()
    for one, (ours, _) in zip(servers, pairs, strict=True):
        one.started(process, ours)


def _hung_up(control: socket.socket, seconds: float = 0.0) -> bool:
    """Whether nobody is left at the other end, within so many seconds."""
    poll = select.poll()
    poll.register(control, 0)
    return bool(poll.poll(seconds * 1000))
