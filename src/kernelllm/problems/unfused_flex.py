"""``flex_attention`` computed by plain operators: as it is, it calls torch's compiler, which modes that watch operators refuse.

Names inside torch's module are replaced, not ``flex_attention`` itself: a problem has imported that already, or has its own
``torch.compile(flex_attention)``. What is timed runs outside of these contexts, and is torch's kernel.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_MODULE = "torch.nn.attention.flex_attention"
Operator = Callable[..., tuple[Any, Any, Any]]
"""Takes the arguments of torch's operator; returns the output, the scores' logsumexp and their largest, both over log(2)."""


_lock = threading.Lock()
_real: dict[str, Any] = {}
_open: list[tuple[int, dict[str, Any]]] = []
"""The thread of each context that is open, and what is in the place of torch's names in it; the innermost last."""
_stances: list[Any] = []
"""What keeps torch's compiler from its work, until the last context closes."""


@contextlib.contextmanager
def unfused_flex(attention: Operator | None = None) -> Iterator[None]:
    """While open, ``flex_attention`` is ``attention``, torch's own definition where there is none; a block mask is its function alone.

    Does nothing where nobody has imported it. For callers that hold the TORCH lock, as all do that run problem code. A thread that was
    given up may leave later than those around it, or never (:func:`given_up`): torch's names are back once all others have left.
    """
    module = sys.modules.get(_MODULE)
    if module is None:
        yield
        return
    mine = _replacements(module, attention or _definition)
    with _lock:
        if not _open:
            _real.update({name: getattr(module, name) for name in mine})
        _open.append((threading.get_ident(), mine))
        vars(module).update(mine)
    try:
        with _left_uncompiled() if "torch._dynamo" in sys.modules else contextlib.nullcontext():
            yield
    finally:
        _closed(lambda one: one[1] is mine)


def given_up(thread: int) -> None:
    """What a thread has open is closed, since it may never come back; torch's compiler would work for nobody until then."""
    _closed(lambda one: one[0] == thread)


def _closed(which: Callable[[tuple[int, dict[str, Any]]], bool]) -> None:
    module = sys.modules.get(_MODULE)
    if module is None:
        return
    with _lock:
        if not _open:
            return
        _open[:] = [one for one in _open if not which(one)]
        vars(module).update(_open[-1][1] if _open else _real)
        while not _open and _stances:
            _stances.pop().__exit__(None, None, None)


def _replacements(module: Any, attention: Operator) -> dict[str, Any]:
    def sparse(masks: tuple[torch.Tensor, None], mask_mod: Any, lengths: Any, *block: int) -> Any:
        counts, size = masks[0], block or (module._DEFAULT_SPARSE_BLOCK_SIZE,) * 2
        return module.BlockMask(lengths, counts, counts.unsqueeze(-1), None, None, None, None, None, None, size, mask_mod)

    return {
        "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG": True,  # the operator is called as it is
        "setup_compilation_env": contextlib.nullcontext,
        "_validate_device": lambda *_: None,  # torch's kernel has no backward on a CPU
        "_apply_kernel_options": _wanted,
        "flex_attention_hop": attention,
        "create_mask": _no_mask,
        "_convert_mask_to_block_mask": lambda mask, **_: (mask, None),
        "_create_sparse_block_from_block_mask": sparse,
    }


def _definition(*args: Any, **kwargs: Any) -> tuple[Any, Any, Any]:
    from torch._higher_order_ops.flex_attention import math_attention

    if args[6]["wanted"] and not args[0].numel():
        raise ValueError("flex_attention gives None for sums of no rows")  # no example for a kernel: such sizes are not tried
    return math_attention(*args, **kwargs)


def _wanted(query: Any, key: Any, value: Any, sums: bool, _: Any, more: Any) -> dict[str, Any]:
    """In place of options of torch's kernel: whether there are results beside the output."""
    return {"wanted": bool(sums or more is not None)}


def _no_mask(mask_mod: Any, batch: Any, heads: Any, rows: Any, columns: Any, device: Any = None) -> torch.Tensor:
    """Which blocks a mask leaves empty changes no result: a tensor that has its batch, heads and device alone."""
    import torch

    return torch.zeros(batch or 1, heads or 1, 1, dtype=torch.int32, device=device)


@contextlib.contextmanager
def _left_uncompiled() -> Iterator[None]:
    """What ``torch.compile`` gave (the problem may compile the function itself) runs as it is, also while it is traced."""
    import torch
    from torch._C._dynamo.eval_frame import get_eval_frame_callback

    if get_eval_frame_callback() not in (None, False):  # the compiler itself has called us: it takes no other stance
        yield
        return
    with _lock:
        if not _stances:
            _stances.append(torch.compiler.set_stance("force_eager"))
    with torch._dynamo.config.patch(error_on_nested_fx_trace=False):
        yield


__all__ = ["Operator", "unfused_flex"]
