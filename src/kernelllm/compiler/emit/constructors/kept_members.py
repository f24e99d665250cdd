"""What a constructor has made stays as the kernels were written for: layers, how tensors lie in memory, and settings such as an epsilon."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Mapping

from kernelllm.compiler.capture.captured import Captured
from kernelllm.compiler.emit import formatting
from kernelllm.compiler.emit.size_names import indexed
from kernelllm.core.text import syntax_tree

FEW_MODES = 4
"""Layers whose own mode is looked at in every call; of more, the model's alone."""

class KeptSettings:
    """The settings that the kernels of a file hold, by class: numbers, texts and flags that the constructor sets."""

    def __init__(self, captured: Captured, source: str, constructor: ast.FunctionDef | None, own: Collection[str]) -> None:
        """``source``: the problem's. ``own``: classes of the problem that the file has."""
        made = ast.unparse(constructor) if constructor else ""
        followed = {s.name.split(".")[-1] for size in captured.sizes for s in size.sources if s.kind == "module"}
        self._later = _read_later(source)
        self.kinds: dict[str, list[str]] = {}
        """What is compared of the layers of a class, as Python."""
        taken = re.search(r"self\._(layers|settings)\b", source) is not None
        self._layers, self._settings = ("_kept_layers", "_kept_settings") if taken else ("_layers", "_settings")
        for (name, is_torch_s), attributes in captured.settings.items():
            if is_torch_s and re.search(rf"\b{name}\b", source if own else made):
                self.kinds[f"torch.nn.{name}"] = list(attributes)
            elif not is_torch_s and own and (name in own or not name):
                read = [t for t in attributes if _attribute(t) not in followed and self._reads(t, source)]
                self.kinds |= {name or "ModelNew": read} if read else {}

    def _reads(self, text: str, source: str) -> bool:
        """Whether the problem reads it; a configuration's field, behind the constructor."""
        if text.count(".") == 1:
            return re.search(rf"\.{_attribute(text)}\b(?! *=[^=])", source) is not None
        return _attribute(text) in self._later

    def function(self) -> str:
        """The function of the file that reads them off layers, which are sorted by class."""
        lists = [f"[({_tuple(texts)}) for m in layers[{i}]]" for i, texts in enumerate(self.kinds.values())]
        return "\n".join([
            "def settings_of(layers):", '    """What the kernels hold of layers by class."""',
            *("    " + line for line in formatting.broken(f"return [{', '.join(lists)}]", formatting.WIDTH - 4)),
        ])

    def made(self, name: str) -> list[str]:
        """Statements for the constructor's end. ``name``: that of the function."""
        kinds = f"({', '.join(self.kinds)}{',' if len(self.kinds) == 1 else ''})"
        return [
            f"self.{self._layers} = [[m for m in self.modules() if type(m) is kind] for kind in {kinds}]",
            f"self.{self._settings} = {name}(self.{self._layers})",
        ]

    def asked(self, name: str) -> list[str]:
        """Statements that refuse a call after one was changed."""
        text = "The kernels were written for other settings of the model and its layers"
        return [f"if {name}(self.{self._layers}) != self.{self._settings}:", f'    raise NotImplementedError("{text}")']


def _attribute(text: str) -> str:
    """The attribute that an expression such as ``m.config.eps`` or ``[*m.sides]`` ends with."""
    return re.split(r"\W", text.rstrip("])}"))[-1]


def _read_later(source: str) -> set[str]:
    """Attributes that the functions of a text read, but for constructors."""
    functions = [n for n in ast.walk(syntax_tree(source)) if isinstance(n, ast.FunctionDef) and n.name not in ("__init__", "__post_init__")]
    nodes = (n for function in functions for n in ast.walk(function))
    return {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load)}


def _tuple(parts: Iterable[str]) -> str:
    texts = list(parts)
    return ", ".join(texts) if len(texts) > 1 else f"{texts[0]},"


def own_modes(modes: Mapping[str, bool], states: list[str]) -> list[str]:
    """Questions whether a layer is in another mode than it was, where some are in each: of a few layers, or of one in each mode."""
    there = {p: training for p, training in modes.items() if any(s.startswith(f"{p}.") for s in states)}
    first = {training: p for p, training in reversed(there.items())}
    chosen = there if len(there) <= 2 * FEW_MODES else {p: training for training, p in first.items()}
    return [f"{'not ' if training else ''}self.{indexed(p)}.training" for p, training in chosen.items()] if len(first) == 2 else []
