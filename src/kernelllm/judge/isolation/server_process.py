"""Starts the process from which worker servers are forked, and ends it when the last of them has no more use."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import kernelllm
from kernelllm.backends.base import COMPILE_THREADS, Backend, Mode
from kernelllm.judge.isolation import sandbox
from kernelllm.judge.isolation.allowed_paths import clean_environment, packages_of

_LARGE_ARRAY = 2**24
"""Bytes of an array from which on its memory goes back to the system with it: between smaller ones it would leave holes that add up."""
_HELD = 2**28
"""Bytes that a worker keeps to use again before it gives them back."""
END_SECONDS = 20.0


class ServerProcess:
    """One process that imports torch, and then is a worker server, or forks one for each of several modes.

    ``places``: the folder, the mode and the control socket's descriptor of each; ``options``: the target, where the kernel language is
    found, and ``light`` or nothing.
    """

    def __init__(self, places: Sequence[tuple[Path, Mode, int]], backend: Backend, options: Sequence[str]) -> None:
        self._users = len(places)
        self._lock = threading.Lock()
        root, mode, _ = places[0]
        self._log = (root / "log").open("w+b")
        home = _home(root)
        given = [part for folder, its_mode, fd in places for part in (str(fd), str(its_mode), str(_home(folder)))]
        command = [sys.executable, "-P", "-m", "kernelllm.judge.worker.server", *options, *given]
        try:
            self._popen = subprocess.Popen(
                sandbox.wrap(command, str(root), gpu=mode is Mode.CUDA, read=packages_of(backend)),
                pass_fds=[fd for _, _, fd in places],
                env=_environment(home) | backend.environment(mode, str(home)),
                cwd=home,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
            )
        except BaseException:
            self._log.close()
            raise

    @property
    def pid(self) -> int:
        """Of the process that all its servers are, or are children of."""
        return self._popen.pid

    def alive(self) -> bool:
        """Whether it runs; one of its servers may have ended all the same."""
        return self._popen.poll() is None

    def log(self) -> str:
        """What it and its servers printed."""
        return os.pread(self._log.fileno(), 2**20, 0).decode(errors="replace")

    def leave(self, *, at_once: bool = False) -> None:
        """One of its servers is not used any more, and has ended. After the last one the process ends; ``at_once``: it is killed."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            if at_once:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGKILL)
            try:
                self._popen.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self._popen.kill()
                self._popen.wait()
            self._log.close()


def _home(root: Path) -> Path:
    """A server's home and temporary folder."""
    home = root / "server"
    home.mkdir(mode=0o711, exist_ok=True)
    return home


def _environment(home: Path) -> dict[str, str]:
    package_root = str(Path(kernelllm.__file__).resolve().parent.parent)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return clean_environment(str(home)) | {
        "PYTHONPATH": os.pathsep.join([package_root, *(p for p in sys.path if p and Path(p).is_dir())]),
        "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
        # arrays of some megabytes come and go: memory that goes back to the system each time costs a tenth of the interpreter's time
        "MALLOC_MMAP_THRESHOLD_": str(_LARGE_ARRAY), "MALLOC_TRIM_THRESHOLD_": str(_HELD),
        # what a pool's slot may use for torch.compile, its worker may use for its kernels: one waits for the other
        COMPILE_THREADS: str(min(8, int(os.environ.get("TORCHINDUCTOR_COMPILE_THREADS") or cores))),
    }  # fmt: skip
