"""The emitter's parts: integer arithmetic that keeps its value, layout, constructors, names, split reductions."""

from __future__ import annotations

import ast
import itertools
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kernelllm.compiler.emit import formatting, host_arithmetic, index_limits
from kernelllm.compiler.emit.ast_tools import prune
from kernelllm.compiler.emit.constructors import model_class
from kernelllm.compiler.emit.helpers import HELPERS, closure
from kernelllm.compiler.emit.kernels import integers
from kernelllm.compiler.emit.kernels.folding import fold, shared_masks
from kernelllm.compiler.emit.kernels.readable_names import fresh_name, operator_words
from kernelllm.compiler.emit.launcher import wrapped
from kernelllm.compiler.inductor import split_reductions
from kernelllm.core.errors import CaptureError

SIZES = ("ks0", "ks1", "ks2")
INDICES = ("x0", "r0_1")


def expressions() -> st.SearchStrategy[str]:
    leaves = st.sampled_from([*SIZES, *INDICES, "1", "2", "7"])

    def grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        pairs = st.tuples(inner, inner)
        return st.one_of(
            pairs.map(lambda p: f"({p[0]} + {p[1]})"),
            pairs.map(lambda p: f"({p[0]} * {p[1]})"),
            pairs.map(lambda p: f"({p[0]} + ((-1)*{p[1]}))"),
            st.tuples(inner, st.sampled_from([*SIZES, "4"])).map(lambda p: f"({p[0]} // {p[1]})"),
            st.tuples(inner, st.sampled_from([*SIZES, "4"])).map(lambda p: f"({p[0]} % {p[1]})"),
        )

    return st.recursive(leaves, grow, max_leaves=6)


@settings(max_examples=150)
@example("(2 * (ks1 // ks0))", [2, 1, 1, 1, 1])
@example("((ks0 % 4) * (2 * (ks1 // ks0)))", [2, 1, 1, 1, 1])
@given(expressions(), st.lists(st.integers(1, 9), min_size=5, max_size=5))
def test_rewritten_integers_keep_their_value(text: str, numbers: list[int]) -> None:
    values = dict(zip((*SIZES, *INDICES), numbers, strict=True))
    expected = eval(text, {}, values)
    tree = ast.parse(text, mode="eval").body
    assert eval(integers.pretty(integers.to_sympy(tree)), {}, values) == expected
    assert eval(ast.unparse(integers.collect(tree, SIZES)), {}, values) == expected


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("1 + ((-1)*s1) + ((-1)*s2) + s1*s2", "(s1 - 1) * (s2 - 1)"),
        ("s0*max(1, (-1) + s1)", "s0 * (s1 - 1)"),
        ("128 + 128*(s1 // 2)", "128 * (s1 // 2 + 1)"),
    ],
)
def test_sizes_are_factored(before: str, after: str) -> None:
    assert integers.pretty(integers.parse(before)) == after


def test_indices_are_grouped_by_stride() -> None:
    tree = ast.parse("(-1) + x0 + ((-1)*ks3) + ks3*x1 + ks2*ks3*x2", mode="eval").body
    assert ast.unparse(integers.collect(tree, ["ks2", "ks3"])) == "x2 * (ks2 * ks3) + (x1 - 1) * ks3 + x0 - 1"


@pytest.mark.parametrize("text", ["a * b / (k * k / 7 / 7.0)", "1 / (k * k)", "3 / (k * k)", "-a / (k * k)", "(a + b) / (k * k)"])
def test_ratio_keeps_its_value(text: str) -> None:
    sizes = {"a": 12, "b": 5, "k": 3}
    assert eval(ast.unparse(integers.ratio(integers.to_ast(text))), sizes) == pytest.approx(eval(text, sizes))


def test_ratio_cancels() -> None:
    tree = ast.parse("(n*m / n) / (-1.0 + (n*m / n))", mode="eval").body
    assert ast.unparse(integers.ratio(tree)) == "m / (m - 1)"
    assert ast.unparse(integers.ratio(integers.to_ast("0.5 / n"))) == "1 / (2 * n)"
    factor = integers.to_ast("0.0010000000474974513 / n")
    assert integers.ratio(factor) is factor, "10**19 is no whole number of a kernel"


