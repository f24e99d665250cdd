"""Functions of torch that read sizes as numbers in C++, and so would pin each to its own: by their definitions where a size is a symbol."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import torch

from kernelllm.compiler.capture.decompositions import constant_vectors, sliding_windows
from kernelllm.compiler.capture.least_sizes import at_least
from kernelllm.compiler.capture.patching import patch


def _symbolic(*tensors: Any) -> bool:
    return any(isinstance(n, torch.SymInt) for t in tensors if isinstance(t, torch.Tensor) for n in t.shape)


def gradient(_: Any, x: Any, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> Any:
    """Differences of neighbours; at both ends of one or two of them."""
    dims = list(range(x.dim())) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    steps = [spacing] * len(dims) if isinstance(spacing, int | float) else list(spacing)
    if not _symbolic(x) or not all(isinstance(step, int | float) for step in steps) or edge_order not in (1, 2):
        return NotImplemented

    def along(dim: int, step: float) -> Any:
        size = x.shape[dim]
        at_least(size, edge_order + 1)

        def part(start: Any, length: Any) -> Any:
            return x.narrow(dim, start, length)

        def end(*at: Any) -> Any:
            near, far = part(at[0], 1), part(at[1], 1)
            return far - near if edge_order == 1 else 2 * far - 1.5 * near - 0.5 * part(at[2], 1)

        middle = (part(2, size - 2) - part(0, size - 2)) / (2 * step)
        return torch.cat([end(0, 1, 2) / step, middle, end(size - 1, size - 2, size - 3) / -step], dim)

    return [along(d % x.dim(), step) for d, step in zip(dims, steps, strict=True)]


def kron(_: Any, left: Any, right: Any) -> Any:
    """Each element of the left times the whole of the right."""
    if not _symbolic(left, right):
        return NotImplemented
    rank = max(left.dim(), right.dim())
    one, two = ([1] * (rank - t.dim()) + list(t.shape) for t in (left, right))
    wide = left.reshape([n for size in one for n in (size, 1)]) * right.reshape([n for size in two for n in (1, size)])
    return wide.reshape([a * b for a, b in zip(one, two, strict=True)])


def take_along_dim(_: Any, x: Any, indices: Any, dim: int | None = None) -> Any:
    """A gather; other dimensions of one element are repeated."""
    if not _symbolic(x, indices) or (dim is not None and x.dim() != indices.dim()):
        return NotImplemented
    if dim is None:
        return x.reshape(-1).gather(0, indices.reshape(-1))
    dim %= x.dim()
    shape = [a if isinstance(b, int) and b == 1 else b for a, b in zip(x.shape, indices.shape, strict=True)]
    own = [t.expand([*shape[:dim], t.shape[dim], *shape[dim + 1 :]]) for t in (x, indices)]
    return own[0].gather(dim, own[1])


def vander(_: Any, x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """Products of x with itself, one more in each column."""
    if not _symbolic(x) or not isinstance(N, int) or N < 1:
        return NotImplemented
    columns = [torch.ones_like(x)]
    for _column in range(N - 1):
        columns.append(columns[-1] * x)
    return torch.stack(columns if increasing else columns[::-1], -1)


def multi_dot(_: Any, tensors: Sequence[Any], **others: Any) -> Any:
    """Products in the order that takes the fewest multiplications at the problem's own sizes."""
    if others or not _symbolic(*tensors) or len(tensors) < 3:
        return NotImplemented
    first, last = tensors[0].dim() == 1, tensors[-1].dim() == 1
    chain = [tensors[0].unsqueeze(0) if first else tensors[0], *tensors[1:-1], tensors[-1].unsqueeze(1) if last else tensors[-1]]
    sizes = [n.node.hint if isinstance(n, torch.SymInt) else n for n in (*(t.shape[0] for t in chain), chain[-1].shape[1])]
    best: dict[tuple[int, int], tuple[int, int]] = {(i, i): (0, i) for i in range(len(chain))}
    for length in range(1, len(chain)):
        for i in range(len(chain) - length):
            j = i + length
            best[i, j] = min((best[i, k][0] + best[k + 1, j][0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j))

    def joined(i: int, j: int) -> Any:
        k = best[i, j][1]
        return chain[i] if i == j else joined(i, k) @ joined(k + 1, j)

    out = joined(0, len(chain) - 1)
    out = out.squeeze(0) if first else out
    return out.squeeze(-1) if last else out


def chain_matmul(context: Any, *matrices: Any, **others: Any) -> Any:
    return multi_dot(context, matrices, **others)


def _matrix_norm(x: Any, order: Any, dims: Sequence[int], keepdim: bool) -> Any:
    rows, columns = dims[0] % x.dim(), dims[1] % x.dim()
    if abs(order) == math.inf:
        rows, columns = columns, rows
    sums = x.abs().sum(rows, keepdim=True)
    out = sums.amax(columns, keepdim=True) if order > 0 else sums.amin(columns, keepdim=True)
    return out if keepdim else out.squeeze(dims)


def matrix_norm(_: Any, A: Any, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None) -> Any:
    """The largest or smallest sum of a row or column."""
    if not _symbolic(A) or isinstance(ord, str) or abs(ord) not in (1, math.inf) or dtype is not None:
        return NotImplemented
    return _matrix_norm(A, ord, tuple(dim), keepdim)


def norm(_: Any, A: Any, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, out: Any = None) -> Any:
    dims = (0, 1) if dim is None and A.dim() == 2 else dim
    if ord is None or not isinstance(dims, list | tuple) or len(dims) != 2 or out is not None:
        return NotImplemented
    return matrix_norm(None, A, ord, tuple(dims), keepdim, dtype=dtype)


def _triangle(upper: bool) -> Callable[..., Any]:
    """Positions in a triangle of a square, row by row: the row is a root of how many there are before."""

    def rule(_: Any, row: Any, col: Any, offset: int = 0, **options: Any) -> Any:
        inside = isinstance(offset, int) and (offset >= 0 if upper else offset <= 0)
        if not isinstance(row, torch.SymInt) or not isinstance(col, torch.SymInt) or row.node.expr != col.node.expr or not inside:
            return NotImplemented
        dtype, device = options.get("dtype") or torch.int64, options.get("device")
        side: Any = row - abs(offset)
        at_least(side, 1)
        count = side * (side + 1) // 2
        at: Any = torch.arange(count, device=device)
        at = count - 1 - at if upper else at
        line: Any = ((torch.sqrt(8.0 * at.double() + 1) - 1) / 2).floor().long()
        place: Any = at - line * (line + 1) // 2
        rows, columns = (side - 1 - line, side - 1 + abs(offset) - place) if upper else (line - offset, place)
        return torch.stack([rows, columns]).to(dtype)

    return rule


def _frequencies(whole: bool) -> Callable[..., Any]:
    """Those of a discrete Fourier transform; ``whole``: with the negative ones, which come last."""

    def rule(_: Any, n: Any, d: float = 1.0, **options: Any) -> Any:
        if not isinstance(n, torch.SymInt) or options.get("out") is not None:
            return NotImplemented
        dtype = options.get("dtype") or torch.get_default_dtype()
        count: Any = n if whole else n // 2 + 1
        at: Any = torch.arange(count, device=options.get("device"))
        at = torch.where(at > (n - 1) // 2, at - n, at) if whole else at
        return at.to(dtype) * (1.0 / (n * d))

    return rule


def taking_sizes(stack: ExitStack) -> None:
    """Until ``stack`` closes, functions that make tensors of numbers alone take sizes, as the constructor of a module may pass them."""

    def either(rule: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            made = rule(None, *args, **kwargs) if any(isinstance(a, torch.SymInt) for a in args) else NotImplemented
            return plain(*args, **kwargs) if made is NotImplemented else made

        return call

    made_of_numbers = {n: RULES[torch][n] for n in ("tril_indices", "triu_indices")} | constant_vectors.FUNCTIONS
    for owner, rules in ((torch, made_of_numbers), (torch.fft, RULES[torch.fft])):
        for name, rule in rules.items():
            patch(stack, owner, name, either(rule, getattr(owner, name)))


RULES: dict[Any, dict[str, Callable[..., Any]]] = {
    torch: {
        "gradient": gradient, "kron": kron, "take_along_dim": take_along_dim, "vander": vander, "chain_matmul": chain_matmul,
        "tril_indices": _triangle(upper=False), "triu_indices": _triangle(upper=True),
    },
    torch.Tensor: {"kron": kron, "take_along_dim": take_along_dim, "unfold": sliding_windows.along},
    torch.nn.functional: {"unfold": sliding_windows.unfold, "fold": sliding_windows.fold},
    torch.fft: {"fftfreq": _frequencies(whole=True), "rfftfreq": _frequencies(whole=False)},
    torch.linalg: {"multi_dot": multi_dot, "norm": norm, "matrix_norm": matrix_norm},
}  # fmt: skip
