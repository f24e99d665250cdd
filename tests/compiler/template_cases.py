"""Run with TRITON_INTERPRET=1 and a group's name: the template functions against torch. Prints one JSON line a case.

The judge's interpreter is installed first: it rounds bf16 and TF32 as the hardware does and stops a kernel that leaves its tensors.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelllm.backends.triton.emulator import interpreter

interpreter.install()

from kernelllm.compiler.templates import attention as A  # noqa: E402
from kernelllm.compiler.templates import attention_half as AH  # noqa: E402
from kernelllm.compiler.templates import attention_half_backward as AB  # noqa: E402
from kernelllm.compiler.templates import attention_kept as AK  # noqa: E402
from kernelllm.compiler.templates import (  # noqa: E402
    bags,
    factorize,
    grouped,
    image_samples,
    joining,
    rows,
    scattering,
    sorting,
    states,
    window_gradients,
)
from kernelllm.compiler.templates import conv as C  # noqa: E402
from kernelllm.compiler.templates import matmul as M  # noqa: E402
from kernelllm.compiler.templates import matmul_half as H  # noqa: E402
from kernelllm.compiler.templates import matmul_three as T  # noqa: E402
from kernelllm.compiler.templates import pooling as P  # noqa: E402
from kernelllm.compiler.templates import quantized as Q  # noqa: E402
from kernelllm.compiler.templates import recurrent as R  # noqa: E402
from kernelllm.compiler.templates import scan as S  # noqa: E402

few = settings(derandomize=True, max_examples=12, deadline=None, database=None, suppress_health_check=list(HealthCheck))
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def case(name: str, got: Any, want: Any, tolerance: float | None = None) -> None:
    """One line: the error over the reference's largest value, and whether shape, dtype, strides and NaNs agree."""
    gots, wants = (got, want) if isinstance(got, tuple) else ((got,), (want,))
    for g, w in zip(gots, wants, strict=True):
        limit = tolerance or TOLERANCE.get(g.dtype, 0.0)
        g = g.transpose(1, 2) if name.startswith("attention") else g
        w = w.transpose(1, 2) if name.startswith("attention") else w
        good = g.shape == w.shape and g.is_contiguous() and bool(torch.equal(g.isnan(), w.isnan()))
        a, b = g.double().nan_to_num(0), w.double().nan_to_num(0)
        error = ((a - b).abs().max() / b.abs().max().clamp_min(1.0)).item() if good and g.numel() else 0.0
        sys.stdout.write(json.dumps({"name": name, "good": good, "error": error, "limit": limit, "got": list(g.shape)}) + "\n")


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape).to(dtype)


