"""Forks a supervised worker for each request, in a server that imports torch and a kernel language once.

Process tree: judge - forkserver - supervisor - worker (- whatever the candidate starts). The supervisor is a subreaper: descendants that
detach come back to it. When the judge drops its end of the leash pipe, or the worker ends,
the supervisor kills every descendant until none is left, reports on the status pipe, and exits.
Single-threaded by design; run as ``python -m kernelllm.judge.worker.server TARGET BACKEND LIGHT FD MODE HOME [FD MODE HOME ...]``: the
backend as ``module:class``, light or an empty argument, and for each server its control socket's descriptor, its mode and its folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select
import signal
import socket
import sys
import tempfile
import time
import traceback
from importlib import import_module
from pathlib import Path

import msgspec

from kernelllm.backends.base import Backend, Mode
from kernelllm.core import registry
from kernelllm.core.errors import KernelLLMError
from kernelllm.core.garbage_collection import collect_seldom
from kernelllm.judge.isolation import folders, sandbox
from kernelllm.judge.isolation.allowed_paths import clean_environment
from kernelllm.judge.isolation.limits import SIZE, Ended, Spawn
from kernelllm.judge.isolation.owned_folders import remove_abandoned

SET_PDEATHSIG = 1
SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)
_HEAD, _TAIL = 24 * 1024, 8 * 1024
_TICK_MS = 50
_DISK_S = 0.5


def main() -> None:
    """Serve until the judge closes the control socket. Of several servers, each is a child of this process, which waits for them."""
    target, backend = sys.argv[1], registry.imported(sys.argv[2])()
    light, given = bool(sys.argv[3]), sys.argv[4:]
    places = [(socket.socket(fileno=int(fd)), Mode(mode), home) for fd, mode, home in zip(*(given[i::3] for i in range(3)), strict=True)]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()  # imports make objects that stay: looking through them again and again takes a third of the start
    setup = import_module("kernelllm.judge.worker.setup")
    setup.preload(tuple(mode for _, mode, _ in places), target, backend)
    gc.freeze()
    place = places[0] if len(places) == 1 else _child(places)
    if place is not None:
        control, mode, home = place
        os.environ.update(clean_environment(home) | backend.environment(mode, home))
        tempfile.tempdir = None  # a new one is looked up: what was imported may have asked for that of the first server
        os.chdir(home)
        prctl(SET_CHILD_SUBREAPER, 1)
        ready = setup.prepare(mode, target, backend, light=light)
        sandbox.available(gpu=mode is Mode.CUDA)  # asked once here, so that every supervisor knows the answer
        gc.freeze()
        gc.enable()
        collect_seldom()
        with contextlib.suppress(BrokenPipeError):
            control.sendall(msgspec.msgpack.encode(ready))
        _serve(control, mode, target, backend)
        remove_abandoned(Path(home).parent)  # of a judge that was killed
    os._exit(0)  # the judge waits for it: taking apart all that was imported takes half a second


def _child(places: list[tuple[socket.socket, Mode, str]]) -> tuple[socket.socket, Mode, str] | None:
    """Fork a process for each of these servers. In such a process: which it is; None in this one, when all of them have ended."""
    for place in places:
        if os.fork() == 0:
            die_with_parent()
            for other in places:
                if other is not place:
                    other[0].close()
            return place
    for control, _, _ in places:
        control.close()
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    return None


def _serve(control: socket.socket, mode: Mode, target: str, backend: Backend) -> None:
    supervisors: set[int] = set()
    bell = _child_bell()
    poll = select.poll()
    poll.register(control.fileno(), select.POLLIN)
    poll.register(bell, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poll.poll()}
        if bell in ready:
            os.read(bell, 4096)
            _reap(supervisors)
        if control.fileno() not in ready:
            continue
        body, fds, _, _ = socket.recv_fds(control, 65536, 8)
        if not body:
            break
        try:
            request = msgspec.msgpack.decode(body, type=Spawn)
            supervisors.add(_start(request, fds, control, mode, target, backend))
        finally:
            for fd in fds:
                os.close(fd)
    for pid in supervisors:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    kill_descendants()


def _child_bell() -> int:
    """A descriptor that turns readable when a child ends."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write_end)
    return read_end


