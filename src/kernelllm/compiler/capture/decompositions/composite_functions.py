"""Composite functions of torch that no decomposition covers (``cdist``, ``quantile``, ``grid_sample``, ...), by their definitions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch

from kernelllm.compiler.capture.decompositions import grid_samples, pool_gradients, quantiles
from kernelllm.compiler.capture.decompositions.size_checks import inside
from kernelllm.compiler.capture.least_sizes import at_least

SUM, MEAN, MAX = 0, 1, 2


def glu(x: Any, dim: int = -1) -> Any:
    """GLU by two slices: Inductor's own rule fixes the size."""
    half = x.shape[dim] // 2
    return torch.ops.aten.slice.Tensor(x, dim, 0, half) * torch.ops.aten.slice.Tensor(x, dim, half, 2 * half).sigmoid()


def fill_diagonal(_: Any, x: Any, fill_value: Any, wrap: bool = False) -> Any:
    """``fill_diagonal_`` by a condition: torch writes through a view by strides, which a trace of a slice refuses."""
    if x.dim() != 2 or wrap:
        return NotImplemented
    rows, columns = (torch.arange(size, device=x.device) for size in x.shape)
    return x.copy_(torch.where(rows[:, None] == columns, fill_value, x))


def unfold(_: Any, x: Any, dimension: int, size: Any, step: Any) -> Any:
    """Windows of symbolic length, which torch would pin to a number: windows side by side are a view with one more dimension."""
    if not isinstance(size, torch.SymInt) or not bool(size == step):
        return NotImplemented
    dim = dimension % x.dim()
    count = x.shape[dim] // size
    whole = x if bool(x.shape[dim] % size == 0) else x.narrow(dim, 0, count * size)
    return whole.reshape((*x.shape[:dim], count, size, *x.shape[dim + 1 :])).movedim(dim + 1, -1)


def tensor_of_sizes(_: Any, data: Any, *more: Any, dtype: Any = None, device: Any = None, **others: Any) -> Any:
    """``torch.tensor`` of numbers, some of which are sizes: torch would read them, and so pin each to its number."""
    numbers = list(_numbers(data))
    if more or others or not any(isinstance(n, torch.SymInt | torch.SymFloat) for n in numbers):
        return NotImplemented
    if not all(isinstance(n, int | float | torch.SymInt | torch.SymFloat) for n in numbers):
        return NotImplemented
    whole = all(isinstance(n, int | torch.SymInt) for n in numbers)
    dtype = dtype or (torch.int64 if whole else torch.get_default_dtype())

    def made(part: Any) -> Any:
        if isinstance(part, list | tuple):
            return torch.stack([made(each) for each in part])
        return torch.full((), part, dtype=dtype, device=device)

    return made(data)


def _numbers(data: Any) -> Iterator[Any]:
    if isinstance(data, list | tuple):
        for part in data:
            yield from _numbers(part)
    else:
        yield data


def bilinear(_: Any, left: Any, right: Any, weight: Any, bias: Any = None) -> Any:
    """As torch's documentation of Bilinear; ATen has one operator for it that nothing takes apart."""
    products = left @ weight.permute(1, 0, 2).flatten(1)
    out = (products.unflatten(-1, (weight.shape[0], weight.shape[2])) * right.unsqueeze(-2)).sum(-1)
    return out if bias is None else out + bias


def _left_to_library(context: Any) -> bool:
    """Whether the graph is to be as ``torch.compile`` has it, without what is faster."""
    return bool(context.options.library and not context.options.mixed)


def bags_of_one_length(context: Any, ids: Any, weight: Any, offsets: Any = None, max_norm: float | None = None, norm_type: float = 2.0,
                       scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, per_sample_weights: Any = None,
                       include_last_offset: bool = False, padding_idx: int | None = None) -> Any:
    """Bags that are the rows of a matrix of ids: what is gathered is reduced over a dimension, and nothing is added to memory."""
    if ids.dim() != 2 or ids.is_nested or offsets is not None or max_norm is not None or _left_to_library(context):
        return NotImplemented
    if not weight.is_floating_point() or ids.is_floating_point() or (per_sample_weights is not None and mode != "sum"):
        return NotImplemented
    rows, nothing = weight[ids], float("-inf") if mode == "max" else 0.0
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[:, :, None]
    if padding_idx is None:
        return rows.amax(1) if mode == "max" else rows.mean(1) if mode == "mean" else rows.sum(1)
    kept = ids != padding_idx % weight.shape[0]
    rows = torch.where(kept[:, :, None], rows, nothing)
    if mode == "max":  # of no row it is 0
        most = rows.amax(1)
        return torch.where(most == nothing, 0.0, most)
    total = rows.sum(1)
    return total / kept.sum(1, dtype=rows.dtype).clamp(min=1)[:, None] if mode == "mean" else total


