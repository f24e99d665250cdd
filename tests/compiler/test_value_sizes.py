"""Sizes that only the values of tensors tell: torch finds the positions, kernels do the rest. And decisions on values."""

import math

import pytest
import torch
from compiled import captured, problem

from kernelllm.compiler.capture.capture import fixed_constants
from kernelllm.compiler.capture.fx_trace import of_inputs
from kernelllm.compiler.compiler_writer import Compiler
from kernelllm.compiler.options import Options
from kernelllm.core.errors import CaptureError
from kernelllm.judge import Judge

EXPERTS = """
class Model(nn.Module):
    def __init__(self, width, count):
        super().__init__()
        self.count, self.gate = count, nn.Linear(width, count)
        self.weight = nn.Parameter(torch.randn(count, width, width) * 0.2)
    def forward(self, x):
        score, chosen = self.gate(x).softmax(-1).topk(2, -1)
        of = F.one_hot(chosen, self.count).permute(2, 1, 0)
        out = torch.zeros_like(x)
        for expert in torch.greater(of.sum((-1, -2)), 0).nonzero():
            expert = expert[0]
            if expert == self.count:
                continue
            place, token = torch.where(of[expert])
            out.index_add_(0, token, torch.tanh(x[token] @ self.weight[expert]) * score[token, place, None])
        return out
def get_inputs(): return [torch.randn(24, 16)]
def get_init_inputs(): return [16, 3]
"""

MASKED = """
class Model(nn.Module):
    def forward(self, x, y):
        found = x > 0.2
        out = y.exp()
        out[found] = y[found] * 2
        values, counts = torch.unique((x * 3).round(), return_counts=True)
        return out, y[found] + 1, (values * counts).sum(), y[x > 100].sum()
def get_inputs(): return [torch.randn(40), torch.randn(40, 6)]
"""


def test_a_loop_over_the_experts_that_tokens_chose(quick: Judge) -> None:
    (candidate,) = Compiler().write(problem(EXPERTS), 1)
    verdict = quick.judge(problem(EXPERTS), candidate)
    assert verdict.correct, verdict.message
    assert "= grouped_matmul(" in candidate.source  # which a list of experts leads to as well


GROUPED = """
class Model(nn.Module):
    def __init__(self, width, count):
        super().__init__()
        self.count, self.gate = count, nn.Linear(width, count)
        self.weight = nn.Parameter(torch.randn(count, width, 24) * 0.2)
    def forward(self, x):
        score, chosen = self.gate(x).softmax(-1).max(-1)
        order = chosen.argsort()
        ends = torch.histc(chosen.float(), self.count, 0, self.count - 1).cumsum(0).to(torch.int32)
        y = F.grouped_mm(x[order], self.weight, offs=ends) * score[order, None]
        return torch.zeros_like(y).index_copy(0, order, y), torch.bincount(chosen, minlength=self.count) / x.shape[0]
def get_inputs(): return [torch.randn(24, 16)]
def get_init_inputs(): return [16, 3]
"""


def test_each_experts_rows_meet_its_matrix_in_one_kernel(quick: Judge) -> None:
    (candidate,) = Compiler().write(problem(GROUPED), 1)
    verdict = quick.judge(problem(GROUPED), candidate)
    assert verdict.correct, verdict.message
    assert all(f"def {name}_kernel" in candidate.source for name in ("grouped_matmul", "bincount"))


def test_more_counts_than_are_asked_for_are_an_error(judge: Judge) -> None:
    """torch would give a longer result, for which the kernels around it were not written."""
    text = """
class Model(nn.Module):
    def forward(self, x, y): return torch.bincount(x, minlength=9) * y
def get_inputs(): return [torch.randint(0, %d, (40,)), torch.randn(9)]
"""
    (candidate,) = Compiler().write(problem(text % 9), 1)
    assert judge.judge(problem(text % 9), candidate).correct
    verdict = judge.judge(problem((text % 12).replace("* y", "[:9] * y")), candidate)
    assert "more counts than the kernels here take" in verdict.message


