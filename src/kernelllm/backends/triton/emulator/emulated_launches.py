"""Kernel launches in the interpreter: recorded, bounded, their arithmetic counted, and suppressed when the judge asks."""

from __future__ import annotations

import contextlib
import math
import types
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from triton.runtime import autotuner, jit

from kernelllm.backends import host_tensors
from kernelllm.backends.base import IllegalAccess, Launches, Observer
from kernelllm.backends.triton import autotuning
from kernelllm.backends.triton.emulator import coverage, functions, lockstep, memory, races, sampling, tf32, waiting_loops
from kernelllm.backends.triton.emulator.captured_globals import unchanged
from kernelllm.backends.triton.emulator.sampling import Sampling
from kernelllm.backends.triton.emulator.unloaded_lanes import UnloadedLanes
from kernelllm.backends.triton.kernel_arguments import bound_arguments, concrete_grid, described, only_plain, seen_launch, tuned


class _EmulatorState:
    observer: Observer | None = None
    suppressed = False
    begun = 0
    """Launches to be run."""


class InterpretedLaunches(Launches):
    """Watches the launches of this process, whose interpreter was installed before its fork."""

    def __init__(self, observer: Observer) -> None:
        _EmulatorState.observer = observer

    def suppress(self, on: bool) -> None:
        """While on, launches are checked and do not run."""
        _EmulatorState.suppressed = on

    def begin_run(self, places: Collection[str] | None, fill: float, *, in_order: bool, exact_products: bool = False) -> None:
        UnloadedLanes.kept, UnloadedLanes.fill = places, fill
        tf32.Tf32.rounds = not exact_products
        again = in_order or places is not None
        autotuning.begin_run(again=again)
        sampling.begin_run(again=again, in_order=in_order)

    def begin_at(self, turn: int) -> None:
        autotuning.begin_at(turn)

    def ran_backwards(self) -> bool:
        return sampling.ProgramOrder.any_backwards

    def undefined_lanes(self) -> tuple[str, ...]:
        return tuple(UnloadedLanes.places)

    def sampled(self, seed: int, seconds: float, programs: tuple[float, ...] = ()) -> Sampling:
        return Sampling(seed, seconds, programs)

    def disagreement(self) -> bool:
        return _EmulatorState.begun != lockstep.GridExecutor.launches


def install() -> None:
    """Replace JITFunction.run and Autotuner.run for good."""
    jit.JITFunction.run = _run
    jit.JITFunction.__call__ = functions.call
    autotuner.Autotuner.run = autotuning.run_next


def _run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
    bound = bound_arguments(self, args, kwargs)
    if warmup:
        return FakeCompiledKernel(self, args, kwargs)
    if self.is_gluon():
        raise NotImplementedError("Gluon has no interpreter: judge its kernels with --device cuda.")
    only_plain(bound.values(), self.fn.__code__.co_filename)
    missing = [n for n in self.arg_names if n not in bound]
    if missing:
        raise TypeError(f"{self.fn.__name__}() is missing arguments: {', '.join(missing)}")
    for name, value in bound.items():
        if isinstance(value, torch.Tensor) and host_tensors.on_host(value):
            text = f"Pointer argument {name!r} of {self.fn.__name__} cannot be accessed from Triton (cpu tensor?)"
            raise ValueError(f"{text}: make it with device=x.device")
    size = concrete_grid(grid, bound)
    unchanged(self)
    observer = _EmulatorState.observer
    if observer is None or tuned.measuring:
        if not _EmulatorState.suppressed:
            _interpret(self, size, bound, args, kwargs)
        return FakeCompiledKernel(self, args, kwargs, launched=True)
    seen = seen_launch(observer, self)
    tuned.note(seen)
    observer.launched(described(self, size, bound) if not FakeCompiledKernel.launching else self.fn.__name__)
    if _EmulatorState.suppressed:
        return FakeCompiledKernel(self, args, kwargs, launched=True)
    was, observer.in_launch = observer.in_launch, True
    before = functions.Arithmetic.flops
    try:
        _interpret(self, size, bound, args, kwargs)
    except Exception as error:
        observer.fault = observer.fault or _illegal_access(error)
        raise
    finally:
        observer.in_launch = was
        seen.flops += functions.Arithmetic.flops - before
    return FakeCompiledKernel(self, args, kwargs, launched=True)


