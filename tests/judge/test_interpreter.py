"""What Triton's interpreter lacks and real kernels use."""

from __future__ import annotations

import pytest
from judge.problems import SQUARE, candidate, elementwise, problem

from kernelllm.core.types import Candidate, Status
from kernelllm.judge import Judge

FUNCTIONS = {
    "tanh(v)": "torch.tanh(x)", "erf(v)": "torch.erf(x)", "log1p(tl.abs(v))": "torch.log1p(x.abs())", "expm1(v)": "torch.expm1(x)",
    "pow(tl.abs(v), 1.7)": "x.abs() ** 1.7", "rint(v)": "torch.round(x)", "fmod(v, 0.7)": "torch.fmod(x, 0.7)", "rsqrt(tl.abs(v) + 1)":
    "torch.rsqrt(x.abs() + 1)", "asinh(v)": "torch.asinh(x)", "atan2(v, 2.0)": "torch.atan2(x, torch.full_like(x, 2.0))",
    "copysign(1.0, v)": "torch.copysign(torch.ones_like(x), x)", "trunc(v)": "torch.trunc(x)", "exp2(v)": "torch.exp2(x)",
    "isnan(v).to(tl.float32)": "torch.isnan(x).float()", "fast_sinf(v)": "torch.sin(x)", "ffs(offs).to(tl.float32)": "",
}  # fmt: skip


def test_libdevice(lenient: Judge) -> None:
    known = {k: v for k, v in FUNCTIONS.items() if v}
    reference = "torch.stack([" + ", ".join(known.values()) + "])"
    stores = "\n".join(f"    tl.store(y + {i} * n + offs, libdevice.{call}, mask=mask)" for i, call in enumerate(known))
    kernel = f"""
from triton.language.extra import libdevice
@triton.jit
def many_kernel(x, y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    v = tl.load(x + offs, mask=mask, other=0.5)
{stores}
"""
    forward = f"""        y = torch.empty(({len(known)}, *x.shape), device=x.device)
        many_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
        return y"""
    verdict = lenient.judge(problem(reference, "[torch.randn(ROWS, 16)]", extra="ROWS = 32"), candidate(kernel, forward))
    assert verdict.status is Status.CORRECT, verdict.message
    assert verdict.kernels[0].registers


def test_float8(lenient: Judge) -> None:
    """Halves go to even numbers, a carry into the exponent; beyond the largest number stands that number."""
    reference = "torch.cat([x.clamp(-448, 448).to(torch.float8_e4m3fn).float(), x.to(torch.float8_e5m2).float()])"
    kernel = """
@triton.jit
def both_kernel(x, y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + offs, offs < n)
    tl.store(y + offs, v.to(tl.float8e4nv).to(tl.float32), offs < n)
    tl.store(y + n + offs, v.to(tl.float8e5).to(tl.float32), offs < n)
"""
    forward = """        y = torch.empty((2 * x.shape[0], x.shape[1]), device=x.device)
        both_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
        return y"""
    rounded = problem(reference, "[torch.randn(ROWS, 16) * 10 ** torch.linspace(-3, 3, 16)]", extra="ROWS = 32")
    verdict = lenient.judge(rounded, candidate(kernel, forward))
    assert verdict.status is Status.CORRECT, verdict.message


ROWS_OF_FLOAT8 = """
@triton.jit
def quantize_kernel(x, w, y, scale, n, BLOCK: tl.constexpr):
    row, offs = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + offs, offs < n, other=0.0) * tl.load(w + offs, offs < n, other=0.0).to(tl.float32)
    s = tl.maximum(tl.max(tl.abs(v)), 1e-6) / 448
    tl.store(scale + row, s)
    tl.store(y + row * n + offs, (FACTOR * v / s).to(tl.float8e4nv), offs < n)
"""


