"""Values as text: tensors by shape, dtype and range, plain values, containers, modules by their constructors, settings as namespaces."""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from kernelllm.core.errors import UsageError
from kernelllm.pairs.isolate import Isolated, repr_tuple

NO_RANDOM: Final = "drop"
"""Settings with this in their names are 0 in a text: what comes out must not be chance."""
_DTYPES: Final = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float64: "float64", torch.complex64: "complex64"}


@dataclass(frozen=True)
class Described:
    """A tensor (shape, dtype, range of whole numbers), or an object that cannot be told."""

    kind: str
    shape: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32
    least: int = 0
    most: int = 8

    def text(self) -> str:
        """The expression that draws one like it. Raises UsageError for an object."""
        if self.kind == "object":
            raise UsageError("its inputs are objects")
        sizes = ", ".join(map(str, self.shape)) if self.shape else "()"
        if self.dtype == torch.bool:
            return f"torch.rand({sizes}) > 0.5"
        if self.dtype in _DTYPES:
            return f"torch.randn({sizes}, dtype=torch.{_DTYPES[self.dtype]})"
        if self.dtype.is_floating_point:
            return f"torch.randn({sizes})"
        shape = f"({sizes},)" if len(self.shape) == 1 else f"({sizes})" if self.shape else "()"
        kind = "" if self.dtype == torch.int64 else f", dtype={self.dtype}"
        return f"torch.randint({self.least}, {max(self.most, self.least) + 1}, {shape}{kind})"


def described(value: Any) -> Any:
    """A value of a call: tensors and containers described, plain values as they are."""
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.is_nested or value.numel() > 2**24:
            return Described("object")
        least, most = 0, 7
        whole = not (value.dtype.is_floating_point or value.dtype.is_complex or value.dtype == torch.bool)
        if whole and type(value) is torch.Tensor and value.device.type == "cpu" and value.numel():
            least, most = int(value.min()), int(value.max())
        return Described("tensor", tuple(map(int, value.shape)), value.dtype, min(least, 0), most)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if type(value) in (tuple, list, torch.Size):
        made = [described(v) for v in value]
        return made if type(value) is list else tuple(made)
    if type(value) is dict and all(isinstance(k, str) for k in value):
        return {k: described(v) for k, v in value.items()}
    return Described("object")


def input_text(value: Any) -> str:
    """The expression for an input. Raises UsageError for objects."""
    if isinstance(value, Described):
        return value.text()
    if isinstance(value, list):
        return "[{}]".format(", ".join(map(input_text, value)))
    if isinstance(value, tuple):
        return repr_tuple(map(input_text, value))
    if isinstance(value, dict):
        return "{{{}}}".format(", ".join(f"{k!r}: {input_text(v)}" for k, v in value.items()))
    return repr(value)


class Constructor:
    """Arguments of a constructor as expressions, whatever they need added to a text."""

    def __init__(self, into: Isolated, built: Callable[[torch.nn.Module], Any], change: Callable[[int], int]) -> None:
        self._into, self._built, self._change = into, built, change
        self._depth = 0

    def of(self, cls: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[str]:
        """The arguments of one call. Raises UsageError for what cannot be told."""
        try:
            names = [p.name for p in list(inspect.signature(cls.__init__).parameters.values())[1:]]
        except (TypeError, ValueError):
            names = []
        told = [self.text(v, names[i] if i < len(names) else "") for i, v in enumerate(args)]
        told += [f"{k}={self.text(v, k)}" for k, v in kwargs.items()]
        return told

    def text(self, value: Any, name: str = "") -> str:
        """The expression for one value. Raises UsageError."""
        if NO_RANDOM in name and isinstance(value, int | float):
            return "0.0"
        if isinstance(value, bool) or value is None:
            return repr(value)
        if isinstance(value, enum.Enum):
            return f"{self._into.add(type(value))}.{value.name}"
        if isinstance(value, int):
            return repr(self._change(int(value)))
        if isinstance(value, str):
            return repr(str(value))
        if isinstance(value, float):
            return repr(value) if abs(value) < 1e300 else f"float('{value}')"
        if isinstance(value, torch.dtype | torch.Size):
            return repr(value) if isinstance(value, torch.dtype) else repr(tuple(value))
        if isinstance(value, torch.device):
            return "None"
        if type(value) in (list, tuple, set):
            told = [self.text(v) for v in value]
            return repr_tuple(told) if isinstance(value, tuple) else "[{}]".format(", ".join(told))
        if isinstance(value, dict) and type(value).__name__ in ("dict", "OrderedDict"):
            return "{{{}}}".format(", ".join(f"{k!r}: {self.text(v, str(k))}" for k, v in value.items()))
        return self._object(value)

    def _object(self, value: Any) -> str:
        if isinstance(value, functools.partial):
            kwargs = [f"{k}={self.text(v, k)}" for k, v in value.keywords.items()]
            told = [self.text(value.func), *map(self.text, value.args), *kwargs]
            return f"{self._into.add(functools.partial)}({', '.join(told)})"
        if isinstance(value, type) or inspect.isroutine(value):
            return self._into.add(value)
        if isinstance(value, torch.nn.Module):
            return self._module(value)
        if isinstance(value, torch.Tensor) and value.numel() <= 32 and not value.is_meta and type(value) is torch.Tensor:
            return f"torch.tensor({value.tolist()!r})"
        if hasattr(value, "__dict__") and not callable(value):
            return self._settings(value)
        raise UsageError(f"its constructor takes a {type(value).__name__}")

    def _module(self, module: torch.nn.Module) -> str:
        """A module that was passed to a constructor: built again as it was."""
        found = self._built(module)
        if found is None or self._depth > 4:
            raise UsageError("its constructor takes a module that was not seen being built")
        self._depth += 1
        try:
            told = self.of(type(module), *found)
            return f"{self._into.add(type(module))}({', '.join(told)})"
        finally:
            self._depth -= 1

    def _settings(self, value: Any) -> str:
        """An object that only holds settings: a namespace of those that the text reads. They are known once the text is whole."""
        self._depth += 1
        try:
            if self._depth > 4:
                raise UsageError("its settings hold one another")
            told = []
            for attribute in sorted(self._into.attributes):
                if attribute.startswith("__"):
                    continue
                try:
                    held = getattr(value, attribute)
                except Exception:  # noqa: BLE001 - a property of others raises what it likes
                    continue
                if inspect.isroutine(held) or isinstance(held, type):
                    continue
                try:
                    told.append(f"{attribute}={self.text(held, attribute)}")
                except UsageError:
                    continue
            return f"{self._into.add(_namespace())}({', '.join(told)})"
        finally:
            self._depth -= 1


def _namespace() -> type:
    from types import SimpleNamespace

    return SimpleNamespace


def changed(value: Any, change: Callable[[int], int]) -> Any:
    """Described inputs with other sizes."""
    if isinstance(value, Described):
        return replace(value, shape=tuple(map(change, value.shape)), most=change(value.most))
    if isinstance(value, bool) or not isinstance(value, int | list | tuple | dict):
        return value
    if isinstance(value, int):
        return change(value)
    if isinstance(value, dict):
        return {k: changed(v, change) for k, v in value.items()}
    return type(value)(changed(v, change) for v in value)
