"""Where problems come from, one file a source.

Start with :func:`open_suite` below; ``contract.py`` is the interface.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kernelllm.core.errors import UsageError

if TYPE_CHECKING:
    from kernelllm.suites.contract import Suite


def open_suite(spec: str) -> Suite:
    """The suite behind ``name`` or ``name/rest``, or behind the path of a file or folder.

    ``kernelbench/level1``, ``builtin``, ``folder/PATH``, ``hf/DATASET``, ``examples``, ``examples/softmax.py``. A registered name wins
    over a path of the same name. Raises UsageError for a path that is not there, UnknownName for a name that is neither, and what the
    suite itself raises.
    """
    from kernelllm.core import registry

    if not spec.strip():
        raise UsageError("The suite's name is empty.", fix="For example: builtin, kernelbench/level1, or a folder.")
    name, _, rest = spec.partition("/")
    if "?" in name:  # options without a selection: tritonbench?cases=first
        name, rest = spec[: spec.index("?")], spec[spec.index("?") :]
    if name not in registry.names("suites"):
        if Path(spec).is_dir():
            name, rest = "folder", spec
        elif Path(spec).exists() or ".py" in spec:
            name, rest = "file", spec
        elif name in ("", ".", "..", "~"):
            raise UsageError(f"There is no folder {spec}.", fix="Check the path, or name a suite: kernelllm list suites")
    suite: Suite = registry.resolve("suites", name)(*([rest] if rest else []))
    return suite
