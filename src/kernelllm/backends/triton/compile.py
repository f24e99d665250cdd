"""Compiles every kernel that a candidate launches for a target GPU, which need not be there.

The model runs with Triton's own JIT under a stub driver: each launch specialises its arguments and compiles for the
target, and launches nothing. At original sizes it runs on fake tensors, without memory.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import triton
from triton.runtime import autotuner, jit
from triton.runtime.cache import FileCacheManager

from kernelllm.backends.base import LAUNCH, KernelSeen, Launches, Observer
from kernelllm.backends.triton import autotuning
from kernelllm.backends.triton.emulator.emulated_launches import FakeCompiledKernel
from kernelllm.backends.triton.kernel_arguments import bound_arguments, concrete_grid, described, refuse_wrapped, seen_launch, tuned

_NAME = re.compile(r"%[\w$.-]+")
_ITERATED = re.compile(r"(%[\w$.-]+) = (%[\w$.-]+)")
_ENTRY = re.compile(r"define ptx_kernel void @([\w$.]+)")
_BLOCK = re.compile(r"tensor<((?:\d+x)+)")
_STORES = ("tt.store", "tt.atomic_rmw", "tt.atomic_cas", "tt.descriptor_store", "tt.descriptor_scatter", "tt.descriptor_reduce",
           "tt.experimental_descriptor_store", "ttng.")  # fmt: skip
_MOST_ERROR, _MOST_REFUSED = 3000, 16


class _Pointer:
    """What Triton's specialisation looks at in a tensor argument: dtype and alignment."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.dtype = tensor.dtype
        self._address = int(tensor.storage_offset()) * tensor.element_size()
        self.shape = tensor.shape
        self._stride = tensor.stride()

    def data_ptr(self) -> int:
        """An address with the tensor's alignment."""
        return self._address

    def stride(self, dim: int | None = None) -> Any:
        return self._stride if dim is None else self._stride[dim]

    @staticmethod
    def ptr_range() -> int:
        """As Triton's MockTensor."""
        return 0


class CompiledLaunches(Launches):
    """Launches of this process compile and run nothing, for good."""

    def __init__(self, observer: Observer) -> None:
        _install(observer, self)
        self.only_listed = False
        self.refused: list[tuple[KernelSeen, BaseException, Any]] = []
        """Launches that raised what a GPU would raise, with the error and the function."""

    def raised(self, error: BaseException) -> None:
        """Note on its kernel the launch that ended the run."""
        chain: list[BaseException | None] = [error]
        while chain[-1] is not None and len(chain) < 8:
            chain.append(chain[-1].__cause__ or chain[-1].__context__)
        for seen, refused, function in self.refused:
            if any(refused is one for one in chain):
                _note_error(seen, refused, function)

    def compile_less(self, *, list_only: bool, binary: bool) -> None:
        """``list_only``: what was compiled once is not compiled again for other arguments. Not ``binary``: compiles end with LLVM's IR,
        when shared memory is known."""
        self.only_listed = self.only_listed or list_only
        if not binary:
            triton.knobs.runtime.add_stages_inspection_hook = _until_llvm


def _until_llvm(backend: Any = None, stages: Any = None, *rest: Any) -> tuple[str, str]:
    """Triton's hook on the stages of a compile, asked before for what identifies the stages: PTX and machine code are left out."""
    if stages is None:
        return "until llvm", "until llvm"

    def no_code(llvm: Any, metadata: dict[str, Any]) -> bytes:
        named = _ENTRY.search(str(llvm))
        metadata["name"] = named[1] if named else ""
        return b""

    del stages["ptx"]
    stages["cubin"] = no_code
    return "", ""


class _Files(FileCacheManager):  # type: ignore[misc]
    """A folder that one process writes to, so that each file is written in its place. Triton's own makes and removes a folder for each."""

    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        """Write one file; returns its path."""
        path = Path(self._make_path(filename))
        path.write_bytes(data if isinstance(data, bytes) else str(data).encode())
        return str(path)


