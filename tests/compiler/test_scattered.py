"""What gathers and scatters: bags of rows, edges of graphs, classes picked by number."""

import re

import pytest
from compiled import problem

from kernelllm.compiler.compiler_writer import Compiler, compiled
from kernelllm.compiler.options import Options
from kernelllm.core.types import Candidate
from kernelllm.judge import Judge

FIRST_CLASS = """
class Model(nn.Module):
    def forward(self, x, y):
        logits = torch.cat([(x * y).sum(1, keepdim=True), x @ y.t()], 1) / 0.2
        return F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long, device=x.device))
batch, width = 24, 40
def get_inputs(): return [torch.randn(batch, width), torch.randn(batch, width)]
def get_init_inputs(): return []
"""


def test_targets_that_are_a_constant_leave_nothing_to_compare(judge: Judge) -> None:
    candidate = next(Compiler().write(problem(FIRST_CLASS), 1))
    assert "-100" not in candidate.source
    verdict = judge.judge(problem(FIRST_CLASS), candidate)
    assert verdict.correct, verdict.message


EDGES = """
class Model(nn.Module):
    def forward(self, x, y, edges, weight):
        return (F.leaky_relu(x[edges[0]] + y[edges[1]], 0.2) * weight).sum(-1)
nodes, edges, heads, width = 100, 120000, 8, 16
def get_inputs(): return [*torch.randn(2, nodes, heads, width), torch.randint(0, nodes, (2, edges)), torch.randn(heads, width)]
def get_init_inputs(): return []
"""


def test_programs_beyond_the_end_of_a_grid_of_three_dimensions_store_nothing() -> None:
    """Of one row each, 120,000 blocks are 65,535 x 2 programs; blocks of four fit, and need no mask."""
    tuned, single = (compiled(problem(EDGES), Options(extern="allow", symbolic=False, autotune=t)) for t in (True, False))
    assert '"BLOCK_GROUPS": 1}' in tuned
    for text, masked in ((tuned, True), (single, False)):
        assert (re.search(r"groups < (n_groups|120000)", text) is not None) == masked


TUNED = """
class Model(nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.bag = nn.EmbeddingBag(rows, width, mode="sum", include_last_offset=True)
    def forward(self, ids, starts, x):
        return torch.cat([self.bag(ids, starts), torch.softmax(x, 1)], 1) * 2
rows, width, bags, total = 50, 96, 64, 300
def get_inputs():
    starts = torch.cat([torch.zeros(1), torch.rand(bags - 1).sort()[0] * total, torch.full((1,), total)]).long()
    return [torch.randint(0, rows, (total,)), starts, torch.randn(bags, width)]
def get_init_inputs(): return [rows, width]
"""


def test_later_launches_of_a_tuned_kernel_are_those_of_the_interpreter(hybrid: Judge) -> None:
    text = compiled(problem(TUNED), Options(fixed=True, autotune=True))
    assert "Launcher\n@triton.autotune(" in text
    verdict = hybrid.judge(problem(TUNED), Candidate(source=text))
    assert verdict.correct, verdict.message


CACHE = """
class Model(nn.Module):
    def forward(self, positions, cache, k):
        cache = cache.clone()
        layer = cache[:, 0]
        layer[torch.arange(len(k), device=k.device), :, positions] = k
        return cache, layer.sum(-1)
batch, heads, steps, width = 6, 2, 48, 32
def get_inputs(): return [torch.randint(0, steps, (batch,)), torch.randn(batch, 2, heads, steps, width), torch.randn(batch, heads, width)]
def get_init_inputs(): return []
"""


def test_a_copy_that_is_written_into_is_not_the_input(judge: Judge) -> None:
    verdict = judge.judge(problem(CACHE), next(Compiler().write(problem(CACHE), 1)))
    assert verdict.correct, verdict.message


CLASSES = """
class Model(nn.Module):
    def forward(self, x, labels, weight):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            loss = (F.cross_entropy(x, labels, reduction="none", ignore_index=3) * weight).sum()
            return torch.autograd.grad(loss, x)[0]
rows, classes = 24, 70
def get_inputs(): return [torch.randn(rows, classes), torch.randint(0, classes, (rows,)), torch.rand(rows)]
def get_init_inputs(): return []
"""


def test_one_hot_rows_of_a_loss_are_compared_and_not_stored(judge: Judge) -> None:
    candidate = next(Compiler().write(problem(CLASSES), 1))
    assert candidate.source.count("_kernel[") == 1
    verdict = judge.judge(problem(CLASSES), candidate)
    assert verdict.correct, verdict.message


ONE_EACH = """
class Model(nn.Module):
    def forward(self, x, places, weight):
        marks = torch.full(x.shape, FILL).scatter(1, places.unsqueeze(1), 2.5)
        return marks * x, (marks * weight.unsqueeze(1)).sum(1), torch.zeros_like(x).scatter(-1, places[:3, None], 1.0)
rows, width = 24, 70
def get_inputs(): return [torch.randn(rows, width), torch.randint(0, width, (rows,)), torch.rand(rows) / 0]
def get_init_inputs(): return []
"""


