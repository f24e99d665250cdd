"""Attention within each example of a batch of packed rows, by torch's FlashAttention: no mask, and no work across examples."""

from __future__ import annotations

from typing import Any, Final

import torch

from kernelllm.models.extras import need

NAME: Final = "packed_rows"
"""As transformers knows it, which looks for packages behind a name with "flash".

It wants half precision, a GPU, and ``example_starts`` (see :class:`kernelllm.train.examples.Collator`)."""


def chosen(attention: str, dtype: torch.dtype) -> str:
    """What ``auto`` means here; any other name stays as it is."""
    if attention != "auto":
        return attention
    if dtype is torch.float32 or not torch.cuda.is_available():
        return "sdpa"
    need("transformers", "train").AttentionInterface.register(NAME, attend)
    return NAME


def attend(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: object, scaling: float | None = None,
    *, example_starts: torch.Tensor, **_: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """[batch, heads, length, size] to [batch, length, heads, size]. The first call of a batch is as long as any example can be."""
    batch, heads, length, _size = query.shape
    shared = heads // key.shape[1]
    key, value = (t.repeat_interleave(shared, 1) if shared > 1 else t for t in (key, value))
    flat = [t.transpose(1, 2).reshape(batch * length, heads, -1).to(torch.bfloat16) for t in (query, key, value)]
    made = torch.ops.aten._flash_attention_forward(*flat, example_starts, example_starts, length, length, 0.0, True, False, scale=scaling)[
        0
    ]
    return made.view(batch, length, heads, -1).to(value.dtype), None
