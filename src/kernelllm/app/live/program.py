"""A written file in use in this process, with the parameters and buffers of a live module: which calls it serves, and running them."""

from __future__ import annotations

import collections
import math
import os
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kernelllm.app import in_process
from kernelllm.app.live.call_arguments import BoundCalls, Call, Flattened, flatten
from kernelllm.app.live.filled_arguments import Filled
from kernelllm.backends.base import import_file, open_backend
from kernelllm.core import settings
from kernelllm.core.errors import UsageError
from kernelllm.core.file_cache import replace_file
from kernelllm.core.types import DEFAULT_BACKEND, digest

PROVEN, UNPROVEN = "proven", "unproven"
"""Sizes under which the graph holds; those of which only a dimension of 1 was never tried, or a type: results are compared once."""
_imported: dict[str, ModuleType] = {}


@dataclass(eq=False)
class LiveProgram:
    """One written file, and the calls that it is for."""

    source: str
    signature: Signature
    output: Flattened
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    """Tensors of the module that no state dict holds, by name."""
    differentiable: bool = False
    """Whether its results have a backward."""
    fills: Filled | None = None
    """What the forward leaves in its arguments."""
    refused: str = ""
    """Why it is not used at all; empty where it is."""
    tried: set[torch.dtype] = field(default_factory=set)
    """Half precisions in which its results were those of the original."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def model(self, original: torch.nn.Module) -> torch.nn.Module:
        """ModelNew with the original's tensors, made when it is first asked for. Raises UsageError, and what the file raises."""
        known: torch.nn.Module | None = vars(self).get("_model")
        if known is None:
            with torch.random.fork_rng(devices=[]):  # what a constructor draws is overwritten; the caller draws what it would
                known = imported(self.source).ModelNew()
            assert isinstance(known, torch.nn.Module)
            self._share(known, original)
            self._model = known
            self.move(next((t.device for t in (*original.parameters(), *original.buffers())), torch.device("cpu")))
        return known

    def move(self, device: torch.device) -> None:
        """Bring what the file holds besides the original's tensors to a device."""
        model: torch.nn.Module | None = vars(self).get("_model")
        for module in model.modules() if model is not None else ():
            held = vars(module)["_buffers"]
            own = held.maps[-1] if isinstance(held, collections.ChainMap) else held if module in self._own else {}
            own.update({name: buffer.to(device) for name, buffer in own.items() if buffer is not None})

    def _share(self, model: torch.nn.Module, original: torch.nn.Module) -> None:
        """The holders of the file take the original's own dictionaries of tensors, so that both always hold the same."""
        self._own: set[torch.nn.Module] = set()
        for path, holder in model.named_modules():
            try:
                theirs = vars(original.get_submodule(path))
            except AttributeError:
                theirs = {"_parameters": {}, "_buffers": {}}
            missing = [name for name in vars(holder)["_parameters"] if name not in theirs["_parameters"]]
            if missing:
                names = ", ".join(f"{path}.{name}".lstrip(".") for name in missing)
                raise UsageError(f"The file has parameters that the module lacks: {names}.")
            buffers = vars(holder)["_buffers"]
            own = {n: self.constants.get(f"{path}.{n}".lstrip("."), b) for n, b in buffers.items() if n not in theirs["_buffers"]}
            if vars(holder)["_parameters"]:
                vars(holder)["_parameters"] = theirs["_parameters"]
            if not own:
                vars(holder)["_buffers"] = theirs["_buffers"] if buffers else buffers
            elif len(own) == len(buffers):
                vars(holder)["_buffers"] = own
                self._own.add(holder)
            else:
                vars(holder)["_buffers"] = collections.ChainMap(theirs["_buffers"], own)


def imported(source: str) -> ModuleType:
    """The file as a module; it lies in the cache folder, where Triton reads its kernels. Raises what its code raises."""
    name = f"kernelllm_written_{digest(source)[:20]}_{os.environ.get('TRITON_INTERPRET', '0')}"
    if name not in _imported:
        path = settings.load().cache / "written" / f"{name}.py"
        if not path.is_file() or path.read_text(encoding="utf-8") != source:
            replace_file(path, source.encode())
        _imported[name] = import_file(path, name)
    return _imported[name]


def runs_on(device: torch.device) -> str:
    """Why kernels cannot run on a device in this process; empty where they can."""
    absent = open_backend(DEFAULT_BACKEND).missing()
    if absent is not None:
        return absent.reason
    if device.type == "cuda" or in_process.runs_without_gpu():
        return ""
    if not torch.cuda.is_available():
        return "there is no GPU: the kernels ran in the judge alone"
    return f"the module is on {device.type}: move it to 'cuda'"


