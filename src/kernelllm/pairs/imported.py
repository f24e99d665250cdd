"""Rows of other people's sets of pairs, KernelBook's form among them: the module as a problem, the kernel as a candidate to be judged."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from kernelllm.core.text import syntax_tree
from kernelllm.core.types import Candidate

ANSWERS: Final = ("triton_code", "kernel_code", "custom_code", "answer", "completion", "solution")
"""Columns in which others keep the kernel."""
_FENCE: Final = re.compile(r"```(?:python)?\n(.*?)```", re.S)
_MENDS: Final = (
    (r"^from torch\._inductor\.runtime\.triton_heuristics import grid$", """

def grid(*sizes):
    def programs(meta):
        return tuple(-(-n // meta[name]) for n, name in zip(sizes, ("XBLOCK", "YBLOCK", "ZBLOCK")))

    return programs

"""),
    (r"^empty_strided_cuda = .*$", """

def empty_strided_cuda(size, stride, dtype):
    return torch.empty_strided(size, stride, dtype=dtype, device="cuda" if torch.cuda.is_available() else "cpu")

"""),
    (r"^assert_size_stride = .*$", """
def assert_size_stride(x, size, stride):
    assert tuple(x.shape) == tuple(size)
    assert all(n == 1 or a == b for n, a, b in zip(size, x.stride(), stride))

"""),
    (r"^from torch\._inductor\.runtime\.triton_helpers import libdevice$", "from triton.language.extra import libdevice"),
    (r"^from torch\._inductor\.runtime\.triton_helpers import math as tl_math$", "from triton.language import math as tl_math"),
    (r"^from torch\._C import _cuda_getCurrentRawStream as get_raw_stream$\n", ""),
    (r"^ *(?:\w+ = )?get_raw_stream\(\d\)\n", ""),
    (r"with torch\.cuda\._DeviceGuard\(\d\):", "with torch.no_grad():"),
    (r"^ *torch\.cuda\.set_device\(\d\)\n", ""),
)  # fmt: skip
"""Inductor's own wrapper text, as KernelBook has it, made to run with today's torch, on any device. ``grid`` left torch in release 2.8."""


def candidate(row: Mapping[str, Any], model: str, column: str = "") -> Candidate | None:
    """The kernel of a row as a file that defines ``ModelNew``; None where the row has none.

    ``column``: where it is; the first of :data:`ANSWERS` that holds text otherwise. KernelBook calls the class after the row's
    ``entry_point`` with ``New`` at the end.
    """
    text = next((str(row[c]) for c in ([column] if column else ANSWERS) if isinstance(row.get(c), str) and row[c].strip()), "")
    if not text:
        return None
    fenced = [] if _is_python(text) else _FENCE.findall(text)  # code may have a fence in a docstring
    source = (max(fenced, key=len) if fenced else text).rstrip() + "\n"
    for pattern, replacement in _MENDS:
        source = re.sub(pattern, replacement, source, flags=re.M)
    if not re.search(r"^(class|def) ModelNew\b|^ModelNew\b", source, re.M):
        wanted = f"{row.get('entry_point') or 'Model'}New"
        defined = re.findall(r"^class (\w+)\(", source, re.M)
        if defined:
            source += f"\n\nModelNew = {wanted if wanted in defined else defined[-1]}\n"
    return Candidate(source=source, model=model)


def _is_python(text: str) -> bool:
    try:
        syntax_tree(text)
    except (SyntaxError, ValueError):
        return False
    return True


def columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a row says of where it comes from, as columns of a pair."""
    licences = row.get("licenses") or row.get("license") or ()
    told = {name: str(row[name]) for name in ("repo_name", "module_name", "repo_link", "sha") if row.get(name)}
    named = (licences,) if isinstance(licences, str) else tuple(map(str, licences))
    return told | {"licenses": named, "synthetic": bool(row.get("synthetic"))}
