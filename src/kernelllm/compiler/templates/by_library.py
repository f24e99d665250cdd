"""What the library computes faster by another call than torch makes."""

import torch


def padded_mm(a, b):
    """a [M,K] @ b [K,N] in half precision, for an N that 8 does not divide: each row of the result begins at a multiple of 128 bytes.

    cuBLAS takes its fast kernels for as many columns as 8 divides; the few others are a small product.
    """
    a, b = a.detach(), b.detach()
    whole = b.shape[1] // 8 * 8
    out = torch.empty((a.shape[0], -(-b.shape[1] // 64) * 64), device=a.device, dtype=a.dtype)[:, :b.shape[1]]
    torch.mm(a, b[:, :whole], out=out[:, :whole])
    torch.mm(a, b[:, whole:], out=out[:, whole:])
    return out


def conv_relu(x, weight, bias, other, stride, padding, dilation):
    """relu(convolution of x [N,C,H,W] with weight [O,C,h,w] + bias [O] + other [N,O,H',W'] or nothing), channels last.

    cuDNN has one kernel for it; torch calls it only where it is asked for by name.
    """
    last = torch.channels_last
    x, weight = x.detach().contiguous(memory_format=last), weight.detach().contiguous(memory_format=last)
    if other is None:
        return torch.cudnn_convolution_relu(x, weight, bias.detach(), stride, padding, dilation, 1)
    other = other.contiguous(memory_format=last)
    return torch.cudnn_convolution_add_relu(x, weight, other, 1.0, bias.detach(), stride, padding, dilation, 1)
