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
"""Layers whose own mode is looked at by their names; of more, that of norms in a list."""
_NORMS, _MODES = "_norms_with_statistics", "_modes_of_norms"

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


class EachMode:
    """The question whether a layer is in another mode than it was: a norm may be frozen in a model that trains."""

    def __init__(self, modes: Mapping[str, bool], states: Collection[str], training: bool) -> None:
        """``modes``: of the layers whose mode decides, by path. ``states``: names of parameters and buffers. ``training``: the model's."""
        self._modes, self._training = modes, training
        self._there = {p: mode for p, mode in modes.items() if p and any(s.startswith(f"{p}.") for s in states)}
        """Those that the file has."""
        self._normed = [p for p in self._there if f"{p}.running_mean" in states]
        self._mixed = len(set(self._there.values())) == 2 and "" not in modes
        self.told = "The kernels compute what each layer does in its mode"
        if not self._mixed:
            mode = modes[""] if "" in modes else next(iter(modes.values()), training)
            self.told = f"The kernels compute what the module does after {'train()' if mode else 'eval()'}"

    def made(self) -> list[str]:
        """Statements for the constructor's end."""
        if not self._many():
            return []
        lines = [f"self.{_NORMS} = [m for m in self.modules() if m._buffers.get(\"running_mean\") is not None]"]
        return [*lines, f"self.{_MODES} = [m.training for m in self.{_NORMS}]"] if self._mixed else lines

    def other(self) -> str:
        """The question, as Python."""
        if self._many() and self._mixed:
            return f"[m.training for m in self.{_NORMS}] != self.{_MODES}"
        asked = self._asked()
        trains, evaluated = ([text for text, mode in asked.items() if mode is wanted] for wanted in (True, False))
        parts = [f"not {trains[0]}" if len(trains) == 1 else f"not ({' and '.join(trains)})"] if trains else []
        return " or ".join([*parts, *evaluated])

    def _asked(self) -> dict[str, bool]:
        """What is true in train() mode, to what it was."""
        named = {f"self.{indexed(p)}.training": mode for p, mode in self._there.items()}
        if self._mixed:
            first = {mode: text for text, mode in reversed(named.items())}
            return named if len(named) <= 2 * FEW_MODES else {text: mode for mode, text in first.items()}
        asked: dict[str, bool] = {}
        if "" in self._modes:
            asked["self.training"] = self._modes[""]
        elif set(self._modes.values()) == {self._training} and not (len(named) == len(self._modes) and len(named) <= FEW_MODES):
            asked["self.training"] = self._training
        if self._many():
            mode = self._modes[self._normed[0]]
            asked[f"{'all' if mode else 'any'}([m.training for m in self.{_NORMS}])"] = mode
        elif len(named) <= FEW_MODES:
            asked |= named
        path, mode = next(iter(self._modes.items()))
        return asked or {f"self.{indexed(path)}.training": mode}

    def _many(self) -> bool:
        """Whether norms are looked at that the constructor keeps in a list."""
        few = len(self._there) <= (2 * FEW_MODES if self._mixed else FEW_MODES)
        alike = len({self._modes[p] for p in self._normed}) == (2 if self._mixed else 1)
        return bool(self._normed) and alike and not few
