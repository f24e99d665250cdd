"""What a concatenation alone reads is computed in its kernel, also where it is long.

Inductor stores a value of more than 30 operations or 8 reads, whoever reads it. Elementwise kernels compute it in their own loop all
the same; that of a concatenation has other positions, so that the parts (rotated queries and keys of one gradient) would be written and
read once more.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch

from kernelllm.compiler.capture.patching import patch

_PARTS, _OPERATIONS, _READS = 4, 100, 16
"""Parts of a concatenation, and what one of them may compute and load: their sum is one kernel."""


def computed_there(stack: ExitStack) -> None:
    """Until ``stack`` closes, a part of a few that nothing else reads is not stored for its length."""
    from torch._inductor import ir
    from torch._inductor.virtualized import V

    exceeded = ir.StorageBox.has_exceeded_max_reads

    def stored(box: Any) -> bool:
        return bool(exceeded(box)) and not (_joined_alone(V.get_current_node()) and _short(box))

    patch(stack, ir.StorageBox, "has_exceeded_max_reads", stored)


def _joined_alone(node: Any) -> bool:
    users = list(getattr(node, "users", ()))
    return len(users) == 1 and users[0].target is torch.ops.aten.cat.default and len(users[0].args[0]) <= _PARTS


def _short(box: Any) -> bool:
    return bool(box.num_reads() <= _READS and box.data.inner_fn_opcount().num_ops <= _OPERATIONS)