@pytest.mark.parametrize(("factor", "status"), [("1.0", Status.CORRECT), ("0.95", Status.INCORRECT)])
def test_outputs_buffers_and_inputs_of_float8(factor: str, status: Status, warm: Judge) -> None:
    """Rounding moves a number by one step of the type at most, and few of them."""
    rows = problem(
        "(lambda v: (lambda s: ((v / s).to(torch.float8_e4m3fn), s))(v.abs().amax(1, keepdim=True).clamp_min(1e-6) / 448))"
        "(x * w.float() + self.w.float().sum() * 0)", "[torch.randn(ROWS, 40), torch.randn(40).to(torch.float8_e5m2)]", arguments="x, w",
        init="self.register_buffer('w', torch.rand(8).to(torch.float8_e4m3fn))", extra="ROWS = 32",
    )  # fmt: skip
    forward = """        y, s = torch.empty_like(x, dtype=torch.float8_e4m3fn), torch.empty_like(x[:, :1])
        quantize_kernel[(x.shape[0],)](x, w, y, s, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y, s"""
    made = candidate(ROWS_OF_FLOAT8.replace("FACTOR", factor), forward, arguments="x, w",
                     init="self.register_buffer('w', torch.zeros(8).to(torch.float8_e4m3fn))")  # fmt: skip
    verdict = warm.judge(rows, made)
    assert verdict.status is status, verdict.message


AUTOTUNED = """@triton.autotune(
    configs=[triton.Config({"BLOCK": 128}, num_warps=2), triton.Config({"BLOCK": 1024}, num_warps=8)], key=["n"],
    prune_configs_by={"early_config_prune": lambda configs, named, **kwargs: configs[1:]},
)"""


@pytest.mark.parametrize("decorators", [AUTOTUNED, '@triton.heuristics({"BLOCK": lambda args: 512})'], ids=["autotune", "heuristics"])
def test_decorators(lenient: Judge, decorators: str) -> None:
    verdict = lenient.judge(SQUARE, elementwise("v * v", decorators=decorators))
    assert verdict.status is Status.CORRECT, verdict.message


def test_cuda_that_is_not_there(lenient: Judge) -> None:
    queries = """
        assert x.is_cuda and x.device == torch.device("cuda", x.get_device()) and torch.cuda.is_available()
        x = x.cuda().to("cuda").to(x.device)
        assert torch.cuda.get_device_properties(x.device).multi_processor_count == 132 and torch.cuda.get_device_capability() == (9, 0)
        properties = triton.runtime.driver.active.utils.get_device_properties(torch.cuda.current_device())
        assert properties["max_shared_mem"] > 0 and torch.zeros(2, device="cuda").device == x.device
        with torch.cuda.device(x.device):
            torch.cuda.synchronize()
        y = torch.empty(x.shape, device="cuda", dtype=x.dtype)"""
    source = elementwise("v * v").source.replace("\n        y = torch.empty_like(x)", queries)
    verdict = lenient.judge(SQUARE, Candidate(source=source))
    assert verdict.status is Status.CORRECT, verdict.message


ROWS = problem("ROW", "[torch.rand(ROWS, COLUMNS) + 0.5]", extra="ROWS = 24\nCOLUMNS = 64")
ROW_KERNEL = """
{helper}
@triton.jit
def row_kernel(x, y, n, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    mask = offs < n
    v = tl.load(x + r * n + offs, mask=mask, other=1.0)
    {body}
"""
WELFORD = """
@triton.jit
def combine(m1, s1, w1, m2, s2, w2):
    d = m2 - m1
    w = w1 + w2
    f = tl.where(w == 0.0, 0.0, w2 / w)
    return m1 + d * f, s1 + s2 + d * d * w1 * f, w
"""
VARIANCE = "m, s, w = tl.reduce((v, tl.zeros_like(v), mask.to(tl.float32)), 0, combine); tl.store(y + r, s / w)"


