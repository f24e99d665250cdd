"""Other inputs for a problem: the same shapes, dtypes and constraints, with values of another distribution.

A candidate that is only right for the distribution that the problem draws from is not right. What must hold for an input is
read off the input itself: probabilities stay probabilities, labels stay labels, triangles stay triangles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kernelllm.problems.nested import mapped

if TYPE_CHECKING:
    import torch

KINDS = ("normal", "uniform", "large", "tiny", "negative", "zeros")
LARGE, TINY = 50.0, 1e-3
TOUCHED = 256
"""One of so many elements differs under the kind ``touched``."""
NOT_FINITE = 16
"""One of so many elements is NaN under the kind ``nan``; under ``infinite`` it may also be infinite, of either sign."""
STEPS = 16
"""Values of the kind ``steps`` are quarters, up to so many of either sign."""
HEAVY = (3.0, 6.0)
"""Powers of ten between which values of the kind ``heavy`` lie; :data:`HEAVY_HALF` in float16, which ends at 65504."""
HEAVY_HALF = (3.0, 4.0)
LONG = 64
"""Elements of a dimension from which on its parts have sizes of their own under the kind ``uneven``."""
FAR = 512.0
"""Mean of values of the kind ``far``, whose variance is 1."""
RARE = 64
"""Of so many values of the kind ``rare`` one is so many times as large."""
CLOSE, _DIFFERENT = 2.0**-20, 2**12
"""What values of the kind ``close`` differ by, and how many of them lie beside each other."""
_SAMPLE = 2**14
"""About as many elements show that a constraint does not hold; only where they do not is all of a tensor looked at."""


def variants(inputs: list[Any], seed: int) -> Iterator[tuple[str, list[Any]]]:
    """Each kind of :data:`KINDS` with inputs of that kind (see :func:`variant`); a kind that would change nothing is left out."""
    for number, kind in enumerate(KINDS):
        made = variant(inputs, kind, seed * 1000 + number)
        if made is not None:
            yield kind, made


def variant(inputs: list[Any], kind: str, seed: int) -> list[Any] | None:
    """Inputs of one kind, on the same device, drawn under ``seed``; ``inputs`` is left alone. None where nothing would change.

    ``normal`` (variance 1), ``uniform`` (-2 to 2), ``large`` (normal, times 50) and ``tiny`` (times 0.001) draw anew; ``negative`` turns
    the problem's own values all negative; ``zeros`` puts zero in a third of the places. :data:`KINDS` leaves out ``touched``, which
    changes only a few elements, within their range, ``nan`` and ``infinite``, which put such values in a few places, and ``heavy``: a
    thousand to a million, positive or negative, and some indices of the first dimension hold one sign alone. It leaves out ``steps``,
    few different values that are quarters, zero of either sign among them, ``blank``, where all at one index of each dimension is zero,
    ``far`` (normal around :data:`FAR`), for which half precision is too coarse, ``uneven``, the problem's own values of which parts of
    long rows and columns are several times as large as others, ``rare``, positive ones of which one in :data:`RARE` is so many times as
    large, and ``close``: few values, and beside each of them others that differ by a millionth.
    Complex numbers change by their real and imaginary parts, under the first kinds, ``touched`` and ``heavy``.
    Integer and boolean tensors (but for ``touched``, which turns a few around within their rows), tensors of one element, non-tensors,
    and floating-point tensors that hold labels (different whole numbers only) stay as drawn: indices stay in range.
    Probabilities, symmetry, zeros by pattern, order, unit length and values that are kept away from zero stay what they are. Nothing
    says that the reference is defined for these values: callers
    skip a kind whose reference output is not finite.
    """
    changed: list[bool] = []
    seen: dict[int, torch.Tensor] = {}

    def vary(value: torch.Tensor) -> torch.Tensor:
        if id(value) not in seen:  # the same tensor passed twice stays the same tensor
            change = _tensor if value.is_floating_point() else _complex if value.is_complex() else turned
            new = change(value, kind, seed + 7919 * len(seen)) if value.numel() > 1 else None
            if new is not None:
                changed.append(True)
            seen[id(value)] = value.clone() if new is None else new
        return seen[id(value)]

    values: list[Any] = mapped(inputs, vary)
    return values if changed else None


def _tensor(x: torch.Tensor, kind: str, seed: int) -> torch.Tensor | None:
    """One tensor of that kind, None where it has to stay as it is."""
    import torch

    repeated = [size > 1 and stride == 0 for size, stride in zip(x.shape, x.stride(), strict=True)]
    if any(repeated):
        small = x[tuple(slice(0, 1) if r else slice(None) for r in repeated)]
        new = _tensor(small, kind, seed)
        return None if new is None else new.expand(x.shape)
    if x.element_size() < 2:  # float8 knows hardly any operation
        new = _tensor(x.float(), kind, seed)
        return None if new is None else new.to(x.dtype)
    with torch.no_grad():
        x = x.detach()
        if not _finite(x) or holds_labels(x) or (kind in ("far", "close") and x.element_size() < 4):
            return None
        if kind in ("nan", "infinite"):
            return _not_finite(x, kind, seed)
        for holds, keep in _CONSTRAINTS:
            if holds(x):
                made = keep(x, kind, seed)
                return None if made is None else torch.empty_like(x).copy_(made)
        made = _free(x, kind, seed)
        return made if made.stride() == x.stride() else torch.empty_like(x).copy_(made)


def _complex(x: torch.Tensor, kind: str, seed: int) -> torch.Tensor | None:
    """Real and imaginary parts, as a tensor of floating-point numbers would change. Not where a sign of zero would choose an angle."""
    import torch

    if kind not in (*KINDS, "touched", "heavy"):
        return None
    made = _tensor(torch.view_as_real(x.detach().resolve_conj()), kind, seed)
    return None if made is None else torch.empty_like(x).copy_(torch.view_as_complex(made.contiguous()))


def turned(x: torch.Tensor, kind: str, seed: int) -> torch.Tensor | None:
    """Whole numbers or booleans of which a few of each row changed places. All stay what the problem drew. None where they are in order."""
    import torch

    may = x.dim() and kind == "touched"
    rows = x.reshape(-1, x.shape[-1]).clone() if may else None
    if rows is None or rows.shape[-1] < 2 or bool((rows[:, 1:] >= rows[:, :-1]).all()):
        return None
    places = torch.randperm(rows.shape[-1], generator=torch.Generator().manual_seed(seed)).to(x.device)
    places = places[: max(rows.shape[-1] // TOUCHED, 2)]
    rows[:, places] = rows[:, places.roll(1)]
    made = rows.view(x.shape)
    return None if made.equal(x) else torch.empty_like(x).copy_(made)


def free(x: torch.Tensor) -> bool:
    """Whether each number of a tensor may be another one: they do not sum to one, are not sorted, symmetric or kept away from zero."""
    return _sum_dim(x) is None and not any(holds(x) for holds, _ in _CONSTRAINTS[1:])


def _sample(x: torch.Tensor, whole: int = -1) -> torch.Tensor:
    """A grid of elements of a large tensor: the ``whole`` dimension, and as many of each other as of any that is long enough."""
    if x.numel() <= _SAMPLE:
        return x
    each = max(8, int(_SAMPLE ** (1 / max(sum(size > 1 for size in x.shape), 1))))
    return x[tuple(slice(None, None, 1 if dim == whole else -(-size // each)) for dim, size in enumerate(x.shape))]


def _finite(x: torch.Tensor) -> bool:
    import torch

    if not bool(torch.isfinite(_sample(x)).all()):
        return False
    return math.isfinite(float(x.sum(dtype=torch.float64 if x.element_size() > 4 else torch.float32))) or bool(torch.isfinite(x).all())


def _free(x: torch.Tensor, kind: str, seed: int) -> torch.Tensor:
    import torch

    draw = torch.Generator(device=x.device)
    draw.manual_seed(seed)
    if kind == "negative":
        return x.abs().neg_().sub_(0.01)
    if kind == "blank":
        return _blank(x, draw)
    if kind == "steps":
        made = torch.randint(-STEPS, STEPS + 1, x.shape, generator=draw, device=x.device).to(x.dtype)
        return torch.where(torch.rand(x.shape, generator=draw, device=x.device) < 1 / STEPS, -0.0, made / 4)
    if kind == "touched":
        flat, (low, high) = x.flatten().clone(), x.aminmax()
        places = torch.randint(x.numel(), (max(x.numel() // TOUCHED, 1),), generator=draw, device=x.device)
        flat[places] = low + high - flat[places]
        return flat.view(x.shape)
    if kind == "uneven":
        return _uneven(x, draw)
    if kind == "rare":
        return torch.where(torch.rand(x.shape, generator=draw, device=x.device) < 1 / RARE, x.abs() * RARE, x.abs())
    if kind == "close":
        places = torch.rand(x.shape, generator=draw, device=x.device).argsort(-1) % _DIFFERENT
        return (torch.randint(-4, 4, x.shape, generator=draw, device=x.device) / 4 + places * CLOSE).to(x.dtype)
    out = torch.empty_like(x)
    if kind == "heavy":
        return _heavy(x, draw)
    if kind == "uniform":
        return out.uniform_(-2.0, 2.0, generator=draw)
    if kind == "zeros":
        return torch.where(torch.rand(x.shape, generator=draw, device=x.device) < 1 / 3, torch.zeros_like(x), x)
    out.normal_(generator=draw)
    if kind == "far":
        return out.add_(FAR)
    return out if kind == "normal" else out.mul_({"large": LARGE, "tiny": TINY}[kind])


def _not_finite(x: torch.Tensor, kind: str, seed: int) -> torch.Tensor:
    import torch

    draw = torch.Generator(device=x.device)
    draw.manual_seed(seed)
    values = torch.tensor([math.nan] if kind == "nan" else [math.nan, math.inf, -math.inf], dtype=x.dtype, device=x.device)
    flat = x.flatten().clone()
    places = torch.randperm(flat.numel(), generator=draw, device=x.device)[: -(-flat.numel() // NOT_FINITE)]
    flat[places] = values[torch.arange(len(places), device=x.device) % len(values)]
    return torch.empty_like(x).copy_(flat.view(x.shape))


def _blank(x: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
    import torch

    made = x.clone()
    for dim, size in enumerate(x.shape):
        if size > 2 and x.dim() > 1:
            made.select(dim, int(torch.randint(size, (), generator=draw, device=x.device))).zero_()
    return made


def _uneven(x: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
    """Runs along each long dimension have a factor each: a share of them does not tell what the whole is."""
    import torch

    made = x
    for dim, size in enumerate(x.shape):
        if size >= LONG:
            powers = torch.randint(-2, 2, (min(size // 8, LONG),), generator=draw, device=x.device)
            factors = (2.0**powers).repeat_interleave(-(-size // len(powers)))[:size].to(x.dtype)
            made = made * factors.view([size if d == dim else 1 for d in range(x.dim())])
    return x.clone() if made is x else made


def _heavy(x: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
    import torch

    low, high = HEAVY_HALF if x.dtype is torch.float16 else HEAVY
    powers = torch.empty(x.shape, device=x.device).uniform_(low, high, generator=draw)
    signs = torch.randint(0, 2, x.shape, generator=draw, device=x.device) * 2 - 1
    if x.dim() > 1:  # a maximum over negative values alone must be seen as well, in a row of any length far below the others
        signs[1::3] = -1
        powers[1::3] = (powers[1::3] + high) / 2
        signs[2::3] = 1
    return (10.0**powers * signs).to(x.dtype)


def holds_labels(x: torch.Tensor) -> bool:
    """Whole numbers only, and not all the same: class labels, signs, masks as floats."""
    x = x.float() if x.element_size() < 2 else x  # float8 cannot be rounded
    return all(bool((t == t.round()).all()) for t in (_sample(x), x)) and bool((x != x.flatten()[0]).any())


def _probabilities(x: torch.Tensor) -> bool:
    return _sum_dim(x) is not None


def _sum_dim(x: torch.Tensor) -> int | None:
    """The dimension along which a non-negative tensor sums to one."""
    if x.dim() == 0 or bool((_sample(x) < 0).any()):
        return None
    for dim in (x.dim() - 1, *range(x.dim() - 1)):
        if x.shape[dim] > 1 and _sums_to_one(_sample(x, whole=dim), dim) and _sums_to_one(x, dim):
            return None if bool((x < 0).any()) else int(dim)
    return None


def _sums_to_one(x: torch.Tensor, dim: int) -> bool:
    import torch

    sums = x.float().sum(dim)
    return torch.allclose(sums, torch.ones_like(sums), atol=1e-2 if x.element_size() < 4 else 1e-4)


def _keep_probabilities(x: torch.Tensor, kind: str, seed: int) -> torch.Tensor | None:
    sharpness = {"normal": 1.0, "uniform": 0.1, "large": 4.0, "zeros": 1.0}
    dim = _sum_dim(x)
    if kind not in sharpness or dim is None:
        return None
    made = (_free(x, "normal", seed).float() * sharpness[kind]).softmax(dim)
    if kind == "zeros":  # of some classes; the likeliest stays
        made = _free(made, "zeros", seed + 1).where(made != made.amax(dim, keepdim=True), made)
        made = made / made.sum(dim, keepdim=True)
    return made.to(x.dtype)


def of_length_one(x: torch.Tensor) -> bool:
    """Rows scaled to length one."""
    return x.dim() >= 2 and x.shape[-1] >= 2 and _length_one(_sample(x, whole=x.dim() - 1)) and _length_one(x)


def _length_one(x: torch.Tensor) -> bool:
    import torch

    norms = x.float().norm(dim=-1)
    return torch.allclose(norms, torch.ones_like(norms), atol=1e-3)


def _keep_unit(x: torch.Tensor, kind: str, seed: int) -> torch.Tensor | None:
    if kind in ("large", "tiny", "heavy", "blank", "close"):
        return None
    new = _free(x, kind, seed).float()
    unit: torch.Tensor = new / new.norm(dim=-1, keepdim=True).clamp_min(1e-6)
    return unit.to(x.dtype)


def _symmetric(x: torch.Tensor) -> bool:
    import torch

    if x.dim() < 2 or x.shape[-1] != x.shape[-2] or x.shape[-1] < 2:
        return False
    return all(torch.equal(t, t.mT) for t in (_sample(x), x)) and not _patterned(x)


def _keep_symmetric(x: torch.Tensor, kind: str, seed: int) -> torch.Tensor:
    new = _free(x, kind, seed)
    return new.triu() + new.triu(1).mT


def _patterned(x: torch.Tensor) -> bool:
    """Zeros in more than a tenth of the places, and not in all: triangular, banded, diagonal or masked."""
    return all(t.numel() > 8 and 0.1 * t.numel() < int((t == 0).sum()) < t.numel() for t in (_sample(x), x))


def _keep_pattern(x: torch.Tensor, kind: str, seed: int) -> torch.Tensor:
    return _free(x, kind, seed) * (x != 0)


def in_order(x: torch.Tensor) -> bool:
    """Rows that are sorted, and not all one number."""
    if x.dim() < 1 or x.shape[-1] <= 4:
        return False
    return all(bool((t[..., 1:] >= t[..., :-1]).all()) for t in (_sample(x), x)) and bool((x[..., 0] < x[..., -1]).any())


def _keep_sorted(x: torch.Tensor, kind: str, seed: int) -> torch.Tensor:
    return _free(x, kind, seed).sort(dim=-1).values


def _away_from_zero(x: torch.Tensor) -> bool:
    """Positive, and further from zero than values drawn between zero and their largest would be: variances, divisors."""
    if x.numel() < 64 or bool((_sample(x) <= 0).any()):
        return False
    low, high = (float(t) for t in x.aminmax())
    return low > 20 / x.numel() * high


def _keep_away(x: torch.Tensor, kind: str, seed: int) -> torch.Tensor | None:
    if kind in ("negative", "zeros", "blank"):
        return None
    if kind in ("large", "tiny"):
        return x * (LARGE if kind == "large" else TINY)
    if kind == "touched":
        return _free(x, kind, seed)
    return _free(x, kind, seed).abs() + x.min()


_CONSTRAINTS: tuple[tuple[Callable[[torch.Tensor], bool], Callable[[torch.Tensor, str, int], torch.Tensor | None]], ...] = (
    (_probabilities, _keep_probabilities),
    (_symmetric, _keep_symmetric),
    (_patterned, _keep_pattern),
    (in_order, _keep_sorted),
    (of_length_one, _keep_unit),
    (_away_from_zero, _keep_away),
)
