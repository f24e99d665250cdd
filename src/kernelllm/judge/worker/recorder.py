"""Notes what happens while candidate code runs: launches, ATen operators, audit events, replaced functions."""

from __future__ import annotations

import hashlib
import inspect
import sys
import sysconfig
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._compile import _disable_dynamo

from kernelllm.backends.base import CompiledKernel, DeviceAccess, KernelSeen
from kernelllm.judge.call_traces import CallTraces
from kernelllm.judge.isolation.allowed_paths import package_folders
from kernelllm.judge.observation import OF_ALL, RANDOM_NUMBERS
from kernelllm.judge.run_clock import RunClock
from kernelllm.judge.worker import process_settings, tuning

_EVENTS = (
    "open", "os.", "subprocess.", "socket.", "shutil.", "ctypes.", "sys._getframe", "sys._current_frames", "sys.setprofile", "sys.settrace",
    "gc.", "signal.", "pty.", "mmap.", "tempfile.", "urllib.", "http.", "ftplib.", "fcntl.", "resource.", "code.__new__",
    "_thread.start_new_thread", "threading.", "object.__getattr__", "object.__setattr__", "builtins.input", "cpython.run",
)  # fmt: skip
_QUIET = ("os.listdir", "os.scandir", "os.putenv", "os.unsetenv", "object.__getattr__", "object.__setattr__", "code.__new__", "os.fspath")
_BY_CALLER = ("sys._getframe", "gc.get_objects", "gc.get_referrers", "gc.get_referents", "ctypes.dlopen", "ctypes.dlsym", "mmap.__new__")
"""Libraries do these all the time: noted only where candidate code does them itself."""
_MOST_EVENTS, _MOST_LAUNCHES = 400, 1000


