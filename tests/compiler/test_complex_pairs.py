"""Complex arithmetic as pairs of reals, and other forms that are taken apart while a module is traced."""

import pytest
import torch
from compiled import captured, problem

from kernelllm.compiler.capture.decompositions import composite_functions, linear_algebra
from kernelllm.compiler.compiler_writer import Compiler, compiled
from kernelllm.compiler.options import Options
from kernelllm.core.errors import CaptureError
from kernelllm.core.types import Candidate
from kernelllm.judge import Judge

FILTERED = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.filter = nn.Parameter(torch.randn(width, dtype=torch.complex64))
    def forward(self, x, angle):
        z = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.polar(torch.ones_like(angle), angle) / (2 + 1j) + (angle * 3j - 1)
        filtered = torch.fft.ifft2(torch.fft.fft(z.conj(), dim=-1) * self.filter, norm="ortho")
        circular = torch.fft.irfft(torch.fft.rfft(x) * z[:, 1:2])
        return circular, torch.view_as_real(z).flatten(-2), filtered.abs() + z.angle(), (z @ z.mT).real, z + 1, torch.log(z + 3).exp()
def get_inputs(): return [torch.randn(6, 30), torch.rand(15)]
def get_init_inputs(): return [15]
"""

BESIDE_REALS = """
class Model(nn.Module):
    def forward(self, x, y):
        z = torch.complex(x, y)
        joined = torch.cat((z, x.to(z.dtype))), torch.stack((x, z)), F.pad(z, (1, 0), value=1.0)
        written, real = z.clone(), x.clone()
        written[0], written[1:, 2] = x[0], 2j
        flags = torch.complex(x * 0, y).bool(), z == x, z != 1j, (z / (x > 0)).isnan()
        return *joined, written, real.copy_(z), *flags, z.sub(x, alpha=2j), z.var(1), z ** y, z * torch.tensor(2j), z.real
