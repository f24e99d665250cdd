"""All counters (batches that a norm has seen, for example) are incremented by one launch.

Inductor launches a kernel for each; a network of 50 normalisations spends 4 to 5 % of its time on them on an H200.
"""

from __future__ import annotations

import ast
import re

from kernelllm.compiler.inductor.kernel_source import Kernel
from kernelllm.compiler.inductor.wrapper_lines import Assign, HostStep, Launch, Wrapper
from kernelllm.core.text import syntax_tree

_FEWEST = 4
_RAISED = re.compile(
    r"(\w+) = tl\.load\((\w+) \+ 0\)\n(?:\w+ = tl\.broadcast_to\(\1, \[XBLOCK\]\)\n)?"
    r"(\w+) = tl\.full\(\[1\], 1, tl\.int64\)\n(\w+) = \w+ \+ \3\ntl\.store\((\w+) \+ .*, \4, None\)"
)
"""The statements of a kernel that adds 1 to an integer."""


def combine(items: list[HostStep], wrapper: Wrapper) -> list[HostStep]:
    """The steps of a forward with one for all counters, where the first of them was."""
    raising = [i for i in items if isinstance(i, Launch) and _raises(i, wrapper.kernels[i.kernel])]
    counters = [ast.unparse(i.arguments[_pointers(i)[0]]) for i in raising]
    if len(raising) < _FEWEST or len({*counters}) < len(counters):
        return items
    one = Assign("", syntax_tree(f"torch._foreach_add_([{', '.join(counters)}], 1)", mode="eval").body)
    return [one if i is raising[0] else i for i in items if i is raising[0] or i not in raising]


def _pointers(launch: Launch) -> list[str]:
    return [name for name in launch.arguments if "_ptr" in name]


def _raises(launch: Launch, kernel: Kernel) -> bool:
    """Whether a launch does nothing but add 1 to an integer in its place."""
    pointers = _pointers(launch)
    if len(pointers) != 2 or len({ast.unparse(launch.arguments[p]) for p in pointers}) != 1:
        return False
    text = "\n".join(ast.unparse(s) for s in kernel.function.body[-5:])
    found = _RAISED.search(text)
    integers = all(kernel.signature.get(p) == "*i64" for p in pointers)
    return integers and found is not None and {found[2], found[5]} == set(pointers) and ast.unparse(launch.arguments["xnumel"]) == "1"


__all__ = ["combine"]
