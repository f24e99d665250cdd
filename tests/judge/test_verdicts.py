"""Each way to be right, wrong or broken gets its status, with a message that says what to do."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from judge.problems import MATMUL, SQUARE, candidate, elementwise, matmul, problem

from kernelllm.core.types import Candidate, KernelUse, Problem, Severity, SizeSet, Status
from kernelllm.judge import Judge, JudgeSettings
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.status_decision import compile_failure
from kernelllm.judge.trials.autotune_configurations import untried
from kernelllm.judge.trials.inputs import degenerate_sizes
from kernelllm.judge.trials.inputs.refused_sizes import refused_sizes
from kernelllm.judge.trials.reference_runs import reference_run
from kernelllm.problems import shrink


def test_a_correct_kernel_is_correct_with_its_evidence(warm: Judge) -> None:
    verdict = warm.judge(SQUARE, elementwise("v * v"))
    assert verdict.status is Status.CORRECT, verdict.message
    assert len({s.label for s in verdict.shapes}) == 2
    for shape in verdict.shapes:
        assert len({t.seed for t in verdict.trials if t.sizes == shape.label}) >= 3
    assert {t.kind for t in verdict.trials} >= {"problem", "normal", "large", "negative", "zeros", "tiny"}
    (kernel,) = verdict.kernels
    assert kernel.name == "unary_kernel"
    assert kernel.launches > 0
    assert kernel.registers
    assert kernel.target == "sm_90"
    assert verdict.environment["sandbox"]
    assert verdict.tolerance == 1e-4


@pytest.mark.parametrize("body", ["v * v + 1", "v * tl.load(x_ptr + offs + 64)"])
def test_a_failed_candidate_leaves_no_tensors_to_the_garbage_collector(warm: Judge, body: str) -> None:
    def tensors() -> int:
        return sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())

    warm.judge(SQUARE, elementwise("v * v"))  # what is kept of a problem is there now
    gc.collect()
    gc.disable()
    try:
        before = tensors()
        assert not warm.judge(SQUARE, elementwise(body)).correct
        assert tensors() <= before
    finally:
        gc.enable()


def test_memory_that_the_judge_itself_lacks_ends_one_verdict_not_the_run(warm: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    def starved(*_: object) -> None:
        raise torch.OutOfMemoryError("Tried to allocate 8.00 GiB.")

    with monkeypatch.context() as patched:
        patched.setattr(reference_run, "compare", starved)
        verdict = warm.judge(SQUARE, elementwise("v * v * 1.0"))
    assert verdict.status is Status.OUT_OF_MEMORY
    assert "8.00 GiB" in verdict.message
    assert warm.judge(SQUARE, elementwise("v * v + 0.0")).correct


@pytest.mark.parametrize(
    ("source", "status", "words"),
    [
        (elementwise("v * v + 0.001"), Status.INCORRECT, "off by more than the tolerance"),
        (elementwise("v * v", dtype=", dtype=torch.float64"), Status.INCORRECT, "wrong dtype"),
        (elementwise("tl.where(offs == 3, float('nan'), v * v)"), Status.INCORRECT, "NaN"),
        (elementwise("tl.foo(v)"), Status.COMPILE_ERROR, "foo"),
        (elementwise("v * v, mask=mask"), Status.INVALID, "repeated"),
        (elementwise("v * tl.load(x_ptr + offs + 64)"), Status.RUNTIME_ERROR, "illegal memory access"),
        (Candidate(source="import torch\nclass Other: pass"), Status.INVALID, "no ModelNew"),
        (Candidate(source="Here is the code: ```python"), Status.INVALID, "not Python"),
        (Candidate(source=""), Status.INVALID, "empty"),
    ],
)  # fmt: skip
def test_statuses(warm: Judge, source: Candidate, status: Status, words: str) -> None:
    verdict = warm.judge(SQUARE, source)
    assert verdict.status is status, verdict.message
    assert words in verdict.message


FLAT = problem(
    "torch.nn.functional.gelu(-((x.abs() + 0.5) * self.scale).sum(-1))",
    "[torch.randn(M, 64)]",
    init="self.scale = nn.Parameter(torch.ones(64))",
    extra="M = 128",
    name="flat",
)
"""Practically zero with its own parameters, whatever the inputs."""
_FLAT = """
@triton.jit
def flat_kernel(x_ptr, s_ptr, y_ptr, N: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + offs, mask=offs < N, other=0.0)
    s = tl.load(s_ptr + offs, mask=offs < N{fault}, other=0.0)
    v = -tl.sum((tl.abs(x) + 0.5) * s)
    tl.store(y_ptr + row, 0.5 * v * (1 + tl.erf(v * 0.7071067811865476)))
