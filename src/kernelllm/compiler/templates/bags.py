"""Sums, means and maxima over bags of a table's rows in Triton."""

import torch
import triton
import triton.language as tl


@triton.jit
def bag_kernel(weight_ptr, index_ptr, offsets_ptr, scales_ptr, out_ptr, total, starts, width, padding, MODE: tl.constexpr,
               SCALED: tl.constexpr, PADDED: tl.constexpr, ACC: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr):
    """One bag, BLOCK_ROWS of its rows at a time; MODE: sum, mean or max. A bag of no rows is 0."""
    bag = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)[None, :]
    first = tl.load(offsets_ptr + bag).to(tl.int64)
    end = tl.load(offsets_ptr + bag + 1, mask=bag + 1 < starts, other=total).to(tl.int64)
    nothing: tl.constexpr = float("-inf") if MODE == "max" else 0.0
    acc = tl.full((BLOCK_ROWS, BLOCK_COLS), nothing, dtype=ACC)
    count = tl.zeros((BLOCK_ROWS, 1), dtype=tl.int32)
    for start in range(first, end, BLOCK_ROWS):
        rows = start + tl.arange(0, BLOCK_ROWS)[:, None]
        inside = rows < end
        index = tl.load(index_ptr + rows, mask=inside, other=0).to(tl.int64)
        if PADDED:
            inside = inside & (index != padding)
        x = tl.load(weight_ptr + index * width + cols, mask=inside & (cols < width), other=nothing).to(ACC)
        if SCALED:
            x = x * tl.load(scales_ptr + rows, mask=inside, other=0.0).to(ACC)
        if MODE == "max":
            acc = tl.maximum(acc, x)
        else:
            acc += x
        count += inside.to(tl.int32)
    rows_in = tl.sum(count, axis=0)
    out = tl.max(acc, axis=0) if MODE == "max" else tl.sum(acc, axis=0)
    if MODE == "max":
        out = tl.where(rows_in > 0, out, 0.0)
    elif MODE == "mean":
        out = out / tl.maximum(rows_in, 1).to(ACC)
    tl.store(out_ptr + bag * width + cols, out[None, :].to(out_ptr.dtype.element_ty), mask=cols < width)


def bag_tiles(total, bags, columns):
    """(rows, columns) that a program holds at a time: as many rows as a bag has, so that their loads are under way together."""
    rows = min(16, max(2, triton.next_power_of_2(triton.cdiv(total, max(bags, 1)))))
    return rows, min(128, max(16, triton.next_power_of_2(columns)))


def bag_rows(weight, indices, offsets, scales, mode, last, padding):
    """torch.embedding_bag(weight, indices, offsets)[0]; ``last``: offsets end with that of the end; ``scales``: per_sample_weights or None;
    rows of the number ``padding`` do not count, if it is not negative."""
    bags, width = offsets.shape[0] - int(last), weight.shape[1]
    out = torch.empty((bags, width), device=weight.device, dtype=weight.dtype)
    weight, indices, offsets = weight.contiguous(), indices.contiguous(), offsets.contiguous()
    scaled = scales is not None
    scales = scales.contiguous() if scaled else weight
    rows, cols = bag_tiles(indices.shape[0], bags, width)
    if bags > 0 and width > 0:
        bag_kernel[(bags, triton.cdiv(width, cols))](
            weight, indices, offsets, scales, out, indices.shape[0], offsets.shape[0], width, padding, mode, scaled, padding >= 0,
            tl.float64 if weight.dtype == torch.float64 else tl.float32, rows, cols, num_warps=2
        )
    return out