def test_masks_as_indices_and_unique_values(judge: Judge) -> None:
    (candidate,) = Compiler().write(problem(MASKED), 1)
    verdict = judge.judge(problem(MASKED), candidate)
    assert verdict.correct, verdict.message


BRANCHES = """
class Model(nn.Module):
    def forward(self, x):
        if torch.isnan(x).any():
            x = torch.nan_to_num(x, 2.0)
        if not torch.allclose(x, x.flip(0), atol=99.0) and x.shape[0] > 1:
            raise ValueError("not symmetric")
        y = x.exp()
        if y.mean() > 5 and (y > 0).all():
            return y / 2, 1
        return y + 1, 1
size = 12
def get_inputs(): return [torch.randn(size)]
"""


def test_branches_on_values_are_both_in_the_graph(judge: Judge) -> None:
    graph = captured(BRANCHES).graph
    for x in (torch.zeros(12), torch.full((12,), 3.0), torch.tensor([float("nan")] * 12), torch.tensor([float("nan")] + [0.0] * 11)):
        clean = torch.nan_to_num(x, 2.0)
        expected = clean.exp() / 2 if clean.exp().mean() > 5 else clean.exp() + 1
        torch.testing.assert_close(graph(12, x)[0], expected)
    assert [str(n.target) for n in graph.graph.nodes].count("aten.exp.default") == 2  # of x, and of x without NaN
    (candidate,) = Compiler().write(problem(BRANCHES), 1)
    assert judge.judge(problem(BRANCHES), candidate).correct


REFUSED = {
    "y = x * 2 if x.sum() > 0 else x[:2]": "the size of its result",
    "y = x[i] if i.max() < 4 else x * 2": "which indices",
    "y = x + torch.rand(4) if x.sum() > 0 else x": "random",
    "y = x.add_(1) if x.sum() > 0 else x * 2": "writes into",
    "y = x\n        while y.sum() > 1:\n            y = y / 2": "more than 8 times",
}


@pytest.mark.parametrize(("line", "cause"), REFUSED.items())
def test_branches_that_cannot_both_be_computed_are_refused(line: str, cause: str) -> None:
    body = f"class Model(nn.Module):\n    def forward(self, x, i):\n        {line}\n        return y\n"
    with pytest.raises(CaptureError, match=cause):
        captured(body + "def get_inputs(): return [torch.randn(4), torch.randint(0, 4, (4,))]\n")


READ_OFF = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.logit_scale = nn.Parameter(torch.tensor(0.5))
    def forward(self, x, whole, count):
        scale = x.abs().max().item() / 127
        rounded = (x / scale).round().clamp(-128, 127).to(torch.int32)
        most = min(float(self.logit_scale.exp()), 100.0)
        if x.sum().item() > 0:
            most = most + 1
        return rounded, rounded * scale, x.half() * most, whole * int(count), x.pow(count.item()) / most
def get_inputs(): return [torch.randn(5, 12), torch.randint(0, 9, (4,)), torch.tensor(2)]
"""


def test_numbers_read_off_tensors_stay_on_the_device(judge: Judge) -> None:
    (candidate,) = Compiler().write(problem(READ_OFF), 1)
    verdict = judge.judge(problem(READ_OFF), candidate)
    assert verdict.correct, verdict.message
    assert ".item()" not in candidate.source


LENGTHS = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.table = nn.Embedding(64, width)
    def forward(self, x, n):
        places = self.table(torch.arange(n, device=x.device))
        return x @ places.t(), torch.zeros(int(n), 2, device=x.device) + x.mean()
rows, width = 20, 12
def get_inputs(): return [torch.randn(rows, width), torch.tensor(7)]
def get_init_inputs(): return [width]
"""


def test_a_tensor_that_holds_a_size(judge: Judge) -> None:
    (candidate,) = Compiler().write(problem(LENGTHS), 1)
    verdict = judge.judge(problem(LENGTHS), candidate)
    assert verdict.correct, verdict.message