def get_inputs(): return [torch.randn(12, 10), torch.randn(12, 10)]
"""

ROTATED = """
class Model(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.into, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
    def turned(self, x, z):
        return torch.view_as_real(torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * z).flatten(-2)
    def forward(self, x, angle):
        b, n, d = x.shape
        q, k, v = self.into(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        z = torch.polar(torch.ones_like(angle), angle)
        y = F.scaled_dot_product_attention(self.turned(q, z), self.turned(k, z), v)
        return self.out(y.transpose(1, 2).reshape(b, n, d))
batch, length, width, heads = 2, 33, 64, 4
def get_inputs(): return [torch.randn(batch, length, width), torch.rand(length, width // heads // 2)]
def get_init_inputs(): return [width, heads]
"""

TAKEN_APART = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean, self.sum = nn.EmbeddingBag(50, 16, mode="mean", padding_idx=3), nn.EmbeddingBag(50, 16, mode="sum")
        self.most = nn.EmbeddingBag(50, 16, mode="max", padding_idx=3)
    def forward(self, rows, starts, spread):
        if torch.any(spread < 0):
            raise ValueError("spread")
        mean, total = self.mean(rows, starts), self.sum(rows, starts)
        places = torch.searchsorted(spread[0].sort()[0], mean, right=True)
        factor = torch.linalg.cholesky(mean.mT @ mean + torch.eye(16, device=mean.device), out=None)
        special = torch.digamma(mean), torch.polygamma(1, spread + 0.1), torch.special.chebyshev_polynomial_t(spread, 3)
        labels = torch.stack([starts % 16, starts * 0 - 1, starts % 3], 1)
        losses = F.multilabel_margin_loss(mean[:, :3], labels % 4 - (labels < 0).long() * 4), torch.corrcoef(mean)
        more = 10.0 ** spread.double(), torch.cdist(mean, total), factor.tril()
        return *special, *losses, *more, mean, total, self.most(rows, starts), places, F.gaussian_nll_loss(mean, total, spread + 0.1)
def get_inputs(): return [torch.randint(0, 50, (40,)), torch.tensor([0, 5, 5, 20, 40]), torch.rand(5, 16)]
"""


MODES = """
class Model(nn.Module):
    def __init__(self, modes, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(modes, width, width, dtype=torch.complex64) / width)
    def forward(self, x):
        mixed = torch.einsum("bmi,mio->bmo", torch.fft.rfft(x, dim=1)[:, :self.weight.shape[0]], self.weight)
        return F.gelu(torch.fft.irfft(mixed, n=x.shape[1], dim=1)).softmax(-1)
def get_inputs(): return [torch.randn(9, 30, 12)]
def get_init_inputs(): return [7, 12]
"""

SPECIAL = """
class Model(nn.Module):
    def forward(self, x, y, image, place):
        far = (x - 1) * 20
        values = torch.special.airy_ai(far), torch.special.spherical_bessel_j0(far), torch.special.shifted_chebyshev_polynomial_w(y, 3)
        resized = F.interpolate(image, scale_factor=0.6, mode="bicubic", antialias=True)
        grid = F.affine_grid(place, image.size(), align_corners=False)
        sampled = F.grid_sample(image, grid, padding_mode="reflection", align_corners=False)
        return *values, resized, sampled, *torch.linalg.ldl_factor(x[:, :16].t() + x[:, :16])
def get_inputs():
    return [torch.rand(16, 24) + 0.5, torch.rand(16, 24) + 0.5, torch.rand(2, 3, 16, 20), torch.randn(2, 2, 3)]
"""

MORE_SPECIAL = """
class Model(nn.Module):
    def forward(self, y, image, positions):
        small = F.interpolate(image, size=(7, 9), mode="bilinear", antialias=True, align_corners=True)
        sampled = F.grid_sample(image[:, None], positions * 3 - 1.5, padding_mode="reflection", align_corners=False)
        return torch.polygamma(2, y - 0.7), small, sampled
def get_inputs(): return [torch.rand(16, 24) + 0.5, torch.rand(2, 3, 16, 20), torch.rand(2, 1, 5, 4, 3)]
"""

SUMS = """
class Model(nn.Module):
    def forward(self, x, y):
        return torch.special.zeta(x + 1, y * 30), torch.special.zeta(3.0, y - 4)
def get_inputs(): return [torch.rand(16, 24) + 0.5, torch.rand(16, 24) + 0.5]
"""

ONE_PIXEL = """
class Model(nn.Module):
    def forward(self, image, positions):
        thin = F.grid_sample(image[:, :, None], positions, mode="nearest", padding_mode="reflection", align_corners=True)
        return thin, torch.cov((image[0, 0] * 9).int())
def get_inputs(): return [torch.randn(2, 3, 5, 4), torch.randn(2, 2, 2, 2, 3)]
"""

MADE_BY_A_MASK = """
class Model(nn.Module):
    def forward(self, x):
        return x * torch.tanh(F.softplus(x))
def get_inputs():
    x = torch.randn(64, 32)
    x[(x > -1.2) & (x < 0)] -= 3.0
    return [x]
"""


@pytest.mark.parametrize("body", [SPECIAL, MADE_BY_A_MASK, *(pytest.param(body, marks=pytest.mark.slow) for body in (MORE_SPECIAL, SUMS))])
def test_special_functions_and_filters_are_in_kernels(quick: Judge, body: str) -> None:
    (candidate,) = Compiler().write(problem(body), 1)
    assert candidate.note == ""
    verdict = quick.judge(problem(body), candidate)
    assert verdict.correct, verdict.message


def test_reflection_between_the_corners_of_one_pixel_and_covariances_of_whole_numbers(quick: Judge) -> None:
    verdict = quick.judge(problem(ONE_PIXEL), Candidate(source=compiled(problem(ONE_PIXEL), Options())))
    assert verdict.correct, verdict.message


def test_complex_arithmetic_is_in_kernels(quick: Judge) -> None:
    (candidate,) = Compiler().write(problem(FILTERED), 1)
    assert candidate.note == ""
    verdict = quick.judge(problem(FILTERED), candidate)
    assert verdict.correct, verdict.message


def test_what_is_real_beside_complex_numbers_has_no_second_part(quick: Judge) -> None:
    (candidate,) = Compiler().write(problem(BESIDE_REALS), 1)
    verdict = quick.judge(problem(BESIDE_REALS), candidate)
    assert verdict.correct, verdict.message


def test_rotated_heads_keep_the_order_of_their_memory_at_known_sizes(hybrid: Judge) -> None:
    """Attention gives its result in the order of its queries, of which the module takes views."""
    source = compiled(problem(ROTATED), Options(extern="avoid", fixed=True, mixed=True))
    assert "forward_at_known_sizes" in source
    verdict = hybrid.judge(problem(ROTATED), Candidate(source=source))
    assert verdict.correct, verdict.message


def test_a_product_of_complex_matrices_is_one_of_real_ones(hybrid: Judge) -> None:
    source = compiled(problem(MODES), Options(extern="avoid", fixed=True, mixed=True))
    assert source.count("torch.bmm(") == 1
    verdict = hybrid.judge(problem(MODES), Candidate(source=source))
    assert verdict.correct, verdict.message


def test_bags_distances_and_checks_are_taken_apart(hybrid: Judge) -> None:
    (candidate,) = Compiler().write(problem(TAKEN_APART), 1)
    assert candidate.note == ""
    verdict = hybrid.judge(problem(TAKEN_APART), candidate)
    assert verdict.correct, verdict.message


def test_what_torch_alone_computes_of_complex_numbers_is_not_compiled() -> None:
    body = "class Model(nn.Module):\n    def forward(self, x): return torch.linalg.eig(x)\ndef get_inputs(): return [torch.rand(3, 6, 6)]\n"
    with pytest.raises(CaptureError, match=r"nothing is left for a kernel\. Torch does linalg_eig"):
        next(iter(Compiler().write(problem(body), 1)))


@pytest.mark.parametrize("p", [2.0, 3.0])
def test_distances_of_equal_points_have_the_gradients_of_torch(p: float) -> None:
    left, right = torch.randn(3, 5).requires_grad_(), torch.randn(4, 5).requires_grad_()
    with torch.no_grad():
        right[1] = left[2]
    both = composite_functions.cdist(None, left, right, p), torch.cdist(left, right, p)
    for mine, theirs in zip(*(torch.autograd.grad(distances.sum(), (left, right)) for distances in both), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, float("inf")])
def test_distances_of_infinite_points_are_those_of_torch(p: float) -> None:
    points = torch.tensor([[torch.inf, 0.0], [torch.inf, 1.5], [torch.nan, 1.0], [0.0, 1.0], [-torch.inf, 2.0]])
    torch.testing.assert_close(composite_functions.cdist(None, points, points[1:], p), torch.cdist(points, points[1:], p), equal_nan=True)


SOLVED = """
class Model(nn.Module):
    def forward(self, a, b):
        return torch.linalg.solve(a, b), (torch.linalg.solve(a.cfloat(), a.cfloat()) + 1).real, a.inverse(), torch.linalg.cholesky(a)
def get_inputs(): return [torch.randn(2, 3, 3), torch.randn(2, 3)]
"""


def test_on_the_path_for_known_sizes_nobody_waits_to_learn_that_a_matrix_was_singular() -> None:
    """Its results are NaN there; torch.compile's are what the solver left."""
    graph = captured(SOLVED, Options(extern="allow", symbolic=False)).graph.graph
    assert sum("linalg" in str(node.target) for node in graph.nodes) == 4
    assert not any(node.kwargs.get("check_errors") for node in graph.nodes)
    a = torch.eye(3).repeat(2, 1, 1)
    a[1, 2, 2] = 0.0
    solve = torch.linalg.solve
    for solver, *right in ((solve, torch.ones(2, 3)), (solve, torch.ones(3, 2)), (torch.inverse,), (torch.linalg.cholesky,)):
        out = linear_algebra.checked(solver, (a, *right), {}, raises=False)
        assert out[0].isfinite().all()
        assert out[1].isnan().all()


LATTICE = """
class Model(nn.Module):
    def forward(self, links):
        plaquette = links @ links.roll(-1, 1) @ links.roll(-1, 2).mH
        return torch.view_as_real(plaquette)
batch, time, side, colours = 2, 4, 6, 3
def get_inputs(): return [torch.randn(batch, time, side, colours, colours, dtype=torch.complex64)]
def get_init_inputs(): return []
"""


def test_small_matrices_on_a_lattice_are_multiplied_where_they_lie(quick: Judge) -> None:
    source = compiled(problem(LATTICE), Options())
    assert "batched_matmul" not in source
    verdict = quick.judge(problem(LATTICE), Candidate(source=source))
    assert verdict.correct, verdict.message