def products() -> None:
    for m, n, k in [(1, 1, 1), (33, 65, 17), (3, 200, 2000), (128, 64, 96), (0, 3, 4), (3, 4, 0)]:
        a, b = draw(m, k), draw(n, k).T
        case(f"matmul {m, n, k}", M.matmul(a, b), a @ b)
        case(f"matmul strided {m, n, k}", M.matmul(a.T.contiguous().T, b.contiguous(), torch.ones(m, 1)), a @ b + 1)

    @few
    @given(st.integers(1, 70), st.integers(1, 70), st.integers(1, 70), st.booleans(), st.booleans())
    def any_size(m: int, n: int, k: int, turn_a: bool, turn_b: bool) -> None:
        a = draw(k, m).T if turn_a else draw(m, k)
        b = draw(n, k).T if turn_b else draw(k, n)
        case(f"matmul {m, n, k, turn_a, turn_b}", M.matmul(a, b), a @ b)

    any_size()
    a, b = draw(33, 40), draw(40, 50)
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        x, y = a.to(dtype), b.to(dtype)
        case(f"matmul {dtype}", M.matmul(x, y, torch.ones(50, dtype=dtype)), (x.double() @ y.double() + 1).to(dtype))
    for dtype in (torch.float16, torch.bfloat16):
        for m, k, n in ((70, 136, 264), (9, 200, 72)):  # descriptors; few rows
            c = draw(m, n, dtype=dtype)
            x, y, z = draw(m, k, dtype=dtype), draw(n, k, dtype=dtype).T, draw(n, k, dtype=dtype).T
            case(f"wide {dtype, m}", M.wide_matmul(x, y, z[0].float()), x.float() @ y.float() + z[0].float())
            case(f"matmul {dtype, m}", H.half_matmul(x, y, c, False, "gelu"), F.gelu(x.double() @ y.double() + c.double()).to(dtype))
            want = torch.relu(x.double() @ y.double() + c[0]) + c
            case(f"joined {dtype, m}", H.half_matmul(x, y, c[0].clone(), False, "relu", c, "add"), want.to(dtype))
            want = F.silu(x.double() @ z.double()) * (x.double() @ y.double() + c[0].double())
            case(f"gated {dtype, m}", H.gated_matmul(x, y, z, "silu", c[0].clone(), torch.zeros_like(c[0])), want.to(dtype))
            case(f"gated apart {dtype, m}", H.gated_matmul(x, y, z, "silu", c[0].clone()), want.to(dtype))
            for pair in (torch.cat((z, y), 1), torch.cat((y, z), 1).T.contiguous().T):
                one, two = (pair[:, n:], pair[:, :n]) if pair.stride(1) == 1 else (pair[:, :n], pair[:, n:])
                case(f"gated pair {dtype, m}", H.gated_matmul(x, one, two, "silu", c[0].clone(), torch.zeros_like(c[0])), want.to(dtype))
        x, y = draw(3, 40, 64, dtype=dtype), draw(1, 72, 64, dtype=dtype).mT.expand(3, 64, 72)
        case(f"batched {dtype}", H.half_batched_matmul(x, y, draw(1, 72).to(dtype) * 0 + 1), (x.double() @ y.double() + 1).to(dtype))
        x, y = draw(136, 64, dtype=dtype), draw(136, 72, dtype=dtype)
        case(f"matmul turned {dtype}", H.half_matmul(x.T, y), (x.T.double() @ y.double()).to(dtype))
    for m, n, k in [(1, 1, 1), (5, 70, 300), (70, 64, 2048), (0, 3, 4), (3, 4, 0)]:
        x, scales = draw(m, k, dtype=torch.bfloat16), draw(n, dtype=torch.bfloat16)
        values = torch.randint(-127, 128, (n, k), dtype=torch.int8)
        for weight in (values.T, (values.half() / 64).to(torch.float8_e4m3fn).T, values.T.contiguous()):
            want = x.double() @ weight.double()
            case(f"quantized {m, n, k, weight.dtype}", Q.quantized_matmul(x, weight), want.bfloat16())
            scaled = Q.quantized_matmul(x, weight, scales, scales.expand(1, n)[0])
            case(f"quantized, scaled {m, n, k, weight.dtype}", scaled, (want * scales + scales).bfloat16())
    for m, n, k, groups in [(5, 70, 320, 10), (16, 64, 2048, 16), (40, 65, 128, 32), (3, 64, 96, 12)]:
        x, scales, zeros = draw(m, k, dtype=torch.bfloat16), draw(n, groups, dtype=torch.bfloat16), draw(n, groups, dtype=torch.bfloat16)
        packed = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8)
        halves = torch.stack((packed & 15, packed >> 4), -1).flatten(1)
        for weight, offset, nibbles in ((halves, 8.0, True), (packed.repeat(1, 2), 0.0, False)):
            whole = ((weight.view(n, groups, -1) - offset - zeros.double()[..., None]) * scales.double()[..., None]).flatten(1)
            held = packed if nibbles else weight
            got = Q.quantized_matmul(x, held.T, scales, scales[:, 0], zeros, offset, nibbles)
            case(f"quantized in groups {m, n, k, nibbles}", got, (x.double() @ whole.T + scales[:, 0]).bfloat16())
    for k in (33, 640):
        x, y, z = draw(1, k, dtype=torch.float16), draw(70, k, dtype=torch.float16), draw(1, 70, dtype=torch.float16)
        want = torch.relu(x.double() @ y.double().T + z[0]) * z
        case(f"one row {k}", H.half_matmul(x, y.T, z[0], False, "relu", z, "mul"), want.half())
        want, w = F.silu(x.double() @ y.double().T + z[0]) * (x.double() @ y.double().T), torch.zeros_like(z[0])
        case(f"one row gated {k}", H.gated_matmul(x, y.T, y.T, "silu", w, z[0]), want.half())
    case("matmul int", M.matmul((a * 9).int(), (b * 9).int()), (a * 9).int() @ (b * 9).int())
    case("matmul tf32", M.matmul(a, b, None, True), a @ b, 2e-3)
    activations: dict[str, Any] = {
        "relu": torch.relu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "sigmoid": torch.sigmoid,
        "tanh": torch.tanh, "silu": F.silu,
    }  # fmt: skip
    for name, fn in activations.items():
        case(name, M.matmul(a, b, None, False, name), fn(a @ b))
    for dtype, m in ((torch.float32, 33), (torch.bfloat16, 33), (torch.bfloat16, 1), (torch.float16, 9)):
        x, weights = draw(m, 40, dtype=dtype), [draw(n, 40, dtype=dtype) for n in (50, 20, 1)]
        biases = [draw(n, dtype=dtype) for n in (50, 20, 1)]
        for i, (plain, biased) in enumerate(zip(T.matmul_three(x, *weights), T.matmul_three(x, *weights, *biases), strict=True)):
            want = x.double() @ weights[i].double().T
            case(f"three {i, dtype, m}", plain, want.to(dtype))
            case(f"three biased {i, dtype, m}", biased, (want + biases[i].double()).to(dtype))
    c, d = draw(33, 1), draw(50, 33).T
    case("joined by sum", M.matmul(a, b, d[0], False, "relu", d, "add"), torch.relu(a @ b + d[0]) + d)
    case("joined by product", M.matmul(draw(5, 4000) * 0 + 1, draw(4000, 50) * 0 + 1, None, False, "", d[:5], "mul"), 4000 * d[:5])
    case("addmm", M.addmm(c, a, b, 0.5, 2.0), 0.5 * c + 2 * (a @ b))
    case("addmm beta 0", M.addmm(torch.full((50,), float("nan")), a, b, 0.0, 2.0), 2 * (a @ b))
    x, y = draw(3, 33, 40), draw(1, 40, 50).expand(3, 40, 50)
    case("batched", M.batched_matmul(x, y, torch.ones(3, 1, 50)), x @ y + 1)
    case("baddbmm", M.baddbmm(torch.ones(50), x, y, 3.0, 0.5), 3 + 0.5 * (x @ y))
    for m, k in [(1, 1), (7, 5000), (100, 33)]:
        a, v = draw(m, k), draw(k)
        case(f"matvec {m, k}", M.matvec(a, v), a @ v)
        case(f"matvec turned {m, k}", M.matvec(a.T.contiguous().T, v), a @ v)