@given(st.lists(st.sampled_from(["alpha", "f(x, y)", "beta[1, 2]", "'a, b'", "k=3"]), min_size=1, max_size=30))
def test_broken_lines_mean_the_same(parts: list[str]) -> None:
    positional = [p for p in parts if p != "k=3"] + (["k=3"] if "k=3" in parts else [])
    line = f"result = function({', '.join(positional)})"
    lines = formatting.broken(line, 60)
    assert ast.unparse(ast.parse("\n".join(lines))) == ast.unparse(ast.parse(line))
    assert all(len(each) <= 60 for each in lines)


PROBLEM = '''
import numpy as np
import torch
import torch.nn as nn

width = 3
UNUSED = 4

def scale(n):
    """How much."""
    return n * FACTOR

FACTOR = 2

class Block(nn.Module):
    """Old behaviour."""
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, scale(width))
    def forward(self, x):
        return np.tanh(self.fc(x))

class Model(nn.Module):
    def __init__(self, width):
        super(Model, self).__init__()
        self.block = self.make(width)
    def make(self, width):
        return Block(width)
    def helper(self, x):
        return x
    def forward(self, x, scale_by: float = 2.0):
        return self.helper(self.block(x))
'''


def test_constructor_is_carried_with_what_it_needs_alone() -> None:
    carried = model_class.kept_parts(PROBLEM)
    text = "\n".join(ast.unparse(d) for d in carried.definitions)
    assert "FACTOR = 2" in text
    assert "def scale" in text
    assert "class Block" in text
    assert "UNUSED" not in text
    assert "width = 3" not in text
    assert "np.tanh" not in text
    assert carried.foreign == []
    assert [n.name for n in carried.model.body if isinstance(n, ast.FunctionDef)] == ["__init__", "make"]
    assert "super(ModelNew, self)" in ast.unparse(carried.model)
    assert [a.arg for a in carried.forward.args.args] == ["self", "x", "scale_by"]


def test_no_model_is_an_error() -> None:
    with pytest.raises(CaptureError, match="Model"):
        model_class.kept_parts("x = 1")


def test_kernels_are_called_after_what_they_compute() -> None:
    assert operator_words(["aten.view", "aten.gelu", "aten.addmm"]) == ["gelu", "bias"]
    assert operator_words(["aten.amax", "aten.sub", "aten.exp", "aten.sum", "aten.div"]) == ["softmax"]
    taken = {"gelu_kernel"}
    assert fresh_name("gelu_kernel", taken) == "gelu_2_kernel"
    assert fresh_name("warmup", taken) == "warmup_"  # a launch has a keyword of this name


def test_folding_moves_nothing_across_a_store_or_out_of_a_loop() -> None:
    body = ast.parse(
        "a = tl.load(p)\ntl.store(p, 0)\nb = a * 2\nc = b + 1\nfor i in range(3):\n    d = c + i\n    tl.store(q + i, d)\n"
    ).body
    text = "\n".join(ast.unparse(ast.fix_missing_locations(s)) for s in prune(fold(body)))
    assert text.index("tl.load(p)") < text.index("tl.store(p, 0)")
    assert text.index("c = a * 2 + 1") < text.index("for i")
    assert "tl.store(q + i, c + i)" in text


@given(st.integers(split_reductions.SMALLEST, 20_000))
def test_marks_are_primes_near_the_number(parts: int) -> None:
    mark = split_reductions.mark(parts)
    assert split_reductions.is_prime(mark)
    assert parts // 2 < mark <= parts


def test_helpers_come_with_what_they_need() -> None:
    assert closure({"argmax_along"}) == ["maximum", "max_along", "argmax_along"]
    assert all(helper.text.startswith("@triton.jit") for helper in HELPERS.values())


def test_a_long_tuple_of_one_stays_a_tuple() -> None:
    factors = [f"blocks_of_dimension_{i}" for i in range(8)]
    lines = formatting.broken(f"grid = ({' * '.join(factors)},)", 60)
    assert len(lines) > 2
    names: dict[str, object] = dict.fromkeys(factors, 2)
    exec("\n".join(lines), names)
    assert names["grid"] == (256,)