ROUNDED = """
class Model(nn.Module):
    def forward(self, x):
        rows, width = x.shape
        y = F.pad(x, (0, math.ceil(width / 8) * 8 - width)).view(rows, -1, 8).mean(2)
        z = y * math.log(rows) + x[:, : math.floor(width / 3)].sum(1, keepdim=True) * math.log2(width)
        return z, x + math.ceil((rows - 50) / width), x + int((rows - 50) / 4), x + math.floor((rows - 50) / 4) + int(width / 4)
rows, width = 45, 29
def get_inputs(): return [torch.randn(rows, width)]
"""


def test_numbers_made_of_sizes_follow_them(judge: Judge) -> None:
    (candidate,) = Compiler().write(problem(ROUNDED), 1)
    verdict = judge.judge(problem(ROUNDED), candidate)
    assert verdict.correct, verdict.message
    assert "FIXED_SIZES" not in candidate.source


SHARES = """
class Model(nn.Module):
    def forward(self, x):
        rows, width = x.shape
        kept, most = int(0.29 * rows), math.ceil(1.1 * rows)
        return x[:kept] * 2, torch.where(torch.arange(rows)[:, None] < kept, x * most, most - x)
rows, width = 100, 16
def get_inputs(): return [torch.randn(rows, width)]
"""


def test_shares_of_sizes_are_rounded_as_python_rounds_them(judge: Judge) -> None:
    assert int(0.29 * 100) == 28
    assert math.ceil(1.1 * 100) == 111
    (candidate,) = Compiler().write(problem(SHARES), 1)
    verdict = judge.judge(problem(SHARES), candidate)
    assert verdict.correct, verdict.message
    assert "FIXED_SIZES" not in candidate.source


RETURNED = """
class Model(nn.Module):
    def forward(self, x):
        return x * 2, x.max().item()
def get_inputs(): return [torch.randn(8)]
"""


def test_a_number_among_the_results_is_one(judge: Judge) -> None:
    (candidate,) = Compiler().write(problem(RETURNED), 1)
    verdict = judge.judge(problem(RETURNED), candidate)
    assert verdict.correct, verdict.message
    assert ".item()" in candidate.source


SPACED = """
class Model(nn.Module):
    def forward(self, x):
        depth = torch.linspace(2.0, 6.0, x.shape[1], device=x.device)
        return (x * depth[:, None] * torch.logspace(-1, 1, x.shape[2], 2.0)).sum(1)
def get_inputs(): return [torch.randn(4, 24, 40)]
"""


def test_as_many_even_numbers_as_a_size_says(quick: Judge) -> None:
    (candidate,) = Compiler().write(problem(SPACED), 1)
    verdict = quick.judge(problem(SPACED), candidate)
    assert verdict.correct, verdict.message
    assert "(None, None, None)" in candidate.source


ASKED = """
class Model(nn.Module):
    def __init__(self, width, count):
        super().__init__()
        self.gate, self.experts = nn.Linear(width, count), nn.ModuleList(nn.Linear(width, width) for _ in range(count))
    def forward(self, x, open_):
        score, chosen = self.gate(x).softmax(-1).max(-1)
        counts = torch.bincount(chosen, minlength=len(self.experts)).tolist()
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            if counts[i] == 0:
                continue
            mask = (chosen == i) & open_
            if mask.any():
                out[mask] += torch.tanh(expert(x[mask])) * score[mask, None]
        return out
def get_inputs(): return [torch.randn(20, 16), torch.rand(20) > 0.2]
def get_init_inputs(): return [16, 4]
"""
DECIDES = """
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.project = nn.Linear(width, width)
    def forward(self, x, mask, kind):
        y = self.project(x)
        if %s:
            y = y.index_add(0, (kind == 1).nonzero().squeeze(1), y[kind == 1])
        return y
def get_inputs(): return [torch.randn(12, 16), torch.rand(12) > 0.5, torch.randint(0, 3, (12,))]
def get_init_inputs(): return [16]
"""


def test_experts_without_tokens_have_no_rows(quick: Judge) -> None:
    (candidate,) = Compiler().write(problem(ASKED), 1)
    verdict = quick.judge(problem(ASKED), candidate)
    assert verdict.correct, verdict.message