def _reap(supervisors: set[int]) -> None:
    """Reap what has ended; orphans whose supervisor was killed have become ours, and are killed."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if pid == 0:
            break
        supervisors.discard(pid)
    for pid in children(os.getpid()):
        if pid not in supervisors:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _start(request: Spawn, fds: list[int], control: socket.socket, mode: Mode, target: str, backend: Backend) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        control.close()
        worker_fd, status_fd, leash_fd = fds
        supervise(request, worker_fd, status_fd, leash_fd, mode, target, backend)
    except BaseException:  # noqa: BLE001 (a child must never return into the loop; what went wrong is told)
        with contextlib.suppress(OSError):
            os.write(fds[1], msgspec.msgpack.encode(Ended(reason=traceback.format_exc()[-2000:])))
    finally:
        os._exit(0)


def supervise(request: Spawn, worker_fd: int, status_fd: int, leash_fd: int, mode: Mode, target: str, backend: Backend) -> None:
    """Fork the worker, drain what it prints, watch its limits, clean up after it, report how it ended."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    die_with_parent()
    os.setsid()
    prctl(SET_CHILD_SUBREAPER, 1)
    out_r, out_w = os.pipe()
    try:
        level = str(sandbox.prepare(mode, request.sandbox))
    except (OSError, RuntimeError, ValueError, KernelLLMError) as error:
        os.write(status_fd, msgspec.msgpack.encode(Ended(code=1, reason=f"sandbox: {error}")))
        return
    pid = os.fork()
    if pid == 0:
        try:
            for fd in (status_fd, leash_fd, out_r):
                os.close(fd)
            _become_worker(request, worker_fd, out_w, mode, target, backend)
        except BaseException:  # noqa: BLE001 (a child must never return into the forkserver's loop)
            text = traceback.format_exc().encode()
            for fd in (out_w, 2):  # the pipe is standard error once the worker has come that far
                with contextlib.suppress(OSError):
                    os.write(fd, text)
                    break
        finally:
            os._exit(70)
    os.close(out_w)
    os.close(worker_fd)
    watcher = Watcher(pid, out_r, leash_fd, request)
    code, ended_by = watcher.watch()
    kill_descendants()
    watcher.drain()
    report = Ended(
        code=code,
        signal=ended_by,
        reason=watcher.reason,
        printed=watcher.printed(),
        printed_bytes=watcher.total,
        processes=watcher.processes,
        peak_bytes=watcher.peak,
        sandbox=level,
    )
    with contextlib.suppress(BrokenPipeError):
        os.write(status_fd, msgspec.msgpack.encode(report))


class Watcher:
    """Watches one worker until it ends or is ended."""

    def __init__(self, pid: int, out: int, leash: int, request: Spawn) -> None:
        self.pid, self.out, self.leash, self.limits, self.folder = pid, out, leash, request.limits, request.folder
        self._next_disk = 0.0
        self.reason = ""
        self.total = self.processes = self.peak = self.arena_bytes = 0
        self._head, self._tail = bytearray(), bytearray()
        self._base = memory(os.getpid())[0]
        os.set_blocking(out, False)

    def watch(self) -> tuple[int | None, int]:
        """Exit code (or None) and signal of the worker."""
        pidfd = os.pidfd_open(self.pid)
        poll = select.poll()
        for fd in (pidfd, self.out, self.leash):
            poll.register(fd, select.POLLIN)
        next_look = 0.0
        while True:
            ready = {fd for fd, _ in poll.poll(_TICK_MS)}
            if self.out in ready and not self.drain(2**20):
                poll.unregister(self.out)
            if pidfd in ready:
                break
            if self.leash in ready:
                self._read_leash()
            now = time.monotonic()
            if now >= next_look:
                next_look = now + _TICK_MS / 1000
                self._look()
        os.close(pidfd)
        _, status = os.waitpid(self.pid, 0)
        if os.WIFSIGNALED(status):
            return None, os.WTERMSIG(status)
        return os.WEXITSTATUS(status), 0

    def _look(self) -> None:
        everyone = [self.pid, *descendants(self.pid)]
        everyone += [p for p in children(os.getpid()) if p != self.pid]  # detached
        self.processes = max(self.processes, len(everyone) - 1)
        sizes = [memory(p) for p in everyone]
        shared = max(sum(size[1] for size in sizes) - self.arena_bytes, 0)
        used = sum(size[0] for size in sizes) + shared
        self.peak = max(self.peak, used)
        if self.limits.memory_bytes and used > self.limits.memory_bytes + self._base:
            self._end("memory")
        elif self.limits.processes and len(everyone) - 1 > self.limits.processes:
            self._end("processes")
        elif self._folder_is_full():
            self._end("disk")

    def _folder_is_full(self) -> bool:
        now = time.monotonic()
        if now < self._next_disk:
            return False
        self._next_disk = now + _DISK_S
        size, files = folders.usage(self.folder, self.limits.files)
        return size > self.limits.disk_bytes or files > self.limits.files

    def _read_leash(self) -> None:
        """Note the sizes of arenas that the judge announces; without a judge at the other end, kill the worker."""
        told = os.read(self.leash, 512 * SIZE.size)
        if not told:
            os.kill(self.pid, signal.SIGKILL)
        self.arena_bytes += sum(size for (size,) in SIZE.iter_unpack(told))

    def _end(self, reason: str) -> None:
        self.reason = reason
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def drain(self, most: int = 2**16) -> bool:
        """Read what was printed, keeping its first and last part; False at the end of the pipe."""
        taken = 0
        while taken < most:
            try:
                piece = os.read(self.out, 2**16)
            except BlockingIOError:
                return True
            if not piece:
                return False
            taken += len(piece)
            self.total += len(piece)
            room = _HEAD - len(self._head)
            self._head += piece[:room]
            self._tail = (self._tail + piece[max(room, 0) :])[-_TAIL:]
        return True

    def printed(self) -> bytes:
        """First and last part of the output."""
        lost = self.total - len(self._head) - len(self._tail)
        middle = f"\n... {lost} bytes left out ...\n".encode() if lost > 0 else b""
        return bytes(self._head) + middle + bytes(self._tail)