@pytest.mark.parametrize(
    ("reference", "helper", "body", "output"),
    [
        ("x.var(dim=1, correction=0)", WELFORD, VARIANCE, "x.new_empty(x.shape[0])"),
        ("torch.cumprod(x, dim=1)", "@triton.jit\ndef times(a, b):\n    return a * b",
         "tl.store(y + r * n + offs, tl.associative_scan(v, 0, times), mask=mask)", "torch.empty_like(x)"),
        ("x.argmax(dim=1)", "", "tl.store(y + r, tl.argmax(tl.where(mask, v, -1e9), 0))", "x.new_empty(x.shape[0], dtype=torch.int64)"),
        ("torch.sort(x, dim=1, descending=True).values", "",
         "tl.store(y + r * n + offs, tl.sort(tl.where(mask, v, -1e9), descending=True), mask=mask)", "torch.empty_like(x)"),
        ("x.sum(dim=0)", "", "tl.atomic_add(y + offs, v, mask=mask)", "torch.zeros(x.shape[1], device=x.device)"),
    ],
    ids=["reduce", "scan", "argmax", "sort", "atomics"],
)  # fmt: skip
def test_rows(lenient: Judge, reference: str, helper: str, body: str, output: str) -> None:
    forward = f"""        y = {output}
        row_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y"""
    rows = problem(reference, "[torch.rand(ROWS, COLUMNS) + 0.5]", extra="ROWS = 24\nCOLUMNS = 64")
    verdict = lenient.judge(rows, candidate(ROW_KERNEL.format(helper=helper, body=body), forward))
    assert verdict.status is Status.CORRECT, verdict.message


def test_block_pointers_and_descriptors(lenient: Judge) -> None:
    kernel = """
@triton.jit
def tile_kernel(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    a = tl.make_block_ptr(x, shape=(M, N), strides=(N, 1), offsets=(tl.program_id(0) * BM, 0), block_shape=(BM, BN), order=(1, 0))
    out = tl.make_tensor_descriptor(y, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    for j in range(0, N, BN):
        v = tl.load(a, boundary_check=(0, 1), padding_option="zero")
        out.store([tl.program_id(0) * BM, j], v * v)
        a = tl.advance(a, (0, BN))
"""
    forward = """        y = torch.empty_like(x)
        M, N = x.shape
        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
        tile_kernel[(triton.cdiv(M, 16),)](x, y, M, N, BM=16, BN=16)
        return y"""
    tiles = problem("x * x", "[torch.randn(ROWS, 16 * COLUMNS)]", extra="ROWS = 40\nCOLUMNS = 3")
    verdict = lenient.judge(tiles, candidate(kernel, forward))
    assert verdict.status is Status.CORRECT, verdict.message


def test_a_compiled_kernel_that_is_asked_for_its_registers_and_launched(lenient: Judge) -> None:
    source = elementwise("v * v").source.replace(
        "        unary_kernel[(triton.cdiv(n, 256),)](x, y, n, BLOCK=256)",
        "        kernel = unary_kernel.warmup(x, y, n, BLOCK=256, grid=(1,))\n        kernel._init_handles()\n"
        "        assert kernel.n_regs > 0 and kernel.metadata.shared >= 0\n"
        "        unary_kernel[(triton.cdiv(n, 256), 1, 1)](x, y, n, BLOCK=256)",
    )
    verdict = lenient.judge(SQUARE, Candidate(source=source))
    assert verdict.status is Status.CORRECT, verdict.message


@pytest.mark.parametrize("grid", ["(triton.cdiv(n, 256) / 1,)", "(1, 70000)", "(1, 1, 1, 1)"])
def test_grids_that_a_gpu_refuses(lenient: Judge, grid: str) -> None:
    source = elementwise("v * v").source.replace("(triton.cdiv(n, 256),)", grid)
    assert lenient.judge(SQUARE, Candidate(source=source)).status is Status.RUNTIME_ERROR


def test_the_language_by_any_name(lenient: Judge) -> None:
    other = "import triton.language.core as core\nfrom triton import language as L\nfrom triton.language import arange"
    kernel = """
@triton.jit
def named_kernel(x, y, n, BLOCK: L.constexpr, SCALE: triton.language.constexpr, SHIFT: core.constexpr):
    offs = tl.program_id(0) * BLOCK + arange(0, BLOCK)
    v = triton.language.load(x + offs, mask=offs < n, other=0.0)
    L.store(y + offs, (v * v * SCALE + SHIFT).to(tl.float32), mask=offs < n)
"""
    forward = """        y = torch.empty_like(x)
        named_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256, SCALE=1, SHIFT=0)
        return y"""
    verdict = lenient.judge(SQUARE, candidate(kernel, forward, extra=other))
    assert verdict.status is Status.CORRECT, verdict.message