def large_products() -> None:
    """The paths that only large products take, on small ones."""
    M.matmul_needs_pack = lambda *_: True
    a, b = draw(70, 50), draw(50, 90)
    case("packed", M.matmul(a, b), a @ b)
    case("packed tf32", M.matmul(a, b, None, True), a @ b, 2e-3)
    M.matmul_should_split = lambda *_: True
    for m, n, k in [(1, 1, 1), (33, 65, 17), (150, 140, 100)]:
        a, b = draw(m, k), draw(k, n)
        case(f"halves {m, n, k}", M.matmul(a, b, torch.ones(n), False, "", 2 * torch.ones(m, n), "mul"), 2 * (a @ b) + 2)
    a, b = draw(40, 512), draw(512, 30)
    exact = a.double() @ b.double()
    case("halves as exact as fp32", M.matmul(a, b).double(), exact, 5e-7)
    scale = 10.0 ** torch.arange(-30, 30, 1.5)[:, None]
    case("halves, rows of any size", M.matmul(a * scale, b).double() / scale.double(), exact, 5e-7)
    a[3] = 0
    b[7, 5] = float("nan")
    case("halves with zeros and NaN", M.matmul(a, b), a @ b)
    x, y = draw(2, 40, 30), draw(2, 30, 20)
    case("halves batched", M.baddbmm(torch.ones(20), x, y, 2.0, 3.0), 2 + 3 * (x @ y))


