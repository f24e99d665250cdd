"""What a half-precision product takes by the table of GPUs. The way of each is chosen by it: nothing is timed while a file is written.

The shares of a GPU's rates were fitted to what an H200 took (``tests/compiler/test_cost_model.py`` has the figures).
"""

from __future__ import annotations

from kernelllm.compiler.templates import matmul_half
from kernelllm.core.gpus import Gpu

_LIBRARY, _LARGE_TILES, _SMALL_TILES, _SPLIT = 0.75, 0.85, 0.62, 0.5
"""Shares of the tensor cores' rate: cuBLAS, our tiles of 128 x 256 and of 64 x 128, and those with a split K."""
_MEMORY = 0.85
_LAUNCH, _WAVE = 3.0, 1.7
"""Microseconds of a launch, and of a wave of tiles beside its multiplications."""
_OPERATIONS = {"gelu": 100, "gelu_tanh": 100}
"""What an element takes of the rate of fp32, by activation, where it was seen to matter."""
SURE = 1.03
"""The speed-up that the model must predict for a template to be chosen."""


def library_us(m: int, n: int, k: int, gpu: Gpu) -> float:
    """The product by cuBLAS."""
    return max(2 * m * n * k / (_LIBRARY * gpu.fp16), _bytes(m, n, k) / (_MEMORY * gpu.bandwidth)) * 1e6 + _LAUNCH


def template_us(m: int, n: int, k: int, gpu: Gpu) -> float:
    """The product by its template, whatever joins it."""
    rows, columns, *_ = matmul_half.product_tiles(m, n, k, gpu.sms)  # type: ignore[no-untyped-call]
    waves: int = -(-(-(-m // rows) * -(-n // columns)) // gpu.sms)
    share: float = (_LARGE_TILES if rows >= 128 else _SMALL_TILES) * gpu.fp16
    busy: float = waves * 2 * rows * columns * k / (share / gpu.sms)
    if matmul_half.product_should_split(m, n, k, gpu.sms):  # type: ignore[no-untyped-call]
        waves, busy = 1, 2 * m * n * k / (_SPLIT * gpu.fp16)
    return max(busy, _bytes(m, n, k) / (_MEMORY * gpu.bandwidth)) * 1e6 + _LAUNCH + waves * _WAVE


def pass_us(elements: int, gpu: Gpu) -> float:
    """A kernel that reads and writes so many elements of half precision: what a product saves that is joined by an activation."""
    return 4 * elements / (_MEMORY * gpu.bandwidth) * 1e6 + _LAUNCH


def activation_us(elements: int, activation: str, gpu: Gpu) -> float:
    """An activation at the end of the template: no product is computed meanwhile."""
    return elements * _OPERATIONS.get(activation, 0) / gpu.fp32 * 1e6


def template_gains(m: int, n: int, k: int, gpu: Gpu, *, activation: str = "", products: int = 1) -> bool:
    """Whether the template is the faster way, with an activation behind the product or nothing.

    ``products``: 2 where the result is multiplied with that of another product of this size, with weights of its own.
    """
    ours = template_us(m, n, k, gpu) * products + activation_us(m * n, activation, gpu)
    other = library_us(m, n, k, gpu) * products + (pass_us(m * n * (1 + products) // 2, gpu) if activation else 0.0)
    return gpu.arch >= "sm_90" and ours * SURE < other


def _bytes(m: int, n: int, k: int) -> int:
    return 2 * (m * k + n * k + m * n)
