"""A Llama of transformers run one token a row at a time: keys and values in buffers, a few large products, CUDA graphs on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

_MORE: Final = 256
"""Tokens by which the buffers grow; a CUDA graph serves so many steps."""
_BACKENDS: Final = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""cuDNN's is left out: it plans anew for each shape."""
_EXACT: Final = 1e-3
"""How far from a whole number a weight over its row's scale may be; those of other weights are up to a half."""
_PREFILL: Final = 64
"""Prompts that are read at once."""


class _Matrix(NamedTuple):
    """What rows are multiplied with. A step reads it as it is stored, where it is in int8: a quarter of the memory, whose reading is most
    of a step's time on a CPU."""

    weight: torch.Tensor
    int8: torch.Tensor | None = None
    scale: torch.Tensor | None = None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """[rows, length, input] to [rows, length, output]."""
        if self.int8 is None or self.scale is None or x.shape[1] > 1:
            return F.linear(x, self.weight)
        ones = x.new_ones(len(self.int8), dtype=torch.bfloat16)  # scales would be rounded to this type, too
        made = torch._weight_int8pack_mm(x[:, 0].bfloat16().contiguous(), self.int8, ones)
        return (made.to(x.dtype) * self.scale)[:, None]


class _Layer(NamedTuple):
    before: torch.Tensor
    qkv: _Matrix
    out: _Matrix
    between: torch.Tensor
    up: _Matrix
    down: _Matrix


def _as_stored(weight: torch.Tensor) -> _Matrix:
    """With its int8 numbers and a scale a row where they are all that it consists of, as :mod:`.small_weights` has them."""
    scale = weight.abs().amax(1, keepdim=True).clamp_min(1e-12) / 127
    parts = weight / scale
    whole = parts.round()
    if not hasattr(torch, "_weight_int8pack_mm") or float((parts - whole).abs().max()) > _EXACT:
        return _Matrix(weight)
    return _Matrix(weight, whole.to(torch.int8), scale[:, 0])


class LlamaWeights:
    """The weights of a model of transformers, those that are multiplied with the same input side by side.

    ``as_stored``: on a CPU those that come from int8 are multiplied as such, with inputs in bfloat16.
    """

    def __init__(self, model: Any, dtype: torch.dtype, *, as_stored: bool = False) -> None:
        as_stored = as_stored and model.lm_head.weight.device.type == "cpu" and dtype is torch.float32

        def joined(*linears: Any) -> _Matrix:
            weight = torch.cat([one.weight.detach() for one in linears]).to(dtype)
            return _as_stored(weight) if as_stored else _Matrix(weight)

        config = model.config
        self.dtype, self.device = dtype, model.lm_head.weight.device
        self.eps = config.rms_norm_eps
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.size = config.hidden_size // self.heads
        self.longest = config.max_position_embeddings
        self.embedding = model.model.embed_tokens.weight.detach().to(dtype)
        self.head = model.lm_head.weight.detach().to(dtype)
        self.norm = model.model.norm.weight.detach().to(dtype)
        self.layers = [
            _Layer(
                one.input_layernorm.weight.detach().to(dtype), joined(one.self_attn.q_proj, one.self_attn.k_proj, one.self_attn.v_proj),
                joined(one.self_attn.o_proj), one.post_attention_layernorm.weight.detach().to(dtype),
                joined(one.mlp.gate_proj, one.mlp.up_proj), joined(one.mlp.down_proj),
            )
            for one in model.model.layers
        ]  # fmt: skip
        positions = torch.arange(self.longest, device=self.device)[None]
        self.cos, self.sin = (t[0].to(dtype) for t in model.model.rotary_emb(self.embedding.float()[:1, None], positions))

    def bytes_a_token(self) -> int:
        """Keys and values of one token."""
        numbers: int = 2 * len(self.layers) * self.kv_heads * self.size
        return numbers * self.dtype.itemsize

    def hidden(self, ids: torch.Tensor, positions: torch.Tensor, attend: Callable[..., torch.Tensor]) -> torch.Tensor:
        """[rows, length] to [rows, length, width]. ``attend(layer, q, k, v)``: heads before length, as attention has them."""
        rows, length = ids.shape
        cos, sin = self.cos[positions][:, None], self.sin[positions][:, None]
        kv = self.kv_heads * self.size
        x = F.embedding(ids, self.embedding)
        for number, layer in enumerate(self.layers):
            made = layer.qkv(F.rms_norm(x, x.shape[-1:], layer.before, self.eps))
            q, k, v = (part.view(rows, length, -1, self.size).transpose(1, 2) for part in made.split([self.heads * self.size, kv, kv], -1))
            seen = attend(number, _turned(q, cos, sin), _turned(k, cos, sin), v)
            x = x + layer.out(seen.transpose(1, 2).reshape(rows, length, -1))
            gate, up = layer.up(F.rms_norm(x, x.shape[-1:], layer.between, self.eps)).chunk(2, -1)
            x = x + layer.down(F.silu(gate) * up)
        return F.rms_norm(x, x.shape[-1:], self.norm, self.eps)