def _become_worker(request: Spawn, worker_fd: int, out_w: int, mode: Mode, target: str, backend: Backend) -> None:
    die_with_parent()
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(out_w, 1)
    os.dup2(out_w, 2)
    if worker_fd != 3:
        os.dup2(worker_fd, 3, inheritable=False)
    os.closerange(4, 4096)
    sys.stdin, sys.stdout, sys.stderr = (open(n, m, buffering=1, closefd=False) for n, m in ((0, "r"), (1, "w"), (2, "w")))  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.chdir(request.folder)
    sandbox.enter(request.folder, request.limits, mode, backend)
    main = import_module("kernelllm.judge.worker.worker_main")
    main.serve(socket.socket(fileno=3), request.folder, mode, target, backend)
    os._exit(0)


def prctl(option: int, value: int) -> None:
    """prctl(2) with one argument; failures are ignored (they only make cleaning up weaker)."""
    _libc.prctl(option, value, 0, 0, 0)


def die_with_parent() -> None:
    """Ask for SIGKILL when the parent ends; exits at once when it already has."""
    parent = os.getppid()
    prctl(SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def children(pid: int) -> list[int]:
    """Direct children of a process, of all its threads."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            with contextlib.suppress(OSError, ValueError):
                found += map(int, _read(f"/proc/{pid}/task/{task}/children").split())
    return found


def _read(path: str) -> bytes:
    """A file of /proc; read many times a second, where pathlib takes longer than the kernel."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123
        return file.readall()


def descendants(pid: int) -> list[int]:
    """All descendants, nearest first."""
    found: list[int] = []
    queue = [pid]
    while queue and len(found) < 100_000:
        below = children(queue.pop(0))
        found += below
        queue += below
    return found


def memory(pid: int) -> tuple[int, int]:
    """Bytes of a process in memory: (its own, shared without a file); zeros when it is gone."""
    try:
        status = _read(f"/proc/{pid}/status")
    except OSError:
        return 0, 0
    own, shared = (status.partition(name)[2].split(None, 1)[:1] for name in (b"RssAnon:", b"RssShmem:"))
    return int(own[0]) * 1024 if own else 0, int(shared[0]) * 1024 if shared else 0


def kill_descendants(seconds: float = 15.0) -> None:
    """Kill and reap until this process has no descendant left. Gives up after ``seconds``."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        below = descendants(os.getpid())
        for signal_number in (signal.SIGSTOP, signal.SIGKILL):  # stop first: a fork bomb must not outrun the killing
            for pid in below:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal_number)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.001)


if __name__ == "__main__":
    main()
