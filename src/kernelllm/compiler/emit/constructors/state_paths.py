"""Paths of layers, parameters and buffers (``self.blocks[0].norm.weight``), as a file's text spells them.

They are looked up in little time: a network has many, and its kernels wait for none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

NAME: Final = "state_at"
TEXT: Final = '''
def state_at(layer, path, name):
    """The parameter or buffer of a layer below, in a tenth of the time that nn.Module takes for its attributes."""
    for part in path.split("."):
        layer = layer._modules[part]
    return layer._parameters[name] if name in layer._parameters else layer._buffers[name]
'''


def looked_up(lines: Sequence[str], states: Iterable[tuple[str, str]]) -> list[str]:
    """The statements with calls of ``state_at`` for what is below a layer. ``states``: text and dotted name of each."""
    below = {text: name.rpartition(".") for text, name in states if "." in name and re.sub(r"\[(\d+)\]", r".\1", text) == f"self.{name}"}
    if not below:
        return list(lines)
    found = re.compile(rf"\b({'|'.join(map(re.escape, sorted(below, key=len, reverse=True)))})(?!\w)")
    return [found.sub(lambda m: f'{NAME}(self, "{below[m[1]][0]}", "{below[m[1]][2]}")', line) for line in lines]


def with_python_paths(text: str, names: dict[str, str]) -> str:
    """The text with members that no index reaches (``Captured.digits``) as Python takes it; what is further below comes first."""
    for name in sorted(names, key=len, reverse=True):
        text = re.sub(rf"(?<![\w.]){re.escape(name)}", names[name].replace("\\", r"\\"), text)
    return text
