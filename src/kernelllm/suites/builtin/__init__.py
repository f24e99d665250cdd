"""``builtin``: problems written for this project, one file each, in twelve operator families that are small enough for a CPU.

``builtin`` is all of these, ``builtin/softmax`` one family, ``builtin/softmax/causal`` one problem. ``builtin/real`` is a family that is
asked for by its name: parts of today's models at the sizes that they run at, to measure with on a GPU. Problems whose names end in
``backward`` return gradients: their ``forward`` takes the gradient of the output as an input, or computes a loss, and returns the gradients
of inputs and parameters beside the output, so that they are judged like any other output.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path

from kernelllm import __version__
from kernelllm.core.errors import UsageError
from kernelllm.core.types import Problem
from kernelllm.suites import contract

ROOT = Path(__file__).parent / "problems"
_DTYPES = {"bf16": "bfloat16", "fp16": "float16"}


class BuiltinSuite(contract.Suite):
    """The problems that come with kernelllm. Raises UsageError for a family or problem that is not among them."""

    name = "builtin"
    summary = "problems that come with kernelllm: builtin, builtin/softmax, builtin/activation/mish, builtin/real"
    version = __version__

    def __init__(self, selection: str = "") -> None:
        known = sorted((f.relative_to(ROOT).with_suffix("").as_posix() for f in ROOT.glob("*/*.py")), key=contract.natural)
        wanted = selection.strip("/").removesuffix(".py")
        small = [name for name in known if not name.startswith("real/")]
        self.names = [name for name in known if name == wanted or name.startswith(wanted + "/")] if wanted else small
        if not self.names:
            choices = sorted({name.partition("/")[0] for name in known}) + known
            near = difflib.get_close_matches(wanted, choices, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            families = ", ".join(sorted({name.partition("/")[0] for name in known}))
            raise UsageError(f"The builtin suite has no {wanted!r}.{hint}", fix=f"Its families are {families}.")

    def problems(self) -> Iterator[Problem]:
        """The problems by family and name, tagged with the family, the dtype and, for gradients, ``backward``."""
        for name in self.names:
            family, _, short = name.partition("/")
            source = (ROOT / f"{name}.py").read_text(encoding="utf-8")
            dtype = next((tag for tag, kind in _DTYPES.items() if f"torch.{kind}" in source), "fp32")
            tags = ("builtin", family, dtype, *(["backward"] if short.endswith("backward") else []))
            yield Problem(name=name, source=source, origin=f"builtin:{name}", tags=tags)