@pytest.mark.parametrize("fill", ["0.0", "0.5"])
def test_numbers_put_into_a_constant_are_those_of_torch(fill: str, judge: Judge) -> None:
    """The last scatter has fewer rows than its tensor; sums with an infinite weight are NaN."""
    one = problem(ONE_EACH.replace("FILL", fill))
    verdict = judge.judge(one, Candidate(source=compiled(one, Options())))
    assert verdict.correct, verdict.message


PLACES = """
class Model(nn.Module):
    def forward(self, x, order, cluster, mask):
        back = torch.zeros_like(order).scatter_(0, order, torch.arange(order.shape[0], device=order.device))
        kept = torch.zeros_like(mask).scatter(0, order, mask)
        half = torch.zeros_like(x, dtype=torch.bfloat16).scatter(0, order[:, None].expand_as(x), x.to(torch.bfloat16))
        highest = torch.full((8, x.shape[1]), -100.0, device=x.device).index_reduce(0, cluster, x, "amax")
        return x[back], kept, half, highest, torch.zeros_like(x).index_reduce(1, cluster[:24], x, "amin", include_self=False)
def get_inputs(): return [torch.randn(60, 24), torch.randperm(60), torch.randint(0, 8, (60,)), torch.rand(60) < 0.5]
"""


def test_scatters_that_overwrite_and_extremes_of_rows_are_kernels(judge: Judge) -> None:
    """Inductor has the types that it cannot add up atomically left to torch, also where nothing is added."""
    text = compiled(problem(PLACES), Options())
    assert "torch.ops.aten" not in text
    verdict = judge.judge(problem(PLACES), Candidate(source=text))
    assert verdict.correct, verdict.message


PICKED = """
class Model(nn.Module):
    def forward(self, x, chosen, weight):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            log_p = x.gather(1, chosen[:, None])[:, 0] - x.logsumexp(1)
            (grad,) = torch.autograd.grad((log_p * log_p * weight).sum(), [x])
        return grad, x.detach().logsumexp(1)
rows, classes = 16, 4100
def get_inputs(): return [torch.randn(rows, classes), torch.randint(0, classes, (rows,)), torch.rand(rows)]
def get_init_inputs(): return []
"""


def test_the_gradient_of_a_number_picked_from_each_row_is_a_comparison(judge: Judge) -> None:
    candidate = next(Compiler().write(problem(PICKED), 1))
    forward = candidate.source.partition("class ModelNew")[2]
    assert forward.count("_kernel[") <= 1
    assert forward.count("row_logsumexp(") <= 1
    verdict = judge.judge(problem(PICKED), candidate)
    assert verdict.correct, verdict.message


TWO_SUMS = """
class Model(nn.Module):
    def forward(self, x, source, target):
        n, width = x.shape[0] // 4, x.shape[1]
        y = torch.tanh(x)
        first = torch.zeros(n, width, device=x.device).index_add(0, source, y * 2)
        second = torch.zeros(n, width, device=x.device).index_add(0, target, y)
        return first, second
rows, width = ROWS, 64
def get_inputs(): return [torch.randn(rows, width), torch.randint(0, rows // 4, (rows,)), torch.randint(0, rows // 4, (rows,))]
"""


@pytest.mark.parametrize(("rows", "kernels"), [(2**12, 1), (2**19, 2)])
def test_sums_at_positions_that_do_not_fit_a_cache_together_are_kernels_apart(rows: int, kernels: int) -> None:
    source = compiled(problem(TWO_SUMS.replace("ROWS", str(rows))), Options(extern="allow", symbolic=False, mixed=True))
    assert sum("tl.atomic_add" in kernel for kernel in source.split("@triton.jit")) == kernels


LARGEST = """
class Model(nn.Module):
    def forward(self, logits, history, penalty):
        table = torch.zeros_like(logits).scatter_reduce_(1, history[:, 1:], penalty[:, 1:], reduce="amax")
        places = (history[:5, :4, None] % 7).expand(5, 4, 3)
        least = torch.full((5, 7, 3), -1.0, device=logits.device).scatter_reduce(1, places, penalty[:5, :12].view(5, 4, 3), "amin")
        return logits - table, least
rows, vocabulary, length = 6, 40, 24
def get_inputs(): return [torch.randn(rows, vocabulary), torch.randint(0, 10, (rows, length)), torch.rand(rows, length)]
def get_init_inputs(): return []
"""


def test_the_largest_are_scattered_from_where_they_lie_into_a_constant(quick: Judge) -> None:
    source = compiled(problem(LARGEST), Options(fixed=True, mixed=True))
    assert "torch.empty(1, 1, device" in source  # a table of one element, which the template repeats as it copies
    assert "index.contiguous()" not in source
    verdict = quick.judge(problem(LARGEST), Candidate(source=source))
    assert verdict.correct, verdict.message