def _turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary positions."""
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin


class Steps:
    """Rows that are continued together. ``logits`` are those behind each row's last token."""

    def __init__(self, weights: LlamaWeights, prompts: Sequence[Sequence[int]]) -> None:
        self.weights = weights
        at = sorted({tuple(p) for p in prompts}, key=lambda p: (len(p), p))
        numbers = {prompt: number for number, prompt in enumerate(at)}
        parts = [self._read(at[i : i + _PREFILL]) for i in range(0, len(at), _PREFILL)]
        order = torch.tensor([numbers[tuple(p)] for p in prompts], device=weights.device)
        self.length = torch.tensor([len(p) for p in prompts], device=weights.device)
        self.logits = torch.cat([logits for logits, _ in parts])[order]
        self.room = -(-(max(map(len, prompts)) + 1) // _MORE) * _MORE
        self.cache = [[self._widened([part[i][j] for _, part in parts], order) for j in range(2)] for i in range(len(weights.layers))]
        self.used = max(map(len, prompts))
        self._graph: Any = None

    def keep(self, index: Sequence[int]) -> None:
        """Go on with these rows alone."""
        chosen = torch.tensor(list(index), device=self.weights.device)
        self.length, self.logits, self._graph = self.length[chosen], self.logits[chosen], None
        for layer in self.cache:
            layer[:] = [tensor[chosen] for tensor in layer]

    def back(self, lengths: Mapping[int, int]) -> None:
        """Let rows be so short again; the next token overwrites what came behind."""
        if lengths:
            places = torch.tensor(list(lengths), device=self.weights.device)
            self.length[places] = torch.tensor(list(lengths.values()), device=self.weights.device)

    def step(self, tokens: Sequence[int]) -> None:
        """Append a token to each row."""
        if self.used == self.room:
            self.room, self._graph = self.room + _MORE, None
            for layer in self.cache:
                layer[:] = [F.pad(tensor, (0, 0, 0, _MORE)) for tensor in layer]
        self.used += 1
        given = torch.tensor(list(tokens), device=self.weights.device)
        if self.weights.device.type != "cuda":
            self.logits = self._next(given)
            self.length += 1
            return
        if self._graph is None:
            self._capture(given)
        graph, into, out = self._graph
        into.copy_(given)
        graph.replay()
        self.logits = out

    def _read(self, prompts: Sequence[tuple[int, ...]]) -> tuple[torch.Tensor, list[tuple[torch.Tensor, torch.Tensor]]]:
        """(logits behind each prompt, keys and values of each layer). What stands behind a shorter prompt is overwritten later."""
        device = self.weights.device
        longest = max(map(len, prompts))
        ids = torch.tensor([[*p, *[0] * (longest - len(p))] for p in prompts], device=device)
        kept: list[tuple[torch.Tensor, torch.Tensor]] = []

        def attend(_: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            kept.append((k, v))
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

        hidden = self.weights.hidden(ids, torch.arange(longest, device=device).expand(len(prompts), -1), attend)
        last = torch.tensor([len(p) - 1 for p in prompts], device=device)
        return F.linear(hidden[torch.arange(len(prompts), device=device), last], self.weights.head), kept

    def _widened(self, parts: Sequence[torch.Tensor], order: torch.Tensor) -> torch.Tensor:
        """Keys (or values) of the different prompts as those of the rows, with room."""
        whole = parts[0].new_zeros(sum(len(p) for p in parts), parts[0].shape[1], self.room, parts[0].shape[3])
        at = 0
        for part in parts:
            whole[at : at + len(part), :, : part.shape[2]] = part
            at += len(part)
        return whole[order]

    def _next(self, tokens: torch.Tensor) -> torch.Tensor:
        rows = torch.arange(len(tokens), device=tokens.device)
        seen = (torch.arange(self.room, device=tokens.device) <= self.length[:, None])[:, None, None]
        shared = self.weights.heads // self.weights.kv_heads

        def attend(number: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            keys, values = self.cache[number]
            keys[rows, :, self.length] = k[:, :, 0]
            values[rows, :, self.length] = v[:, :, 0]
            grouped = q.view(len(tokens), -1, shared, q.shape[-1])  # heads that share keys look at once
            with sdpa_kernel(_BACKENDS):
                return F.scaled_dot_product_attention(grouped, keys, values, seen).reshape(q.shape)

        places = self.length.clamp_max(self.weights.longest - 1)  # rows that have ended go on beside the others
        return F.linear(self.weights.hidden(tokens[:, None], places[:, None], attend)[:, 0], self.weights.head)

    def _capture(self, tokens: torch.Tensor) -> None:
        """One step as a CUDA graph. It writes a key again at its own place, so that trying it does no harm."""
        into = tokens.clone()
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            self._next(into)
        torch.cuda.current_stream().wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = self._next(into)
            self.length += 1
        self._graph = graph, into, out
