"""Equal depths in the order of their positions, which is as right as torch's; the sums round otherwise than torch's do."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "composited"
EXPECT = "correct"


@triton.jit
def composite_kernel(depth_ptr, place_ptr, centre_ptr, colour_ptr, out_ptr, layers, first, BLOCK: tl.constexpr):
    p, i = tl.program_id(0), tl.arange(0, BLOCK)
    left = i < layers
    depth = tl.maximum(tl.load(depth_ptr + i, left, 0.0), 0.5)
    place, centre = tl.load(place_ptr + p) + 30.0, tl.load(centre_ptr + i, left, 0.0) + 30.0
    share = 0.9 * tl.exp(place * (2 * centre - place) - centre * centre)
    red, green, blue = 0.0, 0.0, 0.0
    through = 1.0
    for step in range(layers):
        nearest = tl.min(tl.where(left, depth, float("inf")), 0)
        at = tl.min(tl.where(left & (depth == nearest), i, BLOCK), 0)
        here = tl.sum(tl.where(i == at, share, 0.0), 0)
        if step >= first:
            red += here * through * tl.load(colour_ptr + at * 3)
            green += here * through * tl.load(colour_ptr + at * 3 + 1)
            blue += here * through * tl.load(colour_ptr + at * 3 + 2)
        through *= 1 - here
        left = left & (i != at)
    tl.store(out_ptr + p * 3, red)
    tl.store(out_ptr + p * 3 + 1, green)
    tl.store(out_ptr + p * 3 + 2, blue)


class ModelNew(nn.Module):
    def forward(self, depth, place, centre, colour):
        depth, place, centre, colour = depth.contiguous(), place.contiguous(), centre.contiguous(), colour.contiguous()
        out = torch.empty(place.shape[0], 3, device=place.device)
        layers = depth.shape[0]
        composite_kernel[(place.shape[0],)](depth, place, centre, colour, out, layers, 0, triton.next_power_of_2(layers))
        return out