def embedding_bag(context: Any, weight: Any, indices: Any, offsets: Any, scale_grad_by_freq: bool = False, mode: int = SUM,
                   sparse: bool = False, per_sample_weights: Any = None, include_last_offset: bool = False,
                   padding_idx: int | None = None) -> Any:
    """A template, a program a bag. For gradients rows are gathered, and each is added to its bag: how many begin up to it is its number."""
    if indices.dim() != 1 or not weight.dtype.is_floating_point:
        return NotImplemented
    if not context.options.backward and not (torch.is_grad_enabled() and weight.requires_grad):
        if _left_to_library(context):
            return NotImplemented
        padding = -1 if padding_idx is None else padding_idx % weight.shape[0]
        kind = {SUM: "sum", MEAN: "mean", MAX: "max"}[mode]
        return context.namespace.bag_rows(weight, indices, offsets, per_sample_weights, kind, include_last_offset, padding), *[offsets] * 3
    starts = offsets[:-1] if include_last_offset else offsets
    begins = torch.zeros(indices.shape[0] + 1, dtype=torch.int32, device=weight.device)  # a kernel adds no int64 to memory
    bag = begins.index_add(0, starts.long(), torch.ones_like(starts, dtype=torch.int32)).cumsum(0)[:-1] - 1
    rows, ones = weight[indices], torch.ones_like(indices, dtype=weight.dtype)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[:, None]
    nothing = float("-inf") if mode == MAX else 0.0
    if padding_idx is not None and padding_idx >= 0:
        kept = indices != padding_idx
        rows, ones = torch.where(kept[:, None], rows, nothing), ones * kept
    if mode == MAX:  # of no row it is 0
        # of an input: memory that only holds a constant is not there yet where a template writes into it
        lowest = (starts * 0).to(weight.dtype)[:, None].expand(-1, weight.shape[1]) + nothing
        out = lowest.scatter_reduce(0, bag[:, None].expand_as(rows), rows, "amax")
        return torch.where(out == nothing, 0.0, out), bag, begins, begins
    out = torch.zeros(starts.shape[0], weight.shape[1], dtype=weight.dtype, device=weight.device).index_add(0, bag, rows)
    if mode == MEAN:
        counts = torch.zeros(starts.shape[0], dtype=weight.dtype, device=weight.device).index_add(0, bag, ones)
        out = out / counts.clamp(min=1)[:, None]
    return out, bag, begins, begins


def cdist(_: Any, left: Any, right: Any, p: float = 2.0, compute_mode: Any = None) -> Any:
    """By differences, which no rounding of squares spoils; ATen has one operator for it that nothing takes apart."""
    apart = (left.unsqueeze(-2) - right.unsqueeze(-3)).abs()
    match p:
        case 0.0:
            return apart.ceil().clamp(max=1).sum(-1)  # NaN stays
        case 1.0:
            return apart.sum(-1)
        case math.inf:
            return torch.where(apart == apart, apart, 0).amax(-1)  # torch passes over NaN here, as of two infinities
    return torch.linalg.vector_norm(apart, p, dim=-1)  # whose gradient is zero where two are equal