def _interpret(self: Any, grid: tuple[int, ...], bound: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    bounds = memory.Bounds(bound)
    memory.current(bounds)
    UnloadedLanes.file = self.fn.__code__.co_filename
    try:
        with functions.Running(), torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
            executor = lockstep.GridExecutor(functions.interpreted(self.fn), self.arg_names, grid, self.pre_run_hooks)
            races.Races.begin(executor.fn, int(kwargs.get("num_warps") or 4), whole=Sampling.active is None)
            executor.cooperative = bool(kwargs.get("launch_cooperative_grid"))
            executor.waits = waiting_loops.waits(self.fn)
            _EmulatorState.begun += 1
            with _some_programs(executor, grid, bound):
                executor(*args, **kwargs)
                if Sampling.active is not None:
                    coverage.cover(self, executor, grid, Sampling.active)
        races.Races.end(bounds.ends - bounds.starts)
    finally:
        memory.current(None)
        if _EmulatorState.observer is not None:
            _EmulatorState.observer.wrote(bounds.written)


@contextlib.contextmanager
def _some_programs(executor: lockstep.GridExecutor, grid: tuple[int, ...], bound: dict[str, Any]) -> Iterator[None]:
    """Where programs are sampled, the launch runs some of its own."""
    sampling, total = Sampling.active, math.prod(grid)
    if sampling is None or not total:
        yield
        return
    storages = {s.data_ptr(): s for value in bound.values() for s in map(torch.Tensor.untyped_storage, memory.tensors(value))}
    with sampling.launch(storages, total):
        if executor.cooperative:
            sampling.ran(total)
            sampling.updates()
        else:
            executor.sampling = sampling
        yield


def _illegal_access(error: BaseException) -> str:
    """What an error says of memory that the kernel must not touch; empty where it is another error."""
    link: BaseException | None = error
    while link is not None and not isinstance(link, IllegalAccess):
        link = link.__cause__
    return str(link or "")


class FakeCompiledKernel:
    """Stands for a compiled kernel, for code that asks for registers or launches what ``warmup`` returned."""

    n_regs, n_spills, n_max_threads = 32, 0, 1024
    metadata = types.SimpleNamespace(shared=1024, num_warps=4, num_stages=2, num_ctas=1)
    asm: dict[str, str] = {}  # noqa: RUF012
    function, packed_metadata = 0, ()
    launching = False
    """Whether the launch under way is one of an object that ``warmup`` returned."""

    def __init__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, launched: bool = False) -> None:
        """``launched``: a launch returned it. Tensors are not kept: files that keep what a launch returned would keep them all."""
        self._function, self._launched = function, launched
        self._args = tuple(None if isinstance(value, torch.Tensor) else value for value in args)
        self._kwargs = {name: value for name, value in kwargs.items() if not isinstance(value, torch.Tensor)}
        self.name = function.fn.__name__
        self._several = bool(tuned.depth) and tuned.several
        self._tuned = (tuned.offered, tuned.running) if tuned.depth else None
        """The configurations of the launch that returned it, where it was one of an autotuned kernel."""

    def _init_handles(self) -> None:
        """Nothing to load."""

    def run(self, x: int, y: int, z: int, *given: Any) -> None:
        """A launch as Triton's launcher takes it: extents, stream, function, metadata twice, two hooks, arguments."""
        self[x, y, z](*given[6:])

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        constants = {n: v for n, v in self._kwargs.items() if n in self._function.arg_names}
        given = dict(zip(self._function.arg_names, self._args, strict=False))

        def runner(*args: Any, **options: Any) -> Any:
            named = dict(zip(self._function.arg_names, args, strict=False))
            merged = {**given, **constants, **named}
            if Sampling.active is not None and self._several:
                Sampling.active.launches_kept(self._function)
            FakeCompiledKernel.launching = not self._launched
            tuned.offered, tuned.running = self._tuned or (tuned.offered, tuned.running)
            try:
                with tuned if self._tuned else contextlib.nullcontext():
                    return self._function.run(grid=grid, warmup=False, **merged)
            finally:
                FakeCompiledKernel.launching = False

        return runner


FakeCompiledKernel.__name__ = FakeCompiledKernel.__qualname__ = "CompiledKernel"
FakeCompiledKernel.__module__ = "triton.compiler.compiler"