def _install(observer: Observer, launches: CompiledLaunches) -> None:
    original = jit.JITFunction.run
    compiled: dict[Any, Any] = {}
    kept: dict[int, tuple[Any, bool]] = {}
    """Kernels that a launch gave back, and whether an autotuned one's, by their source: later launches are told like that one."""

    def object_launched(source: Any, metadata: Any) -> Any:
        def launch(*args: Any) -> None:
            function = getattr(source, "fn", None)
            seen_launch(observer, function, metadata.name)
            if function is None or id(source) not in kept:
                observer.launched(getattr(function, "__name__", metadata.name))
                observer.stores(0, math.inf)
                return
            bound = dict(zip(function.arg_names, args[-len(function.arg_names) :], strict=True))
            _note_launch(observer, function, kept[id(source)], args[:3], bound)

        return launch

    triton.runtime.driver.active.launcher_cls = object_launched

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        bound = bound_arguments(self, args, kwargs)
        seen = seen_launch(observer, self, count=0 if warmup else 1)
        tuned.note(seen)
        if launches.only_listed and self.fn in compiled:
            if not warmup:
                observer.launched(described(self, concrete_grid(grid, bound), bound))
            return compiled[self.fn]
        observer.in_launch = True
        try:
            with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
                kernel = original(self, *_pointers(args), grid=None, warmup=True, **{k: _pointer(v) for k, v in kwargs.items()})
                if kernel is not None:
                    kernel._init_handles()
        except Exception as error:
            if type(error) in autotuning.SKIPPED:
                launches.refused = [*launches.refused[-_MOST_REFUSED:], (seen, error, self)]
                raise  # as on a GPU: the candidate, or another configuration, may have a way out
            _note_error(seen, error, self)
            observer.stores(0, math.inf)
            return FakeCompiledKernel(self, args, kwargs)
        finally:
            observer.in_launch = False
        if kernel is not None:
            _note(seen, kernel)
            compiled[self.fn] = kernel
        if kernel is not None and not warmup:
            try:
                refuse_wrapped(bound.values())
                _note_launch(observer, self, (kernel, tuned.depth > 0), concrete_grid(grid, bound), bound)
                kept[id(kernel.src)] = kernel, tuned.depth > 0
            except (RuntimeError, TypeError, ValueError) as error:
                if observer.read_after is None:  # if not, the grid may come of values that no kernel computed here
                    seen.errors.append((f"{LAUNCH}{error}", 0))
        return kernel

    triton.knobs.cache.manager_class = _Files
    jit.JITFunction.run = run
    autotuner.Autotuner.run = autotuning.run_first


def _note_launch(observer: Observer, function: Any, kept: tuple[Any, bool], size: tuple[int, ...], bound: dict[str, Any]) -> None:
    kernel, by_tuning = kept
    with tuned if by_tuning else nullcontext():
        observer.launched(described(function, size, bound))
    _note_stores(observer, kernel, math.prod(size), bound)
    long = {name: elements for name, given in bound.items() if (elements := _length(given)) > _NARROW}
    for name in narrow_parameters(kernel.asm["ttir"]) & long.keys() if long and "ttir" in kernel.asm else ():
        text = f"At the original sizes {name} of {function.fn.__name__} spans {long[name]} elements, and offsets from it are whole numbers"
        observer.narrow(f"{text} of 32 bits, which end at 2147483647: compute them in 64 (.to(tl.int64)).")


def _note_stores(observer: Observer, kernel: Any, programs: int, bound: dict[str, Any]) -> None:
    for store in stores(kernel.asm.get("ttir", "tt.call")):
        given = bound.get(store.parameter or "")
        tensor = getattr(given, "base", given)
        if isinstance(tensor, torch.Tensor) and type(given).__name__ != "TensorWrapper":
            observer.stores(tensor.untyped_storage()._cdata, programs * store.elements if programs else 0)
        else:
            observer.stores(0, math.inf)


def _length(given: Any) -> int:
    """Elements from the first of a tensor to behind its last."""
    tensor = getattr(given, "base", given)
    if not isinstance(tensor, torch.Tensor) or not tensor.numel():
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))