"""


@pytest.mark.parametrize(("fault", "status"), [("", Status.CORRECT), (" - 1", Status.INCORRECT)])
def test_a_fault_that_a_flat_function_swallows(warm: Judge, fault: str, status: Status) -> None:
    forward = """        y = torch.empty(x.shape[0], device=x.device)
        flat_kernel[(x.shape[0],)](x, self.scale, y, N=x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y"""
    wanted = candidate(_FLAT.format(fault=fault), forward, init="self.scale = nn.Parameter(torch.ones(64))")
    verdict = warm.judge(FLAT, wanted)
    assert verdict.status is status, verdict.message
    assert ("a hundredth of their size" in verdict.message) == bool(fault)


def test_torch_at_another_size_is_seen_where_outputs_are_large() -> None:
    kernel = """
@triton.jit
def power_kernel(x_ptr, y_ptr, n, POWER: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + offs, mask=offs < n)
    tl.store(y_ptr + offs, v * v if POWER == 2 else v, mask=offs < n)
"""
    forward = """        power = 2 if x.numel() < 100_000 else 1
        y, x = torch.empty_like(x), x if power == 2 else x * x
        power_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), POWER=power, BLOCK=1024)
        return y"""
    large = problem("x * x", "[torch.randn(ROWS, COLUMNS)]", extra="ROWS = 256\nCOLUMNS = 4096", name="large")
    with Judge(JudgeSettings(device="cpu", seeds=1, cache=False)) as judge:  # one run at the other size, whose output is sent twice
        verdict = judge.judge(large, candidate(kernel, forward))
    assert verdict.status is Status.CHEATING, verdict.message
    assert "(sizes: shrunk-2)" in verdict.message


@pytest.mark.parametrize(("forward", "status"), [("x * self.scale", Status.INCORRECT), ("x + 0 * self.scale", Status.CORRECT)])
def test_who_lacks_parameters_is_wrong_where_the_output_depends_on_them(warm: Judge, forward: str, status: Status) -> None:
    init = "self.scale = nn.Parameter(torch.ones(64))"
    scaled = problem(forward, "[torch.randn(M, 64)]", init=init, extra="M = 64", name="scaled")
    verdict = warm.judge(scaled, elementwise("v"))
    assert verdict.status is status, verdict.message
    told = verdict.message if status is Status.INCORRECT else next(f.message for f in verdict.findings if f.check == "own_state")
    assert "scale" in told


def test_adding_to_memory_that_nobody_wrote(warm: Judge) -> None:
    kernel = """
@triton.jit
def adding_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    v = tl.load(x_ptr + offs, mask=mask)
    tl.atomic_add(y_ptr + offs, v * v, mask=mask)
"""
    forward = """        y = torch.{make}_like(x)
        adding_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
        return y"""
    assert warm.judge(SQUARE, candidate(kernel, forward.format(make="zeros"))).correct
    verdict = warm.judge(SQUARE, candidate(kernel, forward.format(make="empty")))
    assert verdict.status is Status.INCORRECT
    assert "NaN" in verdict.message


def test_a_tanh_by_way_of_exp_is_right_near_zero_too(warm: Judge) -> None:
    scaled = problem(
        "torch.tanh(x * self.scale)", "[torch.randn(M, 64)]", init="self.scale = nn.Parameter(torch.rand(64))", extra="M = 64", name="tanh"
    )  # fmt: skip
    kernel = """
