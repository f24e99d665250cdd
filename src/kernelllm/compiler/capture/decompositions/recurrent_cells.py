"""Cells of recurrent layers by products and elementwise operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F


def _lstm_cell(_: Any, x: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """As torch's documentation of LSTMCell; ATen's cells pin their sizes to numbers."""
    h, c = hx
    i, f, g, o = (F.linear(x, w_ih, b_ih) + F.linear(h, w_hh, b_hh)).chunk(4, 1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def _gru_cell(_: Any, x: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """As torch's documentation of GRUCell."""
    (r, z, n), (h_r, h_z, h_n) = F.linear(x, w_ih, b_ih).chunk(3, 1), F.linear(hx, w_hh, b_hh).chunk(3, 1)
    r, z = torch.sigmoid(r + h_r), torch.sigmoid(z + h_z)
    n = torch.tanh(n + r * h_n)
    return (hx - n) * z + n


def _rnn_cell(act: Callable[..., Any]) -> Callable[..., Any]:
    def rule(_: Any, x: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
        return act(F.linear(x, w_ih, b_ih) + F.linear(hx, w_hh, b_hh))

    return rule


CELLS = {"lstm_cell": _lstm_cell, "gru_cell": _gru_cell, "rnn_tanh_cell": _rnn_cell(torch.tanh), "rnn_relu_cell": _rnn_cell(torch.relu)}
__all__ = ["CELLS"]
