"""A file's host code at sizes that never change, as straight lines: what one run of it allocated, launched and had torch compute.

Templates work out tiles, strides and grids at each call, and views cost microseconds. All of it follows from sizes, types and layouts,
which Dynamo guards. So a run is recorded, below Python's arithmetic, and later calls repeat what was recorded for their own tensors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from kernelllm.app.dynamo.host_code import launch_of
from kernelllm.backends.base import open_backend
from kernelllm.core.types import DEFAULT_BACKEND

Run = Callable[..., Sequence[Any]]
_LAUNCHERS = ("Launcher", "AlikeLauncher")
"""Classes of written files that launch a kernel."""
_SETTING = re.compile(r"\.(?:allow_tf32|fp32_precision)\b")
"""Settings of torch that a file may read at each call."""
_BOUND = ("mm", "bmm", "addmm", "baddbmm", "convolution")
"""Operators whose functions in Python are called in half of the time."""
_aten = torch.ops.aten
_ALLOCATIONS = (
    _aten.empty.memory_format, _aten.empty_strided.default, _aten.new_empty.default, _aten.new_empty_strided.default,
    _aten.empty_like.default,
)  # fmt: skip
_WAITS = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
_SIMPLE = (int, bool, str, type(None))
_FILLED = 255
"""A byte that makes numbers NaN or -1."""


class NotReplayable(Exception):
    """The host code does what cannot be repeated for other tensors."""


def replayed(module: ModuleType, model: torch.nn.Module, method: Run, inputs: Sequence[torch.Tensor]) -> Run | None:
    """What ``method`` of a file's model does for these inputs, as a function of others in the same layout, whose first call has nothing
    but what it writes itself in new memory. None where that cannot be told. A call with another layout or alignment runs ``method``.
    """
    if _SETTING.search(Path(str(module.__file__)).read_text(encoding="utf-8")):
        return None
    try:
        recording = _Recording(inputs, _held(module, model))
        with recording.of_launches(module), recording:
            results = method(*inputs)
        return recording.function(method, results)
    except NotReplayable:
        return None


def _held(module: ModuleType, model: torch.nn.Module) -> set[int]:
    """Storages of tensors that outlive a call: those of the model, and constants of the file."""
    values = [*model.parameters(), *model.buffers(), *vars(module).values(), *(v for m in model.modules() for v in vars(m).values())]
    tensors = [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]
    return {tensor.untyped_storage()._cdata for tensor in tensors}


class _Recording(TorchDispatchMode):
    """Lines of Python for what happens below it. Tensors are told by their storages, all of which it keeps until the end."""

    def __init__(self, inputs: Sequence[torch.Tensor], held: set[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._inputs, self._held = list(inputs), held
        self.lines: list[tuple[str, set[str]]] = []
        """Each with the names that it reads."""
        guards: Any = torch._C._dynamo.guards
        self.names: dict[str, Any] = {"torch": torch, "view": guards._reinterpret_tensor}
        self._bases: dict[int, tuple[str, torch.Tensor]] = {}
        self._launching = False
        for at, tensor in enumerate(inputs):
            storage = tensor.untyped_storage()._cdata
            if storage in self._bases or type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.data_ptr() & 15:
                raise NotReplayable
            self._bases[storage] = f"input_{at}", tensor

    # -- what happens ----------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if self._launching:  # what Triton does for a launch, such as trying blocks
            return func(*args, **kwargs)
        if not isinstance(func, torch._ops.OpOverload) or any(tag in func.tags for tag in _WAITS):
            raise NotReplayable
        out = func(*args, **kwargs)
        made = [leaf for leaf in pytree.tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        new = [tensor for tensor in made if not self._known(tensor)]
        if func in _ALLOCATIONS:
            self._allocate(out)
        elif new or func._schema.is_mutable:
            self._compute(func, args, kwargs, out, new)
        return out

    def _known(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage()._cdata in (self._bases.keys() | self._held)

    def _allocate(self, out: torch.Tensor) -> None:
        device = out.device
        if out.layout is not torch.strided or out.storage_offset() or device != self._inputs[0].device:
            raise NotReplayable
        name = self._named(out)
        self.lines.append((f"{name} = empty({tuple(out.shape)}, {out.stride()}, {out.dtype})", set()))

    def _compute(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, new: list[torch.Tensor]) -> None:
        read: set[str] = set()
        given = ", ".join([*(self._text(a, read) for a in args), *(f"{k}={self._text(v, read)}" for k, v in kwargs.items())])
        name = func._schema.name.removeprefix("aten::")
        operator = self._constant(getattr(torch, name) if name in _BOUND and func._overloadname == "default" else func)
        if not new:
            self.lines.append((f"{operator}({given})", read))
        elif isinstance(out, torch.Tensor):
            self.lines.append((f"{self._named(out)} = {operator}({given})", read))
        elif isinstance(out, tuple | list) and all(leaf is None or not isinstance(leaf, tuple | list | dict) for leaf in out):
            names = [self._named(leaf) if any(leaf is n for n in new) else "_" for leaf in out]
            self.lines.append((f"{', '.join(names)}, = {operator}({given})", read))
        else:
            raise NotReplayable

    @contextmanager
    def of_launches(self, module: ModuleType) -> Iterator[None]:
        """Notes what the file's launchers launch, and its scratch memory. A launch beside them cannot be repeated."""
        launchers = {name: value for name, value in vars(module).items() if type(value).__name__ in _LAUNCHERS}
        vars(module).update({name: _Noting(launcher, self) for name, launcher in launchers.items()})
        try:
            with open_backend(DEFAULT_BACKEND).watched_calls(self._launch_begins, self._set_up):
                yield
        finally:
            vars(module).update(launchers)

    def _launch_begins(self) -> None:
        if not self._launching:
            raise NotReplayable

    def _set_up(self, again: Callable[[], None]) -> None:
        self.lines.append((f"{self._constant(again)}()", set()))

    def launch(self, launcher: Any, grid: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Launch, and note it."""
        kernel = launcher.kernel
        pointers = sum("_ptr" in name for name in kernel.arg_names)
        tensors, numbers = arguments[:pointers], arguments[pointers:]
        plain = all(isinstance(tensor, torch.Tensor) for tensor in tensors)
        if not plain or any(isinstance(n, torch.Tensor) for n in (*numbers, *named.values())):
            raise NotReplayable
        read: set[str] = set()
        texts = [self._text(tensor, read, address=True) for tensor in tensors]
        self._launching = True
        try:
            launcher[grid](*arguments, **named)
        finally:
            self._launching = False
        told = SimpleNamespace(kernel=kernel, pointers=pointers, tuned=hasattr(kernel, "best_config"))
        sizes = (grid,) if isinstance(grid, int) else grid
        made = self._constant(launch_of(told, sizes, numbers, named, self._inputs[0].device))
        self.lines.append((f"{made}({', '.join(texts)})", read))

    # -- how it is written -----------------------------------------------------------------------

    def _named(self, tensor: torch.Tensor) -> str:
        name = f"made_{len(self._bases)}"
        self._bases[tensor.untyped_storage()._cdata] = name, tensor
        return name

    def _constant(self, value: Any) -> str:
        name = f"constant_{len(self.names)}"
        self.names[name] = value
        return name

    def _text(self, value: Any, read: set[str], *, address: bool = False) -> str:
        """An expression for an argument. ``address``: all that counts of a tensor is where it begins."""
        if isinstance(value, torch.Tensor):
            return self._tensor(value, read, address=address)
        if isinstance(value, list | tuple) and any(isinstance(v, torch.Tensor) for v in value):
            return "[" + ", ".join(self._text(v, read) for v in value) + "]"
        if type(value) in _SIMPLE or (type(value) is float and math.isfinite(value)):
            return repr(value)
        return self._constant(value)

    def _tensor(self, tensor: torch.Tensor, read: set[str], *, address: bool) -> str:
        storage = tensor.untyped_storage()._cdata
        if storage not in self._bases:
            if storage not in self._held:
                raise NotReplayable
            return self._constant(tensor)
        name, base = self._bases[storage]
        if tensor.dtype != base.dtype or any(t.is_conj() or t.is_neg() for t in (tensor, base)):
            raise NotReplayable
        read.add(name)
        distance = tensor.storage_offset() - base.storage_offset()
        if not distance and (address or (tensor.shape == base.shape and tensor.stride() == base.stride())):
            return name
        return f"view({name}, {tuple(tensor.shape)}, {tensor.stride()}, {distance})"

    def function(self, method: Run, results: Any) -> Run:
        """The lines as a function, in which tensors are let go behind their last use."""
        if not isinstance(results, list | tuple) or not all(isinstance(r, torch.Tensor) for r in results):
            raise NotReplayable
        read: set[str] = set()
        texts = [self._text(result, read) for result in results]
        last = {name: at for at, (_, names) in enumerate(self.lines) for name in names}
        last |= dict.fromkeys(read, len(self.lines))
        inputs = [f"input_{at}" for at in range(len(self._inputs))]
        body = [f"if ({', '.join(f'{n}.stride()' for n in inputs)},) != strides or ({' | '.join(f'{n}.data_ptr()' for n in inputs)}) & 15:",
                f"    return method({', '.join(inputs)})"]  # fmt: skip
        for at, (line, _) in enumerate(self.lines):
            gone = [name for name, end in last.items() if end == at and name not in inputs]
            body += [line, *([f"del {', '.join(gone)}"] if gone else [])]
        body.append(f"return ({', '.join(texts)},)")
        self.names |= {"method": method, "strides": tuple(tensor.stride() for tensor in self._inputs)}
        self._allocate_filled(sum(line.startswith("made_") and " = empty(" in line for line, _ in self.lines))
        text = "\n    ".join([f"def run({', '.join(inputs)}):", *body])
        exec(compile(text, "replayed host code", "exec"), self.names)
        run: Run = self.names["run"]
        return run

    def _allocate_filled(self, count: int) -> None:
        """So many allocations, those of the first call, are filled: what nothing writes must not hold what a run before left there."""
        device, left = self._inputs[0].device, count
        guards: Any = torch._C._dynamo.guards
        plain: Callable[..., torch.Tensor] = guards._empty_strided_cuda if device.type == "cuda" else _empty_on_cpu

        def filled(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
            nonlocal left
            left -= 1
            if not left:
                self.names["empty"] = plain
            made = plain(size, stride, dtype)
            if made.numel():
                torch.as_strided(made, (made.untyped_storage().nbytes() // made.itemsize,), (1,)).view(torch.uint8).fill_(_FILLED)
            return made

        self.names["empty"] = filled


def _empty_on_cpu(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype)


class _Noting:
    """Stands for a launcher of the file while a run is recorded."""

    def __init__(self, launcher: Any, recording: _Recording) -> None:
        self._launcher, self._recording = launcher, recording

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda *arguments, **named: self._recording.launch(self._launcher, grid, arguments, named)