def cov(_: Any, x: Any, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Any:
    """Without weights; torch's own compares tensors."""
    if fweights is not None or aweights is not None or x.dim() != 2:
        return NotImplemented
    x = x if x.is_floating_point() or x.is_complex() else x.to(torch.get_default_dtype())
    centred = x - x.mean(1, keepdim=True)
    return centred @ centred.t().conj() / max(x.shape[1] - correction, 0)


def corrcoef(_: Any, x: Any) -> Any:
    if x.dim() != 2 or x.is_complex():
        return NotImplemented
    both = cov(_, x)
    deviation = both.diagonal().sqrt()
    return (both / deviation[:, None] / deviation[None, :]).clip(-1, 1)


def multilabel_margin_loss(_: Any, x: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean") -> Any:
    """Labels from the first -1 on count for nothing; torch's decomposition takes each of them for label 0."""
    if size_average is not None or reduce is not None:
        return NotImplemented
    rows, labels = torch.atleast_2d(x), torch.atleast_2d(target)
    chosen = (labels == -1).cumsum(1) == 0
    places = torch.arange(rows.shape[1], device=x.device)
    is_label = ((labels.unsqueeze(2) == places) & chosen.unsqueeze(2)).any(1)
    margins = (1 - rows.gather(1, torch.where(chosen, labels, 0)).unsqueeze(2) + rows.unsqueeze(1)).clamp_min(0)
    loss = torch.where(chosen.unsqueeze(2) & ~is_label.unsqueeze(1), margins, 0.0).sum((1, 2)) / rows.shape[1]
    return loss.reshape(x.shape[:-1]) if reduction == "none" else getattr(loss, reduction)()


def grid_sample(
    context: Any, x: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Any:
    """Volumes; images have a template. Eight neighbours' places and weights would be written to memory: torch's kernel is faster where it
    may be called."""
    if x.dim() == 4:
        return NotImplemented if _left_to_library(context) else grid_samples.of_images(context, x, grid, mode, padding_mode, align_corners)
    if x.dim() != 5 or mode == "bicubic" or (context.options.library and not context.options.backward):
        return NotImplemented
    nearest = mode == "nearest"
    rows, step, sides = x.flatten(2), 1, []
    for where, size in zip(grid.unbind(-1), reversed(x.shape[2:]), strict=True):  # the last dimension comes first
        place = _in_pixels(where, size, padding_mode, bool(align_corners))
        low = place.round() if nearest else place.floor()
        both = [low] if nearest else [low, low + 1]
        weights: list[Any] = [1.0] if nearest else [1 - (place - at).abs() for at in both]
        sides.append([(at.clamp(0, size - 1).long() * step, (at >= 0) & (at < size), w) for at, w in zip(both, weights, strict=True)])
        step = step * size
    out: Any = 0.0
    for (i, inside_i, u), (j, inside_j, v), (k, inside_k, w) in product(*sides):
        found = rows.gather(2, (i + j + k).flatten(1).unsqueeze(1).expand(-1, x.shape[1], -1)).unflatten(2, grid.shape[1:4])
        weight = 1.0 if nearest else (u * v * w).unsqueeze(1)
        out = out + torch.where((inside_i & inside_j & inside_k).unsqueeze(1), found, 0.0) * weight
    return out


def _in_pixels(at: Any, size: Any, padding_mode: str, corners: bool) -> Any:
    """Positions from -1 to 1 as those of pixels, brought inside where what lies outside is not zero."""
    place = (at + 1) / 2 * (size - 1) if corners else ((at + 1) * size - 1) / 2
    if padding_mode == "reflection":
        low, span = (0.0, size - 1) if corners else (-0.5, size)
        if isinstance(span, int) and span == 0:  # between the corners of one pixel there is that pixel alone
            return torch.zeros_like(place)
        away = (place - low).abs()
        turns, rest = (away / span).floor(), away % span
        place = torch.where(turns % 2 == 0, rest, span - rest) + low
    return place if padding_mode == "zeros" else place.clamp(0, size - 1)


def one_hot(_: Any, tensor: Any, num_classes: Any = -1) -> Any:
    """With a symbolic number of classes, which the operator would pin."""
    if (not isinstance(num_classes, int) or num_classes > 0) and not all(inside(tensor, num_classes)):
        raise ValueError("class values must be smaller than num_classes")
    if not isinstance(num_classes, torch.SymInt):
        return NotImplemented
    classes: Any = num_classes
    return (tensor.unsqueeze(-1) == torch.arange(classes, device=tensor.device)).long()


class _CumulativeProduct(torch.autograd.Function):
    """``cumprod`` with gradients by scans. While tracing, torch's own take a scan for every element: it cannot see where zeros are."""

    @staticmethod
    def forward(ctx: Any, x: Any, dim: int) -> Any:
        y = torch.cumprod(x, dim)
        ctx.save_for_backward(x, y)
        ctx.dim = dim
        return y

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        """Up to the first zero the sum of all later ``grad * y``, by ``x``; at that zero the same sum with 1 in its place; 0 behind it."""
        (x, y), dim = ctx.saved_tensors, ctx.dim
        zeros = (x == 0).to(torch.int32).cumsum(dim)
        before, at = zeros == 0, (x == 0) & (zeros == 1)
        later = (grad * y).flip(dim).cumsum(dim).flip(dim)
        beyond = torch.where(zeros > 0, grad * torch.cumprod(torch.where(at, 1.0, x), dim), 0.0).sum(dim, keepdim=True)
        return torch.where(before, later / torch.where(before, x, 1.0), torch.where(at, beyond, 0.0)).to(x.dtype), None


def cumprod(_: Any, x: Any, dim: Any = None, *more: Any, dtype: Any = None, **others: Any) -> Any:
    """Where gradients are taken, :class:`_CumulativeProduct`."""
    if more or others or not isinstance(dim, int) or not (torch.is_grad_enabled() and x.requires_grad and x.dim()):
        return NotImplemented
    if not x.is_floating_point() or (dtype is not None and not dtype.is_floating_point):
        return NotImplemented
    return _CumulativeProduct.apply(x if dtype is None else x.to(dtype), dim)  # type: ignore[no-untyped-call]


def quantile(context: Any, x: Any, q: Any, dim: Any = None, keepdim: bool = False, *, interpolation: str = "linear",
             out: Any = None) -> Any:
    """By sorting, as ATen's quantile_compute does, which asks for the number of elements."""
    near = context is not None and context.options.library and quantiles.near_an_end(x, q, dim, interpolation, out)
    if near:
        return quantiles.of_chosen(x, q, dim, keepdim, near)
    return _quantile(x, q, dim, keepdim, interpolation, out, ignore_nan=False)


def nanquantile(_: Any, x: Any, q: Any, dim: Any = None, keepdim: bool = False, *, interpolation: str = "linear", out: Any = None) -> Any:
    """As :func:`quantile`, of the numbers alone."""
    return _quantile(x, q, dim, keepdim, interpolation, out, ignore_nan=True)


def _quantile(x: Any, q: Any, dim: Any, keepdim: bool, interpolation: str, out: Any, *, ignore_nan: bool) -> Any:
    known = x.dtype in (torch.float32, torch.float64) and (not isinstance(q, torch.Tensor) or (q.dtype == x.dtype and q.dim() <= 1))
    if not known or out is not None or x.dim() == 0 or (isinstance(q, float) and not 0 <= q <= 1):
        return NotImplemented
    for size in x.shape:
        at_least(size, 1)
    rank, at = x.dim(), -1 if dim is None else dim % x.dim()
    rows = (x.flatten() if dim is None else x.movedim(dim, -1)).sort(-1)[0]
    several = isinstance(q, torch.Tensor) and q.dim() == 1
    wanted = q.reshape(-1) if isinstance(q, torch.Tensor) else torch.full((1,), q, dtype=x.dtype, device=x.device)
    nan = rows.isnan()
    if ignore_nan:
        places = (wanted * ((~nan).sum(-1, keepdim=True) - 1)).clamp(min=0)
    else:  # NaN stands last
        places = torch.where(nan.any(-1, keepdim=True), rows.shape[-1] - 1, wanted * (rows.shape[-1] - 1))
    if interpolation in ("higher", "nearest"):
        places = places.ceil() if interpolation == "higher" else places.round()
    below = places.long()
    found = rows.gather(-1, below)
    if interpolation in ("linear", "midpoint"):
        weight = torch.full_like(places, 0.5) if interpolation == "midpoint" else places - below
        found = torch.lerp(found, rows.gather(-1, places.ceil().long()), weight)
    found = found.movedim(-1, 0)
    if keepdim:
        found = found.reshape(-1, *[1] * rank) if dim is None else found.unsqueeze(at + 1)
    return found if several else found.squeeze(0)


def affine_grid(_: Any, theta: Any, size: Any, align_corners: bool | None = None) -> Any:
    """A sum of positions times columns of ``theta``: the gradient of ATen's operator takes no sizes that vary."""
    sides = list(size[2:])
    if not theta.is_floating_point() or len(sides) not in (2, 3) or theta.dim() != 3 or theta.shape[1] != len(sides):
        return NotImplemented
    if theta.shape[2] != len(sides) + 1 or theta.shape[0] != size[0] or not all(at_least(n, 1) for n in sides):
        raise ValueError("theta does not fit the size")
    kind = torch.promote_types(theta.dtype, torch.float32)
    grid = theta[(slice(None), *[None] * len(sides), slice(None), -1)]
    for axis, n in enumerate(reversed(sides)):  # the last dimension is x
        steps = 2 * torch.arange(n, device=theta.device).to(kind)
        last = torch.full((), n - 1, dtype=kind, device=theta.device).clamp(min=1)  # a size counts as more than 1 while tracing
        places = (steps - (n - 1)) / (last if align_corners else n)
        places = places.to(theta.dtype)[(slice(None), *[None] * (axis + 1))]
        grid = grid + places * theta[(slice(None), *[None] * len(sides), slice(None), axis)]
    return grid


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "bilinear": bilinear, "embedding_bag": embedding_bag, "cdist": cdist, "cov": cov, "corrcoef": corrcoef, "tensor": tensor_of_sizes,
    "as_tensor": tensor_of_sizes, "cumprod": cumprod, "quantile": quantile, "nanquantile": nanquantile,
}  # fmt: skip
NN_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "bilinear": bilinear, "embedding_bag": bags_of_one_length, "multilabel_margin_loss": multilabel_margin_loss, "grid_sample": grid_sample,
    "one_hot": one_hot, "affine_grid": affine_grid,
}  # fmt: skip
"""Rules for functions of ``torch`` and of ``torch.nn.functional``."""


def antialiased(cubic: bool) -> Callable[..., Any]:
    """The rule for an antialiased resize: a product with a matrix of weights for each dimension, rows and columns of the image."""

    def rule(x: Any, output_size: Any, align_corners: bool, scales_h: float | None = None, scales_w: float | None = None) -> Any:
        if not x.dtype.is_floating_point:
            return NotImplemented
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        factors = (scales_h, scales_w)
        down, across = (
            _filter_weights(wide, wide.shape[k - 2], output_size[k], factors[k], align_corners=align_corners, cubic=cubic) for k in (0, 1)
        )
        return (down @ (wide @ across.t())).to(x.dtype)

    return rule


def _filter_weights(like: Any, size: Any, target: Any, factor: float | None, *, align_corners: bool, cubic: bool) -> Any:
    """[target, size]: what each element along a dimension counts in each of the result, as torch's filter has it."""
    scale = size / target if factor is None else 1 / factor
    if align_corners:
        scale = (size - 1) / (target - 1) if target != 1 else 0.0
    given, made = (torch.arange(n, device=like.device).to(like.dtype) + 0.5 for n in (size, target))
    apart = ((given - (made * scale)[:, None]) / torch.sym_max(scale, 1.0)).abs()
    if cubic:
        near, far = (1.5 * apart - 2.5) * apart * apart + 1, -0.5 * (((apart - 5) * apart + 8) * apart - 4)
        weights = torch.where(apart < 1, near, torch.where(apart < 2, far, 0.0))
    else:
        weights = (1 - apart).clamp(min=0)
    return weights / weights.sum(1, keepdim=True)


def masked_select(x: Any, mask: Any) -> Any:
    """The elements at the positions that the mask holds."""
    x, mask = torch.broadcast_tensors(x, mask)
    return torch.ops.aten.index(x.reshape(-1), [mask.reshape(-1).nonzero().squeeze(1)])


def masked(operator: Any) -> Callable[..., Any]:
    """Boolean masks among the indices as the positions that they hold."""

    def rule(x: Any, indices: Any, *rest: Any) -> Any:
        masks = [i is not None and i.dtype in (torch.bool, torch.uint8) for i in indices]
        if not any(masks):
            return NotImplemented
        if operator is torch.ops.aten.index_put and indices[0] is not None and len(indices) == 1 and not any(rest[1:]):
            mask, value = indices[0].bool(), rest[0]
            if value.dim() <= x.dim() - mask.dim():  # one value, or one row of them, for all positions
                return torch.where(mask.reshape(*mask.shape, *[1] * (x.dim() - mask.dim())), value, x)
        parts = [i.nonzero().unbind(1) if masked else (i,) for i, masked in zip(indices, masks, strict=True)]
        return operator(x, [i for part in parts for i in part], *rest)

    return rule


_aten = torch.ops.aten
OPERATORS: dict[Any, Callable[..., Any]] = {
    _aten.index.Tensor: masked(_aten.index), _aten.index_put.default: masked(_aten.index_put), _aten.masked_select.default: masked_select,
    _aten.glu.default: glu, _aten._upsample_bilinear2d_aa.default: antialiased(False),
    _aten._upsample_bicubic2d_aa.default: antialiased(True), **pool_gradients.rules(),
}  # fmt: skip
"""Decompositions for a trace."""