def _pointers(args: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(_pointer(a) for a in args)


def _pointer(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _Pointer(value)
    if isinstance(value, tuple):
        return tuple(_pointer(v) for v in value) if type(value) is tuple else value
    return value


def _note(seen: KernelSeen, kernel: Any) -> None:
    shared, warps = getattr(kernel.metadata, "shared", None), getattr(kernel.metadata, "num_warps", None)
    seen.shared_bytes = max(seen.shared_bytes or 0, shared or 0)
    if not kernel.kernel:  # not assembled: nobody knows its registers
        seen.num_warps = warps
        return
    if seen.registers is None or (kernel.n_regs or 0) >= seen.registers:
        seen.registers, seen.num_warps = kernel.n_regs, warps
    seen.spills = max(seen.spills or 0, kernel.n_spills or 0)


def _note_error(seen: KernelSeen, error: BaseException, function: Any) -> None:
    chain = [error]
    while chain[-1].__cause__ is not None and len(chain) < 8:
        chain.append(chain[-1].__cause__)
    line = 0
    for link in chain:
        node_line = getattr(getattr(link, "node", None), "lineno", None)
        if isinstance(node_line, int):
            line = function.starting_line_number + _decorators(function) + node_line - 1
            break
    text = str(error).strip() or type(error).__name__
    cause = str(chain[-1]).strip()
    if cause and cause not in text:
        text = f"{text}\n{cause}"
    seen.errors.append((text[:_MOST_ERROR], line))


def _decorators(function: Any) -> int:
    """Lines before ``def``: node lines count from there."""
    for index, text in enumerate(getattr(function, "raw_src", [])):
        if text.lstrip().startswith("def "):
            return index
    return 0


@dataclass(frozen=True)
class StoreInstruction:
    """One instruction that writes. ``parameter``: the kernel's that its pointers are made of, None where that cannot be told;
    ``elements``: how many a program writes at most, infinite in a loop."""

    parameter: str | None
    elements: float


_NARROW = 2**31
"""Elements that offsets of 32 bits do not reach."""


@lru_cache(maxsize=64)
def narrow_parameters(ttir: str) -> frozenset[str]:
    """Pointers of a kernel from which all offsets are of 32 bits, and that no loop carries on: their sum may pass that."""
    origin: dict[str, str] = {}
    narrow, wide, carried = set[str](), set[str](), set[str]()
    for line in ttir.splitlines():
        code = line.strip() if "tt.func" in line else line.split(" loc(")[0].strip()
        if code.startswith("tt.func"):
            origin.update({name: name[1:] for name in re.findall(r"(%[\w$.-]+): !tt\.ptr", code)})
            continue
        target, _, right = code.partition(" = ") if code.startswith("%") else ("", "", code)
        names = _NAME.findall(right)
        for inner, outer in _ITERATED.findall(right) if right.startswith(("scf.for", "scf.while")) else ():
            carried |= {origin[outer]} if outer in origin else set()
            origin |= {inner: origin[outer]} if outer in origin else {}
        base = origin.get(names[0]) if names else None
        if base is not None and right.startswith("tt.addptr"):
            (narrow if re.search(r"[x ]i32>?$", right) else wide).add(base)
        if base is not None and target and right.startswith(("tt.addptr", "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.bitcast")):
            origin[target.split(":")[0]] = base
    return frozenset(narrow - wide - carried)


@lru_cache(maxsize=64)
def stores(ttir: str) -> tuple[StoreInstruction, ...]:
    """All that a kernel stores to, its helpers inlined."""
    return tuple(_stores(ttir.splitlines()))


def _stores(lines: list[str]) -> Iterator[StoreInstruction]:
    origin: dict[str, set[str]] = {}
    loops: list[int] = []
    for line in lines:
        text = line.split(" loc(")[0] if "tt.func" not in line else line
        code, indent = text.strip(), len(text) - len(text.lstrip())
        if code.startswith("tt.func"):
            origin.update({name: {name[1:]} for name in re.findall(r"(%[\w$.-]+): !tt\.(?:ptr|tensordesc)", code)})
            continue
        if code.startswith("}") and loops and indent <= loops[-1]:
            loops.pop()
        target, _, right = code.partition(" = ") if code.startswith("%") else ("", "", code)
        if right.startswith(("scf.for", "scf.while")):
            loops.append(indent)
            for inner, outer in _ITERATED.findall(right):
                origin.setdefault(inner, set()).update(origin.get(outer, ()))
        if right.startswith(_STORES):
            where = _NAME.search(right)
            known = origin.get(where[0], set()) if where else set()
            yield StoreInstruction(next(iter(known)) if len(known) == 1 else None, math.inf if loops else _elements(right))
        elif right.startswith(("tt.call", "scf.while")):
            yield StoreInstruction(None, math.inf)
        if target and not right.startswith("tt.load"):
            made = set().union(*(origin.get(name, set()) for name in _NAME.findall(right)))
            if made:
                origin[target.split(":")[0]] = made


def _elements(code: str) -> float:
    blocks = _BLOCK.findall(code.rpartition(" : ")[2] if " : " in code else code)
    return float(max((math.prod(int(size) for size in shape.split("x") if size) for shape in blocks), default=1))