@triton.jit
def tanh_kernel(x_ptr, s_ptr, y_ptr, n, C, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    v = tl.load(x_ptr + offs, mask=mask) * tl.load(s_ptr + offs % C, mask=mask)
    tl.store(y_ptr + offs, 2 / (1 + tl.exp(-2 * v)) - 1, mask=mask)
"""
    forward = """        y = torch.empty_like(x)
        tanh_kernel[(triton.cdiv(x.numel(), 256),)](x, self.scale, y, x.numel(), x.shape[1], BLOCK=256)
        return y"""
    verdict = warm.judge(scaled, candidate(kernel, forward, init="self.scale = nn.Parameter(torch.rand(64))"))
    assert verdict.correct, verdict.message


def test_a_kernel_that_only_the_real_compiler_rejects(warm: Judge) -> None:
    """The interpreter multiplies blocks of any size; tensor cores want at least 16."""
    narrow = matmul(', input_precision="ieee"').source.replace("BK=32", "BK=8")
    verdict = warm.judge(MATMUL, Candidate(source=narrow))
    assert verdict.status is Status.COMPILE_ERROR, verdict.message
    assert "matmul_kernel" in verdict.message
    assert "sm_90" in verdict.message
    line = narrow.splitlines().index(next(text for text in narrow.splitlines() if "tl.dot" in text)) + 1
    assert f"line {line}" in verdict.message
    assert verdict.kernels[0].error


def test_the_quick_profile_compiles_all_but_the_machine_code() -> None:
    exact = matmul(', input_precision="ieee"').source
    with Judge(JudgeSettings(device="cpu", profile="quick")) as quick:
        right = quick.judge(MATMUL, Candidate(source=exact))
        narrow = quick.judge(MATMUL, Candidate(source=exact.replace("BK=32", "BK=8")))
        large = quick.judge(MATMUL, Candidate(source=matmul(', input_precision="tf32x3"').source.replace("BK=32", "BK=512")))
        wrong = quick.judge(MATMUL, Candidate(source=exact.replace("< K", "< K - 1")))
    assert right.status is Status.CORRECT, right.message
    assert right.environment["compiled"] == "LLVM IR for sm_90"
    (kernel,) = right.kernels
    assert (kernel.registers, kernel.spills, kernel.target) == (None, None, "sm_90")
    assert kernel.shared_bytes
    assert len({shape.inputs for shape in right.shapes}) == 2
    for shape in right.shapes:
        assert len({t.seed for t in right.trials if t.sizes == shape.label}) >= 3
    assert narrow.status is Status.COMPILE_ERROR, narrow.message
    assert not large.correct
    assert "shared memory" in large.message
    assert wrong.status is Status.INCORRECT


def test_a_kernel_that_only_other_sizes_launch_is_compiled_as_well(warm: Judge) -> None:
    """At the problem's own sizes a good kernel runs; at all others one that the compiler rejects."""
    source = matmul(', input_precision="ieee"').source
    kernel = source[source.index("@triton.jit") : source.index("class ModelNew")]
    other = kernel.replace("matmul_kernel", "other_kernel") + "\nclass ModelNew"
    launch = "matmul_kernel[(triton.cdiv(M, 32), triton.cdiv(N, 32))](x, w, out, M, N, K, BM=32, BN=32, BK=32)"
    assert launch in source
    both = f"if (M, K, N) == (64, 96, 80):\n            {launch}\n        else:\n            "
    both += launch.replace("matmul_kernel", "other_kernel").replace("BK=32", "BK=8")
    verdict = warm.judge(MATMUL, Candidate(source=source.replace("class ModelNew", other).replace(launch, both)))
    assert verdict.status is Status.COMPILE_ERROR, verdict.message
    assert "other_kernel" in verdict.message


LOOKS_FIRST = """
@triton.jit
def first_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n, other=0.0) + 0.0, mask=at < n)

@triton.jit
def second_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + at, x * x, mask=at < n)
"""


def test_why_a_kernel_was_never_compiled_is_told(warm: Judge) -> None:
    """The file looks at what its first kernel stored, which no compile computes."""
    body = """
        y, z, n = torch.empty_like(x), torch.empty_like(x), x.numel()
        if n:
            first_kernel[(triton.cdiv(n, 256),)](x, y, n, BLOCK=256)
            assert torch.equal(x, y), "the first kernel is wrong"
            second_kernel[(triton.cdiv(n, 256),)](y, z, n, BLOCK=256)
        return z"""
    verdict = warm.judge(SQUARE, candidate(LOOKS_FIRST, body))
    assert verdict.correct, verdict.message
    (found,) = [f for f in verdict.findings if f.check == "not_compiled"]
    assert "'second_kernel' ran in the interpreter and was never compiled for sm_90. A compile ended early: " in found.message
    assert "the first kernel is wrong" in found.message


def test_the_line_of_an_error_is_the_candidates_own(warm: Judge) -> None:
    source = elementwise("v * v").source.replace("        n = x.numel()", "        n = x.missing()")
    line = source.splitlines().index("        n = x.missing()") + 1
    verdict = warm.judge(SQUARE, Candidate(source=source))
    assert verdict.status is Status.RUNTIME_ERROR
    assert f"line {line}" in verdict.message
    assert "missing" in verdict.message


def test_a_full_disk_is_nobodys_compile_error() -> None:
    kernel = KernelUse(name="k", launches=1, error="OSError: [Errno 28] No space left on device")
    found = compile_failure([kernel], {}, "sm_90")
    assert found is not None
    assert (found.status, "TMPDIR" in found.message) == (Status.OUT_OF_MEMORY, True)


def test_configurations_that_nobody_saw_are_named() -> None:
    tried = {"k": {"BLOCK: 16": True, "BLOCK: 32": False}, "other": {}}
    assert untried({"k": {"BLOCK: 16": False}}, tried) is None
    assert untried({"k": {"BLOCK: 16": False, "BLOCK: 64": False}}, tried) == ("k", "BLOCK: 64")
    assert untried({"elsewhere": {"BLOCK: 64": False}}, tried) is None  # a kernel that never ran is told as one


SIDES = ((80, 100), (40, 50))


@pytest.mark.parametrize(
    ("said", "fixed"),
    [
        ("must be 32", {"D": 32}), ("a power of two, got 23", {"D": 32}), ("too long", {}), ("written for SEQ // B == 7", {"B": 64}),
        ("written for sides[0][1] == 100", {"SIDES": SIDES}), ("written for D >= 64, got 23", {"D": 32}),
        ("x: takes (float32,), (5, 24), cpu; got (float32, (5, 23), cpu)", {"D": 32}),
    ],
)  # fmt: skip
def test_a_refusal_tells_what_a_candidate_was_written_for(said: str, fixed: dict[str, int]) -> None:
    failure = CandidateFailure(Status.RUNTIME_ERROR, f"The candidate raised ValueError: {said}")
    failure.refused = True
    changed = {"D": (32, 23), "B": (64, 5), "SIDES": (SIDES, ((13, 16), (6, 8)))}
    reference: Any = SimpleNamespace(sizes=SizeSet(label="shrunk-1", changed=changed), problem=SQUARE)
    assert refused_sizes(failure, [reference]) == fixed


@pytest.mark.parametrize("word", ["raise ValueError(text)", "assert q.shape == k.shape"])
def test_a_refusal_that_names_nothing_is_about_sizes_that_were_equal_before(word: str) -> None:
    failure = CandidateFailure(Status.RUNTIME_ERROR, "The candidate raised ValueError: self attention alone")
    failure.refused, failure.trace = True, f"line 7, in forward: {word}"
    together = SimpleNamespace(sizes=SizeSet(label="shrunk-1", changed={"Q": (40, 20), "K": (40, 20), "B": (2, 3)}), problem=SQUARE)
    apart = SimpleNamespace(sizes=SizeSet(label="shrunk-2", changed={"Q": (40, 29), "K": (40, 30), "B": (2, 3)}), problem=SQUARE)
    one: Any = [together]
    both: Any = [together, apart]
    assert refused_sizes(failure, both) == {"Q": 40, "K": 40}
    assert refused_sizes(failure, one) == {"Q": 40, "K": 40, "B": 2}


@pytest.mark.parametrize("said", ["x_size0 + 4 > width", "x.shape[0] != rows", "x.size(0) > rows"])
def test_a_refusal_may_name_a_dimension_by_its_tensor(said: str) -> None:
    literal = problem("x * x", "[torch.randn(640, 150)]")
    failure = CandidateFailure(Status.RUNTIME_ERROR, f"The candidate raised ValueError: written for {said}")
    failure.refused = True
    reference: Any = SimpleNamespace(sizes=shrink.describe(literal, shrink.shrunk(literal, count=1)[0]), problem=literal)
    assert set(refused_sizes(failure, [reference]).values()) == {640}


def test_broken_references_are_the_problems_fault(warm: Judge) -> None:
    verdict = warm.judge(problem("x @ x", "[torch.randn(3, 4)]"), elementwise("v"))
    assert verdict.status is Status.PROBLEM_ERROR
    assert "reference" in verdict.message


def test_a_reference_without_outputs_is_the_problems_fault(warm: Judge) -> None:
    empty = Problem(name="empty", source=MATMUL.source.replace("M = 64", "M = 0"))
    found = warm.judge(empty, matmul(', input_precision="ieee"'))
    assert found.status is Status.PROBLEM_ERROR, found.message
    assert "nothing to judge" in found.message
    silent = warm.judge(problem("None", "[torch.randn(64, 32)]"), elementwise("v"))
    assert silent.status is Status.PROBLEM_ERROR, silent.message
    assert "forward() returns None" in silent.message


@pytest.mark.parametrize(
    ("dot", "status"),
    [
        (matmul(', input_precision="ieee"'), Status.CORRECT),
        (matmul(', input_precision="tf32x3"'), Status.CORRECT),
        (matmul(), Status.INCORRECT),
        (matmul(cast=".to(tl.bfloat16)"), Status.INCORRECT),
    ],
    ids=["ieee", "tf32x3", "tf32 by default", "bf16"],
)  # fmt: skip
def test_matrix_products_must_keep_the_precision(warm: Judge, dot: Candidate, status: Status) -> None:
    verdict = warm.judge(MATMUL, dot)
    assert verdict.status is status, verdict.message
    assert (verdict.coverage == 1.0) == (len(verdict.kernels) == 1)
    if status is Status.INCORRECT:
        assert any(f.check == "precision" for f in verdict.findings)
    else:  # torch's product would be bfloat16 there
        assert [f.severity for f in verdict.findings if "Below torch.autocast" in f.message] == [Severity.INFO]


def test_tf32_convolutions_are_right_since_eager_runs_them_so(warm: Judge) -> None:
    """A 1x1 convolution through a dot in TF32: cuDNN's default on a GPU."""
    conv = problem(
        "F.conv2d(x, w)", "[torch.randn(2, CIN, 12, 12), torch.randn(COUT, CIN, 1, 1)]", arguments="x, w", extra="CIN = 96\nCOUT = 32"
    )
    kernel = matmul().source.split("class ModelNew")[0].split("import triton.language as tl\n", 1)[1]
    forward = """        n, c, h, ww = x.shape
        left = w.reshape(w.shape[0], c).contiguous()
        out = torch.empty((n, w.shape[0], h * ww), device=x.device, dtype=x.dtype)
        for i in range(n):
            right = x[i].reshape(c, h * ww)
            M, K, N = left.shape[0], c, h * ww
            matmul_kernel[(triton.cdiv(M, 32), triton.cdiv(N, 32))](left, right, out[i], M, N, K, BM=32, BN=32, BK=32)
        return out.reshape(n, w.shape[0], h, ww)"""
    verdict = warm.judge(conv, candidate(kernel, forward, arguments="x, w"))
    assert verdict.status is Status.CORRECT, verdict.message
    assert verdict.coverage == 1.0


def test_without_kernels_nothing_is_correct(lenient: Judge) -> None:
    none = candidate("", "        return x * x")
    assert lenient.judge(SQUARE, none).status is Status.CHEATING
    decoy = elementwise("v").source.replace("        return y", "        return x * x + 0 * y")
    verdict = lenient.judge(SQUARE, Candidate(source=decoy))
    assert verdict.status is Status.CHEATING
    assert {f.check for f in verdict.findings} & {"decoy_kernel"}


def test_writing_into_inputs_is_found(lenient: Judge) -> None:
    source = elementwise("v * v").source.replace("y = torch.empty_like(x)", "y = x")
    verdict = lenient.judge(SQUARE, Candidate(source=source))
    assert verdict.status is Status.CHEATING
    assert verdict.findings[0].check == "inputs_written"


def test_an_output_that_never_varies_is_reported(lenient: Judge) -> None:
    zero = problem("(x - x) * 2", "[torch.randn(ROWS, COLUMNS)]", extra="ROWS = 64\nCOLUMNS = 512", name="zero")
    verdict = lenient.judge(zero, elementwise("v * 0.0"))
    assert verdict.status is Status.CORRECT, verdict.message
    assert [f.check for f in verdict.findings] == ["degenerate_problem"]
    assert "degenerate_problem" not in [f.check for f in lenient.judge(SQUARE, elementwise("v * v")).findings]


DROPPED = problem("self.drop(x * x)", "[torch.randn(9, 70)]", init="self.drop = nn.Dropout(0.5); self.eval()")


@pytest.mark.parametrize("refuses", [False, True])
def test_a_mode_in_which_the_reference_draws_is_refused_or_reported(warm: Judge, refuses: bool) -> None:
    source = elementwise("v * v").source
    begin = "    def forward(self, x):\n"
    assert begin in source
    check = '        if self.training: raise NotImplementedError("for inference")\n' * refuses
    source = source.replace("super().__init__()", "super().__init__(); self.eval()").replace(begin, begin + check)
    verdict = warm.judge(DROPPED, Candidate(source=source))
    assert verdict.status is Status.CORRECT, verdict.message
    told = [f for f in verdict.findings if f.check == "silently_different" and "draws random numbers" in f.message]
    assert len(told) == (not refuses)


def test_a_reference_that_gives_nan_alone_is_told(warm: Judge) -> None:
    verdict = warm.judge(problem("x * x", "[torch.full((9, 70), float('nan'))]"), elementwise("v * v"))
    assert any(f.check == "nan" and f.severity is Severity.WARN for f in verdict.findings)
    assert not any(f.check == "nan" for f in warm.judge(SQUARE, elementwise("v * v")).findings)


@pytest.mark.parametrize(("device", "told"), [("cpu", False), ("cuda", True)])
def test_a_larger_size_that_takes_an_interpreter_long_is_no_warning(device: str, told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_long(*inputs: object, **named: object) -> None:
        raise CandidateFailure(Status.TIMEOUT, "The candidate did not finish within 30 s.")

    process: Any = SimpleNamespace(device=device, run=too_long)
    reference = SimpleNamespace(sizes=SizeSet(label="between", changed={"D": (32, 1281)}), problem=SQUARE, seed=1)
    expected = SimpleNamespace(expected=SimpleNamespace(value=torch.ones(1)))
    prepared: Any = SimpleNamespace(reference=reference, run=expected, inputs=[])
    monkeypatch.setattr(degenerate_sizes, "build", lambda *given: None)
    found = degenerate_sizes.try_unit_sizes(process, [prepared], None).findings()
    assert [finding.severity is Severity.WARN for finding in found] == [told]
