"""Other inputs for a problem: the same shapes, dtypes and constraints, values of other kinds.

A candidate that is only right for the distribution that the problem draws from is not right. What must hold for an input is
read off the input itself: probabilities stay probabilities, labels stay labels, triangles stay triangles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

KINDS = ("normal", "uniform", "large", "tiny", "negative", "zeros")
LARGE, TINY = 32.0, 1e-3


def variants(inputs: list[Any], seed: int) -> Iterator[tuple[str, list[Any]]]:
    """Each kind of :data:`KINDS` with inputs of that kind, on the same device, drawn under ``seed``; ``inputs`` is left alone.

    ``normal`` and ``uniform`` (0 to 1) draw anew; ``large`` and ``tiny`` scale the problem's own values by 32 and 0.001; ``negative`` turns
    them all negative; ``zeros`` puts zero in half of the places. Integer, boolean and complex tensors, non-tensors, and
    floating-point tensors that hold labels (whole numbers only) stay as drawn. A kind that would change nothing is left out.
    Nothing says that the reference is defined for these values: callers skip a kind whose reference output is not finite.
    """
    for number, kind in enumerate(KINDS):
        changed: list[bool] = []
        seen: dict[int, torch.Tensor] = {}
        values = [_vary(value, kind, seed * 1000 + number, seen, changed) for value in inputs]
        if changed:
            yield kind, values


def _vary(value: Any, kind: str, seed: int, seen: dict[int, torch.Tensor], changed: list[bool]) -> Any:
    import torch

    if isinstance(value, list):
        return [_vary(v, kind, seed, seen, changed) for v in value]
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(_vary(v, kind, seed, seen, changed) for v in value)
    if isinstance(value, dict):
        return {k: _vary(v, kind, seed, seen, changed) for k, v in value.items()}
    if not isinstance(value, torch.Tensor):
        return value
    if id(value) not in seen:  # the same tensor passed twice stays the same tensor
        new = _tensor(value, kind, seed + 7919 * len(seen)) if value.is_floating_point() and value.numel() else None
        if new is not None:
            changed.append(True)
        seen[id(value)] = value.clone() if new is None else new
    return seen[id(value)]


def _tensor(x: torch.Tensor, kind: str, seed: int) -> torch.Tensor | None:
    """One tensor of that kind, None where it has to stay as it is."""
    import torch

    repeated = [size > 1 and stride == 0 for size, stride in zip(x.shape, x.stride(), strict=True)]
    if any(repeated):
        small = x[tuple(slice(0, 1) if r else slice(None) for r in repeated)]
        new = _tensor(small, kind, seed)
        return None if new is None else new.expand(x.shape)
    with torch.no_grad():
        x = x.detach()
        if _labels(x) or not bool(torch.isfinite(x).all()):
            return None
        for holds, keep in _CONSTRAINTS:
            if holds(x):
                made = keep(x, kind, seed)
                return None if made is None else torch.empty_like(x).copy_(made)
        return torch.empty_like(x).copy_(_free(x, kind, seed))  # empty_like keeps the strides


def _free(x: torch.Tensor, kind: str, seed: int) -> torch.Tensor:
    import torch

    draw = torch.Generator(device=x.device)
    draw.manual_seed(seed)
    if kind == "normal":
        return torch.randn(x.shape, generator=draw, device=x.device, dtype=torch.float32).to(x.dtype)
    if kind == "uniform":
        return torch.rand(x.shape, generator=draw, device=x.device, dtype=torch.float32).to(x.dtype)
    if kind == "zeros":
        return torch.where(torch.rand(x.shape, generator=draw, device=x.device) < 0.5, torch.zeros_like(x), x)
    return {"large": x * LARGE, "tiny": x * TINY, "negative": -x.abs()}[kind]


def _labels(x: torch.Tensor) -> bool:
    """Whole numbers only: class labels, signs, masks as floats."""
    return bool((x == x.round()).all())


def _probabilities(x: torch.Tensor) -> bool:
    return _sum_dim(x) is not None


def _sum_dim(x: torch.Tensor) -> int | None:
    """The dimension along which a non-negative tensor sums to one."""
    import torch

    if x.dim() == 0 or bool((x < 0).any()):
        return None
    for dim in (x.dim() - 1, *range(x.dim() - 1)):
        if x.shape[dim] > 1:
            sums = x.float().sum(dim)
            if torch.allclose(sums, torch.ones_like(sums), atol=1e-2 if x.element_size() < 4 else 1e-4):
                return int(dim)
    return None


def _keep_probabilities(x: torch.Tensor, kind: str, seed: int) -> torch.Tensor | None:
    sharpness = {"normal": 1.0, "uniform": 0.1, "large": 4.0}
    dim = _sum_dim(x)
    if kind not in sharpness or dim is None:
        return None
    return (_free(x, "normal", seed).float() * sharpness[kind]).softmax(dim).to(x.dtype)


def _unit(x: torch.Tensor) -> bool:
    """Rows of length one."""
    import torch

    if x.dim() < 2 or x.shape[-1] < 2:
        return False
    norms = x.float().norm(dim=-1)
    return torch.allclose(norms, torch.ones_like(norms), atol=1e-3)


def _keep_unit(x: torch.Tensor, kind: str, seed: int) -> torch.Tensor | None:
    if kind in ("large", "tiny"):
        return None
    new = _free(x, kind, seed).float()
    unit: torch.Tensor = new / new.norm(dim=-1, keepdim=True).clamp_min(1e-6)
    return unit.to(x.dtype)


def _symmetric(x: torch.Tensor) -> bool:
    import torch

    return x.dim() >= 2 and 1 < x.shape[-1] == x.shape[-2] and torch.equal(x, x.mT) and not _patterned(x)


def _keep_symmetric(x: torch.Tensor, kind: str, seed: int) -> torch.Tensor:
    new = _free(x, kind, seed)
    return new.triu() + new.triu(1).mT


def _patterned(x: torch.Tensor) -> bool:
    """Zeros in more than a tenth of the places: triangular, banded, diagonal or masked."""
    return x.numel() > 8 and int((x == 0).sum()) > 0.1 * x.numel()


def _keep_pattern(x: torch.Tensor, kind: str, seed: int) -> torch.Tensor:
    return _free(x, kind, seed) * (x != 0)


def _sorted(x: torch.Tensor) -> bool:
    return x.dim() >= 1 and x.shape[-1] > 4 and bool((x.diff(dim=-1) >= 0).all())


def _keep_sorted(x: torch.Tensor, kind: str, seed: int) -> torch.Tensor:
    return _free(x, kind, seed).sort(dim=-1).values


_CONSTRAINTS: tuple[tuple[Callable[[torch.Tensor], bool], Callable[[torch.Tensor, str, int], torch.Tensor | None]], ...] = (
    (_probabilities, _keep_probabilities),
    (_symmetric, _keep_symmetric),
    (_patterned, _keep_pattern),
    (_sorted, _keep_sorted),
    (_unit, _keep_unit),
)