class Recorder:
    """One for the worker's life; what a backend tells of launches. ``request_access`` asks the judge for the GPU."""

    def __init__(self, request_access: Callable[[DeviceAccess], None]) -> None:
        self.request_access = request_access
        self.kernels: dict[str, KernelSeen] = {}
        self.bodies: dict[str, str] = {}
        self.events: Counter[tuple[str, str, str]] = Counter()
        self.phase = ""
        self.launches = 0
        self.in_launch = False
        self.fault = ""
        self.list: list[str] = []
        """What was done since :meth:`new_list`: launches as the backend describes them, and operators between them."""
        self.any_launch = False
        """Whether there are launches in it."""
        self.read_after: int | None = None
        """How many there were when values were looked at that a kernel may have computed; None: they never were."""
        self.stored: dict[int, float] = {}
        """Storages to the elements that launches wrote at most; 0: any storage."""
        self.narrow_offsets = ""
        """Where a launch has offsets of too few bits."""
        self.traces: CallTraces | None = None
        """Of the run under way."""
        self.floats_read = self.whole_read = 0
        self.hollow = self.hollow_read = False
        """Whether tensors hold nothing now, so that nobody may look at their values; and whether somebody has."""
        self.threads = 0
        self.streams = 0
        self.side_streams: dict[int, Any] = {}
        """Streams that candidate code made, by the pointers of CUDA's own."""
        self.switched_off = False
        """Whether a run left torch's dispatcher in a state in which operators are not seen."""
        self._watched = _watched_functions()
        self._classes = [(label, owner, dict(vars(owner))) for label, owner in _CLASSES]
        self._settings: dict[str, Any] = {}
        self._changed: dict[str, None] = {}
        """Settings that candidate code changed and left so."""

    def begin(self, phase: str) -> None:
        """Candidate code is called now."""
        self.phase, self._settings = phase, process_settings.snapshot()

    def end(self) -> None:
        """Candidate code has returned."""
        phase, self.phase, now = self.phase, "", process_settings.snapshot()
        changed = [name for name, value in self._settings.items() if now.get(name) != value]
        # the worker itself seeds where it times and constructs, and a constructor draws parameters
        ours = {"run": (), "import": (RANDOM_NUMBERS,)}.get(phase, (RANDOM_NUMBERS, process_settings.SEED))
        self._changed |= {f"{OF_ALL}{name}": None for name in changed if name not in ours}

    def launch(self, name: str, body: Callable[[], str] | None = None, count: int = 1) -> KernelSeen:
        seen = self.kernels.get(name)
        if seen is None:
            if len(self.kernels) >= 512:
                name = "(others)"
            seen = self.kernels.setdefault(name, KernelSeen(name))
            self.bodies[name] = (body() if body else "")[:20_000]
        seen.launches += count
        self.launches += 0 if "." in name else count  # one of a package's is none of the candidate's
        return seen

    def new_list(self) -> None:
        """List launches from the beginning."""
        self.list.clear()
        self.any_launch = False
        self.stored.clear()
        self.narrow_offsets = ""
        self.read_after = None

    def values_read(self, floats: int = 0, whole: int = 0) -> None:
        """Candidate code looks at values of a tensor; ``floats``: how many of a floating-point one; ``whole``: of another on the GPU."""
        if self.hollow:
            self.hollow_read = True
            raise NotImplementedError("The values of inputs without contents are asked for.")
        self.floats_read += floats
        self.whole_read += whole
        if self.any_launch and self.read_after is None:
            self.read_after = len(self.list)

    def launched(self, what: str) -> None:
        self.any_launch = True
        self.did(what)

    def did(self, what: str) -> None:
        """Add an event to the list of what the run did."""
        if len(self.list) < _MOST_LAUNCHES:
            self.list.append(what)

    def digest(self) -> str:
        """A hash of that list, equal for runs that did the same."""
        return hashlib.blake2b(repr(self.list).encode(), digest_size=8).hexdigest()

    def returned(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> None:
        """List the outputs that are memory of inputs."""
        known = {t.untyped_storage()._cdata: number for number, t in enumerate(inputs) if t.layout is torch.strided}
        for number, tensor in enumerate(outputs):
            if tensor.layout is torch.strided and (position := known.get(tensor.untyped_storage()._cdata)) is not None:
                self.did(f"output {number} out of input {position}")

    def stores(self, memory: int, elements: float) -> None:
        """Note what a launch may write."""
        self.stored[memory] = self.stored.get(memory, 0.0) + elements

    def narrow(self, text: str) -> None:
        """Note a launch whose offsets of 32 bits are too narrow; the first one counts."""
        self.narrow_offsets = self.narrow_offsets or text

    def wrote(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Note what a launch wrote into."""
        if self.traces is not None:
            self.traces.wrote(ranges)

    def rows(self) -> tuple[CompiledKernel, ...]:
        """All kernels seen, each with its first compile error."""
        found = []
        for k in self.kernels.values():
            error, line = k.errors[0] if k.errors else ("", 0)
            resources = k.registers, k.shared_bytes, k.spills, k.num_warps
            found.append(CompiledKernel(k.name, k.launches, *resources, error, line, dict(k.configurations)))
        return tuple(found)

    def kernel_flops(self) -> dict[str, float]:
        """Kernel name to the arithmetic of its launches, where the backend knows it."""
        return {k.name: k.flops for k in self.kernels.values() if k.flops}

    def tuning_times(self, call: Callable[[], Any]) -> list[float]:
        return tuning.tuning_times(call)

    def listen(self, packages: Sequence[str] = ()) -> None:
        """Start the audit hook (it cannot be taken away again). ``packages``: more folders with code that is not the candidate's."""
        libraries = (*_library_folders(), *packages)
        busy = threading.local()

        def hook(name: str, args: tuple[Any, ...]) -> None:
            if not self.phase or self.in_launch or name in _QUIET or not name.startswith(_EVENTS) or getattr(busy, "on", False):
                return
            busy.on = True
            try:
                if name == "_thread.start_new_thread":
                    self.threads += 1
                detail = _detail(args)
                if name == "open" and (detail.startswith(libraries) or detail.startswith(("/dev/null", "/sys/"))):
                    return
                if name in _BY_CALLER and sys._getframe(1).f_code.co_filename.startswith(libraries):
                    return
                key = (name, detail, self.phase)
                if len(self.events) < _MOST_EVENTS or key in self.events:
                    self.events[key] += 1
            finally:
                busy.on = False

        sys.addaudithook(hook)

    def tampered(self) -> tuple[str, ...]:
        """Library functions that are no longer what they were."""
        replaced = [
            name for name, owner, attribute, original in self._watched
            if (now := _static(owner, attribute)) is not original and not _dynamos(now, original)
        ]  # fmt: skip
        changed = [f"{label}.{name}" for label, owner, before in self._classes for name in _changed_members(owner, before)]
        names = [*replaced, *(name for name in changed if name not in replaced)]
        return (*names, *(["torch's dispatcher"] if self.switched_off else []), *self._changed)


_CLASSES = (("torch.Tensor", torch.Tensor), ("torch.nn.Parameter", torch.nn.Parameter), ("torch.nn.Module", torch.nn.Module))
"""What all members of are watched: a candidate has objects of them, and thus the class itself without naming it."""


def _changed_members(owner: type, before: dict[str, Any]) -> list[str]:
    """Members that were replaced or taken away, and new ones that hide one of a class above."""
    now = dict(vars(owner))
    changed = [n for n, member in before.items() if now.get(n) is not member and not _dynamos(now.get(n), member)]
    return changed + [n for n in now.keys() - before.keys() if any(n in vars(above) for above in owner.__mro__[1:])]


def _library_folders() -> tuple[str, ...]:
    roots = {sys.prefix, sys.base_prefix, *package_folders(), *(sysconfig.get_paths()[k] for k in ("stdlib", "purelib", "platlib"))}
    roots.add(str(Path(__file__).resolve().parents[2]))
    return ("<frozen", *sorted(roots))


def _detail(args: tuple[Any, ...]) -> str:
    parts = []
    for arg in args[:3]:
        parts.append(arg if isinstance(arg, str) else type(arg).__name__ if not isinstance(arg, int | bytes | list | tuple) else repr(arg))
    return " ".join(parts)[:200]


def _static(owner: Any, attribute: str) -> Any:
    """The attribute as stored: bound methods are new objects at every look."""
    return inspect.getattr_static(owner, attribute, None)


def _dynamos(now: Any, original: Any) -> bool:
    """Whether a function is the original in the wrapper that torch itself puts around it when it imports dynamo."""
    cells = [cell.cell_contents for cell in getattr(now, "__closure__", None) or ()]
    code = getattr(now, "__code__", None)
    return code is _DYNAMOS_CODE and any(content is original for content in cells)


_DYNAMOS_CODE = getattr(_disable_dynamo(lambda: None), "__code__", None)


def _watched_functions() -> list[tuple[str, Any, str, Any]]:
    table = (
        ("time", time, ("time", "perf_counter", "monotonic", "perf_counter_ns", "time_ns", "process_time")),
        ("torch", torch, ("allclose", "equal", "isclose", "manual_seed", "rand", "randn", "save", "load", "no_grad")),
        ("torch.cuda", torch.cuda, ("synchronize", "Event", "Stream", "current_stream", "empty_cache", "_sleep")),
        ("torch.cuda.Event", torch.cuda.Event, ("record", "elapsed_time", "synchronize")),
        ("RunClock", RunClock, ("begin", "start", "end", "enqueued_ms", "launching_ms", "reached_ms", "times_ms")),
        ("torch.Tensor", torch.Tensor, ("copy_", "clone", "allclose", "equal", "__eq__", "__torch_function__", "data_ptr", "cpu", "numpy")),
        ("torch.testing", torch.testing, ("assert_close",)),
        ("torch.nn.Module", torch.nn.Module, ("__call__", "_call_impl", "load_state_dict", "state_dict", "forward")),
        ("sys", sys, ("modules", "settrace", "setprofile")),
        ("threading", threading, ("Thread",)),
    )
    found = []
    for label, owner, names in table:
        for attribute in names:
            if hasattr(owner, attribute):
                found.append((f"{label}.{attribute}", owner, attribute, _static(owner, attribute)))
    return found