def attention() -> None:
    for d, dv, t, s in [(8, 8, 33, 33), (40, 24, 5, 70), (150, 130, 20, 30)]:
        q, k, v = draw(2, 4, t, d), draw(2, 4, s, d), draw(2, 4, s, dv)
        keep = torch.rand(2, 1, t, s) > 0.3
        bias = draw(t, s)
        case(f"attention {d, t, s}", A.attention(q, k, v), F.scaled_dot_product_attention(q, k, v))
        case(f"attention causal {d, t, s}", A.attention(q, k, v, None, True), F.scaled_dot_product_attention(q, k, v, is_causal=True))
        case(f"attention bool {d, t, s}", A.attention(q, k, v, keep), F.scaled_dot_product_attention(q, k, v, keep))
        bias[0], bias[1] = torch.finfo(torch.float32).min, float("-inf")  # hidden from all alike, and from everything
        case(f"attention added {d, t, s}", A.attention(q, k, v, bias), F.scaled_dot_product_attention(q, k, v, bias))
        lowest = torch.rand(2, 1, t, s) * -3.4028e38  # what masks of the lowest numbers may leave, in order
        case(f"attention of lowest numbers {d, t, s}", A.attention(q, k, v, lowest), F.scaled_dot_product_attention(q, k, v, lowest))
        written = torch.softmax(q.double() @ k.double().transpose(-2, -1) / d**0.5 + bias, -1) @ v.double()
        case(f"attention written out {d, t, s}", A.attention(q, k, v, bias, nan_rows=True), written.float())
    q, k, v = draw(1, 4, 20, 16), draw(1, 2, 30, 16), draw(1, 2, 30, 16)
    want = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), scale=0.3, enable_gqa=True)
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        inputs = [x.to(dtype) for x in (q, k, v)]
        want_here = F.scaled_dot_product_attention(*(x.double() for x in inputs), scale=0.3, enable_gqa=True)
        case(f"attention grouped {dtype}", A.attention(*inputs, scale=0.3), want_here.to(dtype))
    for dtype in (torch.float16, torch.bfloat16):
        for t, s in ((70, 90), (3, 200), (1, 200)):
            q, k, v = draw(2, 4, t, 40, dtype=dtype), draw(2, 2, s, 40, dtype=dtype), draw(2, s, 2, 24, dtype=dtype).transpose(1, 2)
            keep, bias = torch.rand(2, 1, t, s) > 0.3, draw(t, s, dtype=dtype)
            near = (torch.arange(s) >= 67) & (torch.arange(s) < torch.tensor([68, 0])[:, None, None, None] + t)  # none for the second
            masks = (("plain", None), ("causal", None), ("bool", keep), ("near", near), ("added", bias),
                     ("row", near[:, :, -1:]), ("added row", bias[:1]))  # fmt: skip
            for name, mask in masks:
                causal = name == "causal"
                wide = mask.double() if name.startswith("added") else mask
                want = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), wide, 0.0, causal, enable_gqa=True)
                case(f"attention {name} {t, dtype}", AH.half_attention(q, k, v, mask, causal), want.to(dtype))
            bias[0], bias[-1] = torch.finfo(dtype).min, float("-inf")
            wide_k, wide_v = (x.double().repeat_interleave(2, 1) for x in (k, v))
            written = torch.softmax(q.double() @ wide_k.transpose(-2, -1) / 40**0.5 + bias, -1) @ wide_v
            case(f"attention written out {t, dtype}", AH.half_attention(q, k, v, bias, nan_rows=True), written.to(dtype))
    for t, s, causal in ((70, 70, True), (70, 90, False), (20, 90, True)):
        q, k, v, grad = (draw(2, h, n, w, dtype=torch.float16) for h, n, w in ((4, t, 40), (2, s, 40), (2, s, 24), (4, t, 24)))
        inputs = [x.double().requires_grad_() for x in (q, k, v)]
        out = F.scaled_dot_product_attention(*inputs, is_causal=causal, scale=0.3, enable_gqa=True)
        wanted = torch.autograd.grad(out, inputs, grad.double())
        made = AB.half_attention_backward(q, k, v, out.half(), grad, causal, 0.3)
        for name, one, want in zip("qkv", made, wanted, strict=True):
            case(f"gradient of attention {name} {t, s, causal}", one, want.half())
    q, k, v, grad = (draw(2, 70, h, 40, dtype=torch.float16).transpose(1, 2) for h in (4, 2, 2, 4))
    inputs = [x.double().requires_grad_() for x in (q, k, v)]
    out = F.scaled_dot_product_attention(*inputs, is_causal=True, enable_gqa=True)
    scores = (q.double() @ k.double().repeat_interleave(2, 1).mT / 40**0.5).masked_fill(torch.ones(70, 70).triu(1) > 0, float("-inf"))
    made, sums = AK.attention_with_sums(q, k, v, True)
    case("attention kept", made, out.half())
    case("sums of attention", sums, scores.logsumexp(-1, keepdim=True).float())
    found, wanted = AK.attention_gradients(grad, q, k, v, made, sums, True), torch.autograd.grad(out, inputs, grad.double())
    for name, one, want in zip("qkv", found, wanted, strict=True):
        case(f"attention's gradient {name}, in its layout", one, want.half())
    q, k, v = draw(1, 4, 20, 16), draw(1, 2, 30, 16), draw(1, 2, 30, 16)
    want = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), scale=0.3, enable_gqa=True)
    turned = q.transpose(1, 2).contiguous().transpose(1, 2)
    case("attention strided", A.attention(turned, k, v, scale=0.3), want.float())


CONVS: list[tuple[int, int, int, tuple[int, ...], tuple[int, ...], int, int, int, int]] = [
    # images, in, out, input size, kernel, stride, padding, dilation, groups
    (2, 3, 5, (13,), (3,), 1, 0, 1, 1), (1, 4, 8, (20,), (5,), 3, 2, 4, 2), (2, 3, 20, (11, 13), (3, 5), 1, 2, 1, 1),
    (2, 8, 12, (9, 10), (3, 3), 2, 1, 2, 4), (1, 6, 12, (9, 40), (3, 3), 2, 1, 1, 6), (2, 17, 33, (7, 9), (1, 1), 1, 0, 1, 1),
    (1, 3, 6, (5, 6, 7), (3, 2, 3), 2, 1, 1, 1), (1, 4, 4, (5, 6, 7), (3, 2, 3), 1, 1, 2, 2),
    (1, 2, 2, (12, 300), (3, 11), 1, 4, 1, 2),
]  # fmt: skip


def conv_pair(x: torch.Tensor, w: torch.Tensor, bias: Any, stride: int, padding: int, dilation: int, groups: int) -> tuple[Any, Any]:
    dims = x.dim() - 2
    lists = [stride] * dims, [padding] * dims, [dilation] * dims
    got = C.conv(x, w, bias, *lists, groups)
    fn = (F.conv1d, F.conv2d, F.conv3d)[dims - 1]
    wide = None if bias is None else bias.double()
    return got, fn(x.double(), w.double(), wide, *lists, groups).to(x.dtype)


def transposed_pair(
    x: torch.Tensor, w: torch.Tensor, bias: Any, stride: int, padding: int, extra: int, dilation: int, groups: int
) -> tuple[Any, Any]:
    dims = x.dim() - 2
    lists = [stride] * dims, [padding] * dims, [extra] * dims
    got = C.conv_transpose(x, w, bias, *lists, [dilation] * dims, groups)
    fn = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[dims - 1]
    wide = None if bias is None else bias.double()
    return got, fn(x.double(), w.double(), wide, *lists, groups, [dilation] * dims).to(x.dtype)


