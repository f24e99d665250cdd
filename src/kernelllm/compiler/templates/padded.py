"""Products by the library where it alone would be slow."""

import torch


def padded_mm(a, b):
    """a [M,K] @ b [K,N] in half precision, for an N that 8 does not divide: each row of the result begins at a multiple of 128 bytes.

    cuBLAS takes its fast kernels for as many columns as 8 divides; the few others are a small product.
    """
    whole = b.shape[1] // 8 * 8
    out = torch.empty((a.shape[0], -(-b.shape[1] // 64) * 64), device=a.device, dtype=a.dtype)[:, :b.shape[1]]
    torch.mm(a, b[:, :whole], out=out[:, :whole])
    torch.mm(a, b[:, whole:], out=out[:, whole:])
    return out