def refused(error: BaseException) -> bool:
    """Whether a file refused a call before it did anything: by a ``raise`` of its own."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and Path(frames[-1].filename).stem in _imported and (frames[-1].line or "").startswith("raise")


def reason(error: BaseException) -> str:
    """An error of a file in a few words."""
    text = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {text[:160]}" if text else type(error).__name__


@dataclass(frozen=True)
class Signature:
    """What the arguments of a call must be. Text of sizes is Python over the symbols."""

    names: tuple[str, ...]
    """The tensors' names, in the order of the written forward."""
    nest: Flattened
    """How they sit in the arguments by name."""
    dtypes: tuple[torch.dtype, ...]
    shapes: tuple[tuple[int | str, ...], ...]
    guards: tuple[str, ...] = ()
    lowest: tuple[tuple[str, int], ...] = ()
    """Symbol to the smallest size for which the graph was captured."""
    modes: tuple[tuple[str, bool], ...] = ()
    """Paths of the modules whose mode the forward depends on, with the mode."""
    written: frozenset[int] = frozenset()
    """Places of the inputs that the forward writes into."""
    writes_state: bool = False
    """Whether it writes into buffers."""
    compared: tuple[tuple[str, int], ...] = ()
    """Symbol to the one size for which the graph was captured: what the kernels give for each other size is compared once."""
    halves: bool = False
    """Whether the module does the same in half precision."""

    def half(self, tensors: Sequence[torch.Tensor]) -> torch.dtype | None:
        """The half precision that all have in float32's place; None where they have none, or may not."""
        found = {t.dtype for t, dtype in zip(tensors, self.dtypes, strict=False) if dtype is torch.float32}
        return next(iter(found)) if self.halves and len(found) == 1 and found < {torch.float16, torch.bfloat16} else None

    def refusal(self, nest: Flattened, tensors: Sequence[torch.Tensor], half: torch.dtype | None = None) -> str:
        """Why such arguments do not fit, sizes aside; empty where they do. ``half``: what may stand in float32's place."""
        if nest != self.nest or len(tensors) != len(self.dtypes):
            return "other arguments"
        for name, tensor, dtype, shape in zip(self.names, tensors, self.dtypes, self.shapes, strict=True):
            if tensor.dtype != dtype and (half is None or dtype is not torch.float32):
                return f"{name} is {_short(tensor.dtype)}, not {_short(dtype)}"
            if tensor.device != tensors[0].device:
                return f"{name} is on {tensor.device}, and {self.names[0]} on {tensors[0].device}"
            if tensor.layout is not torch.strided:
                return f"{name} is {_short(tensor.layout)}"
            if tensor.dim() != len(shape):
                return f"{name} has {tensor.dim()} dimensions, not {len(shape)}"
        return ""

    def unfit(self, module: torch.nn.Module, call: Call) -> str:
        """Why the graph was not captured for such a call of the module; empty where it was."""
        tensors: list[torch.Tensor] = []
        nest = flatten(BoundCalls(module.forward).named(*call), tensors, "An argument of the module")
        why = self.refusal(nest, tensors) or self.sizes(tensors)
        return "" if why == PROVEN or (self.compared and why == UNPROVEN) else why

    def sizes(self, tensors: Sequence[torch.Tensor]) -> str:
        """:data:`PROVEN`, :data:`UNPROVEN`, or what does not fit."""
        values: dict[str, int] = {}
        derived: list[tuple[str, int, str]] = []
        for name, tensor, shape in zip(self.names, tensors, self.shapes, strict=True):
            for size, wanted in zip(tensor.shape, shape, strict=True):
                if isinstance(wanted, int):
                    if size != wanted:
                        return f"{name} has a size {size} where {wanted} is fixed"
                elif not wanted.isidentifier():
                    derived.append((wanted, size, name))
                elif values.setdefault(wanted, size) != size:
                    return f"sizes of {name} do not fit those of the other inputs"
        small = {s for s, low in self.lowest if values.get(s, low) < low}
        if any(values[s] == 0 for s in small):
            return "an empty input"
        tried = {s: v + 1 if s in small else v for s, v in values.items()}
        for text, size, name in derived:
            if not _holds(f"({text}) == {size}", values):
                return f"sizes of {name} do not fit those of the other inputs"
        for guard in self.guards:
            if not _holds(guard, tried):
                return f"the sizes do not meet {guard}"
        return UNPROVEN if small or any(values.get(symbol) != size for symbol, size in self.compared) else PROVEN


def _holds(text: str, values: dict[str, int]) -> bool:
    functions = {f.__name__: f for f in (min, max, int, float, round, abs)}
    try:
        return bool(eval(text, {"__builtins__": {}, "math": math, "torch": torch, **functions}, values))
    except (NameError, ArithmeticError, TypeError):
        return False


def _short(value: object) -> str:
    return str(value).removeprefix("torch.")