def convolutions() -> None:
    for n, c, o, size, kernel, stride, padding, dilation, groups in CONVS:
        x, w = draw(n, c, *size), draw(o, c // groups, *kernel)
        case(f"conv {size, kernel, stride, groups}", *conv_pair(x, w, draw(o), stride, padding, dilation, groups))
        w = draw(c, o // groups, *kernel)
        name = f"conv_transpose {size, kernel, stride, groups}"
        case(name, *transposed_pair(x, w, None if groups > 1 else draw(o), stride, 1, stride - 1, dilation, groups))

    @few
    @given(st.data())
    def any_conv(data: st.DataObject) -> None:
        number = lambda low, high: data.draw(st.integers(low, high))
        dims, groups = number(1, 3), number(1, 3)
        c, o = groups * number(1, 4), groups * number(1, 5)
        kernel = [number(1, 4) for _ in range(dims)]
        stride, dilation, padding = number(1, 3), number(1, 2), number(0, 2)
        x = draw(number(1, 2), c, *(dilation * (k - 1) + number(1, 6) for k in kernel))
        case(f"any conv {kernel, stride, dilation}", *conv_pair(x, draw(o, c // groups, *kernel), None, stride, padding, dilation, groups))
        extra = number(0, max(stride, dilation) - 1)
        padding = min(padding, min((dilation * (k - 1)) // 2 for k in kernel))
        w = draw(c, o // groups, *kernel)
        case(f"any transpose {kernel, stride, dilation, extra}", *transposed_pair(x, w, draw(o), stride, padding, extra, dilation, groups))

    any_conv()
    x, w = draw(2, 6, 9, 9), draw(20, 6, 3, 3)
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        case(f"conv {dtype}", *conv_pair(x.to(dtype), w.to(dtype), torch.ones(20, dtype=dtype), 1, 1, 1, 1))
    last = [t.to(memory_format=torch.channels_last) for t in (x, w)]
    case("conv channels last", *conv_pair(*last, None, 1, 1, 1, 1))
    case("conv of nothing", *conv_pair(x[:0], w, None, 1, 1, 1, 1))
    for n, c, o, size, groups, bias in [(2, 40, 70, (9, 31), 1, True), (1, 34, 20, (300,), 2, False), (2, 20, 3, (3, 5, 7), 1, True)]:
        x, w = draw(n, c * groups, *size).half(), draw(o * groups, c, *[1] * len(size)).half()
        args = [1] * len(size), [0] * len(size), [1] * len(size), groups
        b = draw(o * groups).half() if bias else None
        points = (F.conv1d, F.conv2d, F.conv3d)[len(size) - 1](x, w, b, groups=groups)
        case(f"points {c, o, size, groups}", C.conv(x, w, b, *args), points)
        x, w, b = x.float(), w.float(), None if b is None else b.float()
        case(f"points in TF32 {c, o, size, groups}", C.conv(x, w, b, *args, True), points.float(), 5e-3)


def packed_convolutions() -> None:
    C.conv_should_pack = lambda *_: True
    convolutions()
    x, w = draw(2, 20, 9, 9), draw(30, 20, 3, 3)
    exact = F.conv2d(x.double(), w.double(), None, 1, 1)
    case("halves as exact as fp32", C.conv(x, w, None, [1, 1], [1, 1], [1, 1], 1).double(), exact, 5e-7)
    case("tf32", C.conv(x, w, None, [1, 1], [1, 1], [1, 1], 1, True), F.conv2d(x, w, None, 1, 1), 2e-3)
    case("many pixels", *conv_pair(draw(1, 4, 40, 41), draw(5, 4, 3, 3), draw(5), 1, 0, 1, 1))


def recurrent() -> None:
    for kind, make, ours in [("tanh", torch.nn.RNN, R.rnn_tanh), ("relu", torch.nn.RNN, R.rnn_relu), ("lstm", torch.nn.LSTM, R.lstm),
                             ("gru", torch.nn.GRU, R.gru)]:
        for steps, batch, inputs, hidden, layers, both, first, biased in [
            (5, 3, 7, 20, 1, False, False, True), (4, 2, 33, 17, 3, False, True, True), (3, 3, 5, 9, 2, True, True, False),
        ]:  # fmt: skip
            extra = {"nonlinearity": "relu"} if kind == "relu" else {}
            module = make(inputs, hidden, layers, bidirectional=both, batch_first=first, bias=biased, **extra).requires_grad_(False)
            x = draw(batch, steps, inputs) if first else draw(steps, batch, inputs)
            h, c = draw(layers * (1 + both), batch, hidden), draw(layers * (1 + both), batch, hidden)
            state = [h, c] if kind == "lstm" else h
            out, ends = module(x, tuple(state) if kind == "lstm" else h)
            want = (out.contiguous(), *ends) if kind == "lstm" else (out.contiguous(), ends)
            got = ours(x, state, list(module._flat_weights), biased, layers, 0.0, False, both, first)
            case(f"{kind} {steps, batch, inputs, hidden, layers, both}", got, want)


def pools() -> None:
    maximum, average = (F.max_pool1d, F.max_pool2d, F.max_pool3d), (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)
    for size, k, s, p, d, ceil in [
        ((2, 3, 17), [3], [2], [1], [2], False), ((2, 3, 11, 13), [3, 2], [2, 3], [1, 1], [1, 2], True),
        ((1, 2, 7, 8, 9), [3, 3, 2], [2, 1, 2], [1, 0, 1], [1, 2, 1], False), ((3, 12, 10), [3, 3], [2, 2], [0, 1], [1, 1], True),
    ]:  # fmt: skip
        x = draw(*size)
        x.view(-1)[5], x.view(-1)[9] = float("nan"), float("-inf")
        want = maximum[len(k) - 1](x, k, s, p, d, ceil, True)
        case(f"max_pool {size, k}", P.max_pool_with_indices(x, k, s, p, d, ceil), want)
        turned = x.transpose(-1, -2).contiguous().transpose(-1, -2)
        case(f"max_pool strided {size, k}", P.max_pool(turned, k, s, p, d, ceil), want[0])
        for counted in (True, False):
            case(f"avg_pool {size, k, counted}", P.avg_pool(x, k, s, p, ceil, counted), average[len(k) - 1](x, k, s, p, ceil, counted))
    x = draw(2, 3, 23, 41)
    for k, s in (([7, 5], [4, 4]), ([11, 11], [11, 11])):
        case(f"avg_pool far apart {k}", P.avg_pool(x, k, s, [2, 1], True, False), F.avg_pool2d(x, k, s, (2, 1), True, False))
    x = draw(2, 3, 11, 13)
    case("avg_pool divisor", P.avg_pool(x, [3, 3], [2, 2], [1, 1], False, True, 7), F.avg_pool2d(x, 3, 2, 1, False, True, 7))
    for out in ([1, 1], [4, 7], [11, 26]):
        case(f"adaptive_avg {out}", P.adaptive_avg_pool(x, out), F.adaptive_avg_pool2d(x, out))
        case(f"adaptive_max {out}", P.adaptive_max_pool(x, out), F.adaptive_max_pool2d(x, out, True))


def scans() -> None:
    for size, other, dim in [((3, 5, 7), 4, 1), ((2, 1500), 900, -1), ((5,), 1, 0), ((3, 4), 2, 0), ((0, 4), 2, 1)]:
        a = draw(*size)
        b = draw(*(other if i == dim % len(size) else n for i, n in enumerate(size)))
        case(f"concat {size, other, dim}", joining.concat(a, b, dim), torch.cat((a, b), dim), 0.0)
    for size, dim in [((5,), 0), ((3, 70), 1), ((3, 70), 0), ((2, 33, 5), 1), ((2, 2500), -1)]:
        x = draw(*size)
        for name in ("cumsum", "cumprod", "logcumsumexp"):
            case(f"{name} {size, dim}", getattr(S, name)(x, dim), getattr(torch, name)(x, dim), 1e-4)
        x = (x * 4).round()
        x.view(-1)[3] = float("nan")
        for name in ("cummax", "cummin"):
            case(f"{name} {size, dim}", getattr(S, name)(x, dim), tuple(getattr(torch, name)(x, dim)))
    for size in ((3, 70), (2, 3, 5000), (1, 40000)):
        for dtype in (torch.float32, torch.bfloat16):
            x = (draw(*size) * 4).to(dtype)
            x[0, ..., 3:9] = float("-inf")
            case(f"row_logsumexp {size, dtype}", rows.row_logsumexp(x), x.double().logsumexp(-1).float())
            case(f"row_logsumexp {size, dtype}, scaled", rows.row_logsumexp(x, 0.3), (x.double() * 0.3).logsumexp(-1).float())
            case(f"row_softmax {size, dtype}, scaled", rows.row_softmax(x, 0.3), (x.double() * 0.3).softmax(-1).to(dtype))
            case(f"row_softmax {size, dtype}", rows.row_softmax(x.mT.contiguous().mT), x.double().softmax(-1).to(dtype))
    rows.row_should_be_read_twice = lambda *_: True
    case("row_softmax, each row read twice", rows.row_softmax(x), x.double().softmax(-1).to(x.dtype))
    case("row_softmax, scaled, each row read twice", rows.row_softmax(x, 0.3), (x.double() * 0.3).softmax(-1).to(x.dtype))
    case("cumsum int64", S.cumsum(torch.arange(50), 0), torch.arange(50).cumsum(0))
    for size, dim, descending in [((3, 70), 1, False), ((2, 33, 5), 1, True)]:
        x = (draw(*size) * 3).round()
        x.view(-1)[2], x.view(-1)[1] = float("nan"), float("-inf")
        want = torch.sort(x, dim=dim, descending=descending, stable=True)
        case(f"sort {size, dim}", sorting.sort(x, dim, descending), tuple(want))
        case(f"topk_long {size, dim}", sorting.topk_long(x, 2, dim, descending), tuple(t.narrow(dim, 0, 2).contiguous() for t in want))
        case(f"topk {size, dim}", sorting.topk(x, 2, dim, descending), tuple(t.narrow(dim, 0, 2).contiguous() for t in want))
    for size, dim, k in [((2, 5000), 1, 7), ((1025, 3), 0, 40), ((9000,), 0, 300), ((2, 2049), -1, 1)]:
        x = (draw(*size) * 30).round()
        want = torch.sort(x, dim=dim, descending=True, stable=True)
        case(f"topk_long {size, k}", sorting.topk_long(x, k, dim, True), tuple(t.narrow(dim, 0, k).contiguous() for t in want))
    for shape, dim in [((50,), 0), ((3, 40), 1), ((20, 3, 5), 0)]:
        into = [7 if d == dim else size for d, size in enumerate(shape)]
        for dtype in (torch.float32, torch.bfloat16):
            x, src, index = draw(*into).to(dtype), (draw(*shape) * 3).to(dtype), torch.randint(0, 6, shape)
            for name, own in (("amax", True), ("amin", False)):
                made = scattering.scatter_extreme(x, dim, index, src, name == "amax", own)
                case(f"scatter {shape, dtype, name}", made, x.scatter_reduce(dim, index, src, name, include_self=own))
                alike = index.movedim(dim, -1).flatten()[: index.shape[dim]]
                wide = alike.view([-1 if d == dim % x.dim() else 1 for d in range(x.dim())]).expand(index.shape)
                made = scattering.scatter_extreme(x, dim, wide, src, name == "amax", own)
                case(f"scatter rows {shape, dtype, name}", made, x.scatter_reduce(dim, wide, src, name, include_self=own))
    for n, size in [(1, 2), (300, 7), (1000, 700)]:
        x, weights = torch.randint(0, size, (n,)), draw(n)
        case(f"bincount {n, size}", scattering.bincount(x, None, size), torch.bincount(x, minlength=size))
        for w in (weights, weights.double()):
            case(f"bincount {n, size, w.dtype}", scattering.bincount(x.int(), w, size), torch.bincount(x, w, size))


def windows() -> None:
    square, uneven = (3, (9, 14), (3, 3), (1, 1), (1, 1)), (70, (40, 33), (3, 2), (2, 0), (2, 3))
    for channels, size, k, p, d in [(5, (40,), (4,), (3,), (1,)), square, uneven]:
        for dtype in (torch.float32, torch.bfloat16):
            x, weight = draw(3, channels, *size, dtype=dtype), draw(channels, 1, *k, dtype=dtype).requires_grad_()
            convolve = F.conv1d if len(size) == 1 else F.conv2d
            out = convolve(x.double(), weight.double(), padding=p, dilation=d, groups=channels)
            grad = draw(*out.shape, dtype=dtype)
            (want,) = torch.autograd.grad(out, weight, grad.double())
            case(f"window_gradient {size, k, dtype}", window_gradients.window_gradient(grad, x, list(k), list(p), list(d)), want.to(dtype))


def groups() -> None:
    for m, n, k, ends in [(40, 33, 70, [0, 7, 7, 40]), (200, 16, 16, [130, 150]), (5, 3, 2, [1, 2, 3, 4]), (0, 4, 4, [0])]:
        for dtype in (torch.float32, torch.bfloat16, torch.float64):
            a, b = draw(m, k, dtype=dtype), draw(len(ends), n, k, dtype=dtype).mT
            parts = [a[start:end] @ b[g] for g, (start, end) in enumerate(zip([0, *ends], ends, strict=False))]
            want = torch.cat([*parts, a.new_zeros(m - ends[-1], n)])
            case(f"grouped {m, n, k, ends, dtype}", grouped.grouped_matmul(a, b, torch.tensor(ends, dtype=torch.int32)), want)


def chunks() -> None:
    for steps, batch, chunk, width, columns in [(3, 2, 16, 24, 40), (1, 3, 9, 5, 7), (4, 1, 64, 130, 16), (2, 2, 17, 16, 33)]:
        for dtype in (torch.float32, torch.bfloat16):
            k, w, v = (draw(steps, batch, chunk, n, dtype=dtype) / 4 for n in (width, width, columns))
            first = draw(batch, width, columns, dtype=dtype)
            for rows_of, gate in ((0, None), (1, draw(steps, batch, 1)), (2, draw(steps, batch, width))):
                for weights in (None, w):
                    now = first.double()
                    want = [now]
                    for t in range(steps):
                        added = v[t].double() if weights is None else v[t].double() + w[t].double() @ now
                        now = now * (1.0 if gate is None else gate[t].double().unsqueeze(-1)) + k[t].double().mT @ added
                        want.append(now)
                    turned = v.transpose(0, 1).contiguous().transpose(0, 1)
                    got = states.matrix_states(first, gate, k.mT.contiguous().mT, turned, weights)
                    case(f"states {steps, chunk, width, rows_of, dtype}", got, torch.stack(want).to(dtype))


def bagged() -> None:
    for width, offsets in [(5, [0, 3, 3, 40]), (200, [0, 1]), (16, [0, 0, 90, 100]), (64, [0])]:
        for dtype in (torch.float32, torch.bfloat16, torch.float64):
            table, ids = draw(30, width, dtype=dtype), torch.randint(0, 30, (100,))
            ways = [("sum", False, -1, torch.int64), ("mean", True, 3, torch.int32), ("max", False, 3, torch.int64)]
            for mode, last, padding, kind in ways:
                starts = torch.tensor([*offsets, *([100] if last else [])]).to(kind)
                scales = draw(100, dtype=dtype) if mode == "sum" else None
                got = bags.bag_rows(table, ids.to(kind), starts, scales, mode, last, padding)
                options = {"padding_idx": padding if padding >= 0 else None, "include_last_offset": last, "mode": mode}
                want = torch.nn.functional.embedding_bag(ids.to(kind), table, starts, per_sample_weights=scales, **options)
                case(f"bags {width, offsets, mode, dtype}", got, want)
    lowest, ids, starts = torch.full((3, 4), float("-inf")), torch.tensor([0, 2, 1]), torch.tensor([0, 2, 2])
    want = torch.nn.functional.embedding_bag(ids, lowest, starts, mode="max")  # a bag of no rows is 0, one of the lowest numbers is not
    assert torch.equal(bags.bag_rows(lowest, ids, starts, None, "max", False, -1), want), "bags of the lowest numbers"


def sampled() -> None:
    for channels, (height, width), sides in [(5, (7, 9), (3, 50)), (20, (1, 6), (4, 4)), (16, (1, 1), (1, 3))]:
        for dtype in (torch.float32, torch.float16, torch.float64):
            for padding in ("zeros", "border", "reflection"):
                for corners in (False, True):
                    image = draw(2, height, width, channels, dtype=dtype).permute(0, 3, 1, 2)
                    grid = 1.5 * draw(2, 2, *sides, dtype=dtype).permute(0, 2, 3, 1)
                    grid[0, 0, 0, 0], grid[1, 0, 0, 1] = float("nan"), float("-inf")
                    for mode in ("bilinear", "nearest"):
                        got = image_samples.grid_sample(image, grid, mode, padding, corners)
                        if dtype == torch.float16:  # where a place is rounded to half precision, as on a CPU, another pixel may be near
                            want = F.grid_sample(image.float(), grid.float(), mode, padding, corners).to(dtype)
                        else:
                            want = F.grid_sample(image, grid, mode, padding, corners)
                        want = want.nan_to_num(0.0).contiguous()  # no place is outside, as on a GPU
                        case(f"sampled {channels, height, width, dtype, padding, corners, mode}", got, want, 1e-4)
    halves = torch.tensor([-1.0, -0.5, 0.0, 0.5, 1.0])  # between two of four pixels the even one is nearest
    grid = torch.stack(torch.meshgrid(halves, halves, indexing="xy"), -1)[None]
    image = torch.arange(64.0).view(1, 4, 4, 4)
    want = F.grid_sample(image, grid, "nearest", "zeros", False)
    case("nearest of two", image_samples.grid_sample(image, grid, "nearest", "zeros", False), want)


def factors() -> None:
    for size in [(1, 1), (5, 5), (2, 17, 17), (7, 4), (3, 4, 9), (0, 3, 3), (70, 66)]:
        for dtype in (torch.float32, torch.float64):
            a, n = draw(*size, dtype=dtype), size[-2]
            lu, pivots = torch.linalg.lu_factor(a)
            case(f"lu_factor {size, dtype}", factorize.lu_factor(a.mT.contiguous().mT, True), (lu.contiguous(), pivots), 1e-3)
            if a.shape[-1] == n:
                want = torch.linalg.ldl_factor(a)
                case(f"ldl_factor {size, dtype}", factorize.ldl_factor(a), tuple(t.contiguous() for t in want), 1e-3)
            order = torch.lu_unpack(lu, pivots)[0].argmax(-2)
            case(f"permutation {size, dtype}", factorize.permutation(pivots, n), order.contiguous(), 0.0)
            for complete in (False, True):
                q, r = factorize.qr(a, complete)
                want = torch.linalg.qr(a, "complete" if complete else "reduced")
                case(f"qr {size, dtype, complete}", (q, r[..., : q.shape[-1], :].triu()), tuple(t.contiguous() for t in want), 1e-3)
    for n, width in [(1, 1), (9, 70), (33, 3), (0, 2), (4, 0)]:
        for upper, unit in [(False, False), (True, False), (False, True), (True, True)]:
            a, b = draw(2, n, n) / 8 + torch.eye(n), draw(2, n, width)
            want = torch.linalg.solve_triangular(a.mT, b, upper=upper, unitriangular=unit).contiguous()
            case(f"triangular_solve {n, width, upper, unit}", factorize.triangular_solve(a.mT, b, upper, unit), want, 1e-4)


if __name__ == "__main__":
    torch.manual_seed(0)
    for group in sys.argv[1:]:
        globals()[group]()
