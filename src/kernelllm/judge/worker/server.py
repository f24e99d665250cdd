"""The forkserver: imports torch and a kernel language once, then forks a supervised worker for each request.

Process tree: judge - forkserver - supervisor - worker (- whatever the candidate starts). The supervisor is a subreaper: descendants that
detach come back to it. When the judge drops its end of the leash pipe, or the worker ends,
the supervisor kills every descendant until none is left, reports on the status pipe, and exits.
Single-threaded by design; run as ``python -m kernelllm.judge.worker.server FD MODE TARGET BACKEND``, the last a ``module:class``.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys
import traceback
from importlib import import_module

import msgspec

from kernelllm.backends.base import Backend, Mode
from kernelllm.core import registry
from kernelllm.judge.isolation import sandbox
from kernelllm.judge.isolation.limits import Ended, Spawn
from kernelllm.judge.worker import process
from kernelllm.judge.worker.supervisor import supervise


def main() -> None:
    """Serve until the judge closes the control socket (descriptor number in ``argv[1]``)."""
    control = socket.socket(fileno=int(sys.argv[1]))
    mode, target = Mode(sys.argv[2]), sys.argv[3]
    backend: Backend = registry.imported(sys.argv[4])()
    process.prctl(process.SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()  # imports make objects that stay: looking through them again and again takes a third of the start
    setup = import_module("kernelllm.judge.worker.setup")
    ready = setup.prepare(mode, target, backend)
    sandbox.available(gpu=mode is Mode.CUDA)  # asked once here, so that every supervisor knows the answer
    gc.freeze()
    gc.enable()
    with contextlib.suppress(BrokenPipeError):
        control.sendall(msgspec.msgpack.encode(ready))
    _serve(control, mode, target, backend)
    os._exit(0)  # the judge waits for it: taking apart all that was imported takes half a second


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
    process.kill_descendants()


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
    for pid in process.children(os.getpid()):
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


if __name__ == "__main__":
    main()