def test_experts_without_tokens_have_gradients() -> None:
    assert captured(ASKED, Options(backward=True)).backward is not None


@pytest.mark.parametrize("question", ["mask.any()", "(y > -3).any()", "mask.sum() > 0", "(kind == 0).any()"])
def test_what_a_question_decides_besides_is_not_taken_for_granted(question: str) -> None:
    with pytest.raises(CaptureError, match="decide what it does"):
        captured(DECIDES % question, Options(backward=True))


SPLIT = """
class Model(nn.Module):
    def __init__(self, width, count):
        super().__init__()
        self.count, self.gate = count, nn.Linear(width, count)
        self.weight, self.bias = nn.Parameter(torch.randn(count, 24, width) * 0.2), nn.Parameter(torch.randn(count, 24))
        self.back, self.rates = nn.Parameter(torch.randn(count, 12, width) * 0.2), nn.Parameter(torch.randn(count))
    def forward(self, x):
        score, chosen = self.gate(x).softmax(-1).max(-1)
        order = chosen.argsort()
        counts = COUNTS
        made = []
        for place, part in enumerate(x[order].split(counts.tolist())):
            if part.shape[0] == 0:
                continue
            MADE
        y = torch.cat(made)
        return torch.zeros_like(y).index_add(0, order, y) * score[:, None]
def get_inputs(): return [torch.randn(24, 16)]
def get_init_inputs(): return [16, 3]
"""
PLAIN = "made.append(F.linear(part, self.weight[place]))"
GATED = """a, b = F.linear(part, self.weight[place], self.bias[place]).chunk(2, -1)
            made.append((F.silu(a) * b + self.rates[place]) @ self.back[place])"""
COUNTS = ["(chosen[:, None] == torch.arange(self.count)).sum(0)", "torch.bincount(chosen, minlength=self.count)"]


@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize(("made", "products"), [(PLAIN, 1), (GATED, 2)])
def test_parts_that_each_have_a_matrix_of_one_stack_are_one_product(counts: str, made: str, products: int, quick: Judge) -> None:
    text = SPLIT.replace("COUNTS", counts).replace("MADE", made)
    (candidate,) = Compiler().write(problem(text), 1)
    verdict = quick.judge(problem(text), candidate)
    assert verdict.correct, verdict.message
    assert candidate.source.count("= grouped_matmul(") == products
    assert ".tolist()" not in candidate.source


def test_lengths_of_parts_are_read_at_once(quick: Judge) -> None:
    """Where the parts are not one product: a matrix is read twice, and one never."""
    text = SPLIT.replace("COUNTS", COUNTS[0]).replace("MADE", PLAIN.replace("[place]", "[place // 2]"))
    (candidate,) = Compiler().write(problem(text), 1)
    verdict = quick.judge(problem(text), candidate)
    assert verdict.correct, verdict.message
    assert (candidate.source.count(".tolist()"), candidate.source.count(".item()")) == (1, 0)


ROWS = """
class Model(nn.Module):
    def __init__(self, width, count):
        super().__init__()
        self.gate = nn.Linear(width, count)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(count))
    def forward(self, x):
        score, chosen = self.gate(x).softmax(-1).max(-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            (rows,) = torch.where(chosen == number)
            if {question}:
                continue
            out.index_add_(0, rows, expert(x[rows]) * score[rows, None])
        return out
def get_inputs(): return [torch.randn(6, 16)]
def get_init_inputs(): return [16, 12]
"""


@pytest.mark.parametrize("question", ["rows.shape[0] == 0", "rows.numel() < 1"])
def test_an_expert_that_asks_for_its_number_of_rows_is_written_once(question: str, quick: Judge) -> None:
    asks = problem(ROWS.replace("{question}", question))
    (candidate,) = Compiler().write(asks, 1)
    verdict = quick.judge(asks, candidate)  # with fewer tokens than experts
    assert verdict.correct, verdict.message


LONG = """
class Model(nn.Module):
    def forward(self, x):
        values, places = x.sort(0)
        return values * 2 + places
rows = 6000
def get_inputs(): return [torch.randn(rows, 3)]
"""


