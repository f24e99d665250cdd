"""``nn.TransformerEncoder`` in evaluation mode with a mask of padding: torch packs the rows into a nested tensor, which no trace takes.

The layers see the mask instead. Nested rows come back padded with zeros, ahead of the last normalisation. torch packs them only where the
padding lies behind each row, which values tell.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from kernelllm.compiler.capture.patching import patch


def patched(stack: ExitStack) -> None:
    """Encoders without nested tensors, until ``stack`` closes."""
    encoder: Any = torch.nn.TransformerEncoder
    patch(stack, encoder, "forward", _forward(encoder.forward))


def _forward(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def forward(self: Any, src: Any, mask: Any = None, src_key_padding_mask: Any = None, is_causal: Any = None) -> Any:
        kept: list[Any] = []

        def is_packed(_: Any, keep: Any) -> bool:
            kept.append(keep)
            return False

        norm, self.norm = self.norm, None
        try:
            with ExitStack() as stack:
                patch(stack, torch, "_nested_tensor_from_mask_left_aligned", is_packed)
                out = plain(self, src, mask, src_key_padding_mask, is_causal)
        finally:
            self.norm = norm
        differentiated = torch.is_grad_enabled() and any(p.requires_grad for p in self.layers[0].parameters())
        if kept and mask is None and not differentiated and not torch.is_autocast_enabled():
            (keep,) = kept
            packed = ~(keep[:, 1:] & ~keep[:, :-1]).any()
            out = torch.where((packed & ~keep).unsqueeze(-1), 0.0, out)
        return out if norm is None else norm(out)

    return forward


__all__ = ["patched"]