def test_a_long_sum_in_parentheses_is_broken_inside() -> None:
    line = f"y = load(pointer + ({' + '.join(f'stride_{i} * index_{i}' for i in range(8))}), mask).to(kind)"
    lines = formatting.broken(line, 60)
    assert ast.unparse(ast.parse("\n".join(lines))) == ast.unparse(ast.parse(line))
    assert all(len(each) <= 60 for each in lines)


HOST = """
@triton.jit
def kernel(n: tl.constexpr):
    return triton.cdiv(n, 2)

def launch(m, n, block):
    grid = lambda meta: (triton.cdiv(m * 2, meta["BLOCK"]) * triton.cdiv(triton.cdiv(n, 4), 8), n // triton.cdiv(m, 3), triton.cdiv(n + 1,
        block + m), triton.cdiv(triton.cdiv(n, block), block), 100 - triton.cdiv(n, 2), -triton.cdiv(n, block), triton.cdiv(33, 32))
    return grid({"BLOCK": 7}), 2 * triton.next_power_of_2(n), max(1, triton.next_power_of_2(triton.cdiv(n, 3))), triton.next_power_of_2(9)
"""


def test_triton_s_helpers_are_plain_arithmetic_on_the_host() -> None:
    triton = pytest.importorskip("triton")
    plain = host_arithmetic.plain(HOST)
    kernel, host = plain.split("def launch")
    assert "triton." not in host
    assert kernel == HOST.split("def launch")[0]
    both: list[dict[str, Any]] = []
    for text in (HOST, plain):
        both.append({"triton": triton})
        exec("def launch" + text.split("def launch")[1], both[-1])
    for m, n, block in itertools.product((1, 2, 9), (1, 2, 3, 31, 32, 33, 1000), (1, 3, 16)):
        assert both[1]["launch"](m, n, block) == both[0]["launch"](m, n, block)


def test_of_limits_one_may_hold_a_size_that_the_file_does_not_name() -> None:
    named, unnamed = ("4096*s0", "<=", "2147483647"), ("31360*s11", "<=", "2147483647")
    assert index_limits.uncovered([named, unnamed], [], {"s0": 64}) == named
    assert index_limits.uncovered([unnamed], [], {}) == unnamed


def test_a_kernel_whose_options_the_file_puts_together_is_launched_as_it_is() -> None:
    """Recurrent layers take a launch for all steps where kernels are compiled."""
    kernel = "@triton.jit\ndef {}(x_ptr, n, BLOCK: tl.constexpr):\n    pass"
    host = "walk_kernel[(1,)](x, n, BLOCK=16, **extra)\ncopy_kernel[(1,)](x, n, BLOCK=16)"
    *_, walk, copied = wrapped([kernel.format("walk_kernel"), kernel.format("copy_kernel")], host, always=True)
    assert walk.startswith("@triton.jit")
    assert copied.startswith("@Launcher\n@triton.jit")


def test_a_chain_of_assignments_is_broken_between_its_targets() -> None:
    source = " = ".join([f"table[{i}, {i + 1}, {i + 2}]" for i in range(12)]) + " = 1 / math.sqrt(2)"
    text = formatting.text(ast.parse(source).body)
    assert all(len(line) <= 120 for line in text.splitlines())
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(source))


def test_masks_of_a_loop_do_not_take_the_name_of_the_masks_around_it() -> None:
    body = ast.parse("""
table = tl.load(in_ptr0 + places, xmask & ymask)
for r0_offset in range(0, r0_numel, R0_BLOCK):
    left = tl.load(in_ptr1 + r0_index, r0_mask & xmask)
    right = tl.load(in_ptr2 + r0_index, r0_mask & xmask)
tl.store(out_ptr0 + places, table, xmask & ymask)
""").body
    lines = ast.unparse(ast.fix_missing_locations(ast.Module(shared_masks(body), []))).splitlines()
    named = dict(line.strip().split(" = ") for line in lines if "mask = " in line)
    assert sorted(named.values()) == ["r0_mask & xmask", "xmask & ymask"]
    assert next(name for name, value in named.items() if value == "xmask & ymask") in lines[-1]