def test_what_torch_sorts_may_have_any_length(judge: Judge) -> None:
    (candidate,) = Compiler().write(problem(LONG), 1)
    assert "torch.ops.aten.sort" in candidate.source
    assert "raise ValueError(f\"the kernels were written for" not in candidate.source
    assert judge.judge(problem(LONG), candidate).correct


BETWEEN = """
class Model(nn.Module):
    def __init__(self, width, count):
        super().__init__()
        self.gate = nn.Linear(width, count)
        self.experts = nn.ModuleList(nn.Linear(width, 8 + i) for i in range(count))
    def forward(self, x):
        chosen = self.gate(x).topk(2, -1)[1]
        order = chosen.view(-1).argsort()
        rows, start, made = x[order // 2], 0, []
        for i, number in enumerate(F.one_hot(chosen, len(self.experts)).sum((0, 1)).cpu().numpy()):
            end = start + number
            if number == 0:
                continue
            made.append(self.experts[i](rows[start:end])[:, :8])
            start = end
        made = torch.cat(made)
        out = torch.empty_like(made)
        out[order] = made
        return out.view(*chosen.shape, -1).sum(1)
def get_inputs(): return [torch.randn(10, 16)]
def get_init_inputs(): return [16, 3]
"""


def test_rows_between_sums_of_counts_that_numpy_has(quick: Judge) -> None:
    (candidate,) = Compiler().write(problem(BETWEEN), 1)
    verdict = quick.judge(problem(BETWEEN), candidate)
    assert verdict.correct, verdict.message
    assert "FIXED_SIZES" not in candidate.source


def test_rows_behind_the_last_count_are_left_out(quick: Judge) -> None:
    head, tail = BETWEEN.split("        made = torch.cat(made)\n")
    head = head.replace(".sum((0, 1)).cpu()", ".sum((0, 1))[:-1].cpu()")
    text = f"{head}        return torch.cat(made).sum(0)\n{tail[tail.index('def get_inputs') :]}"
    (candidate,) = Compiler().write(problem(text), 1)
    verdict = quick.judge(problem(text), candidate)
    assert verdict.correct, verdict.message


GRID = """
import math
class Model(nn.Module):
    def __init__(self, grid, dim):
        super().__init__()
        self.pos = nn.Parameter(torch.randn(1, grid * grid, dim))
    def forward(self, x):
        side = int(ROOT)
        places = self.pos.reshape(1, side, side, -1)
        return x * places + places.sum(2, keepdim=True)
grid, dim = 9, 20
def get_inputs(): return [torch.randn(2, grid, grid, dim)]
def get_init_inputs(): return [grid, dim]
"""


@pytest.mark.parametrize("root", ["math.sqrt(self.pos.shape[1])", "self.pos.shape[1] ** 0.5"])
def test_the_side_of_a_square_is_a_size(root: str, quick: Judge) -> None:
    case = problem(GRID.replace("ROOT", root))
    (candidate,) = Compiler().write(case, 1)
    assert "FIXED_SIZES" not in candidate.source
    verdict = quick.judge(case, candidate)
    assert verdict.correct, verdict.message
    assert len(verdict.shapes) > 1


NAMED_BY_SIZE = """
class Model(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.widths = widths
        for n in widths:
            self.register_buffer(f"window_{n}", torch.hann_window(n))
    def forward(self, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            how = {"return_complex": True}
            y = sum(torch.stft(x, n, n // 4, n, getattr(self, f"window_{n}"), **how).abs().sum() for n in self.widths)
            return torch.autograd.grad(y, [x])[0]
batch, samples, widths = 4, 4096, (256, 512)
def get_inputs(): return [torch.randn(batch, samples)]
def get_init_inputs(): return [widths]
"""


def test_sizes_of_inputs_vary_where_those_of_the_model_cannot() -> None:
    """A buffer is named by a size, and torch.export takes no gradients."""
    found = of_inputs(problem(NAMED_BY_SIZE), Options())
    assert fixed_constants(found) == {"widths": (256, 512)}
