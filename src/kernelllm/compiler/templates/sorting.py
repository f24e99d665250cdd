"""Sort and top-k along one dimension in Triton: each row is sorted as 64-bit keys of (value, position), so the order is stable."""

import torch
import triton
import triton.language as tl


@triton.jit
def sort_key(x):
    """int32 numbers in the order of x (NaN last), and equal for 0.0 and -0.0."""
    if x.dtype.is_floating():
        x = x.to(tl.float32)
        bits = tl.where(x == 0, 0.0, x).to(tl.int32, bitcast=True)
        bits = tl.where(x == x, bits, 0x7FC00000)
        return bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return x.to(tl.int32)


@triton.jit
def sort_kernel(x_ptr, out_ptr, index_ptr, lanes, length, kept, inner, DESCENDING: tl.constexpr,
                LANES: tl.constexpr, BLOCK: tl.constexpr):
    """The first ``kept`` of LANES sorted lanes of x [outer, length, inner] -> out, index [outer, kept, inner]; BLOCK >= length."""
    lane = (tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES))[:, None]
    i = tl.arange(0, BLOCK)[None, :]
    source = x_ptr + lane // inner * length * inner + lane % inner
    key = sort_key(tl.load(source + i.to(tl.int64) * inner, mask=(lane < lanes) & (i < length), other=0))
    if DESCENDING:
        key = ~key
    keys = tl.where(i < length, (key.to(tl.int64) << 32) | i.to(tl.int64), 0x7FFFFFFFFFFFFFFF)
    where = tl.sort(keys, dim=1) & 0xFFFFFFFF
    mask = (lane < lanes) & (i < kept)
    target = lane // inner * kept * inner + lane % inner + i.to(tl.int64) * inner
    tl.store(out_ptr + target, tl.load(source + where * inner, mask=mask, other=0), mask=mask)
    tl.store(index_ptr + target, where, mask=mask)


def sort_at_once(block):
    """(lanes a program, num_warps): a warp by itself sorts short lanes without waiting for others."""
    if block > 256:
        return 1, 4 if block <= 1024 else 8
    return (max(2, 256 // block), 1) if block >= 64 else (512 // block, 4)


def sort_run(x, k, dim, descending):
    """The first k of each sorted row along ``dim`` (all where k is None), and their int64 positions."""
    x = x.contiguous()
    dim = dim % max(x.dim(), 1)
    length = x.shape[dim] if x.dim() else 1
    kept = length if k is None else k
    if length > 4096 or x.dtype in (torch.float64, torch.int64):
        raise ValueError("sort and topk take rows of up to 4096 elements of at most 32 bits")
    shape = (*x.shape[:dim], kept, *x.shape[dim + 1 :]) if x.dim() else ()
    out = torch.empty(shape, device=x.device, dtype=x.dtype)
    index = torch.empty(shape, device=x.device, dtype=torch.int64)
    inner = 1
    for size in x.shape[dim + 1 :]:
        inner *= size
    if out.numel() > 0:
        block = max(2, triton.next_power_of_2(length))
        lanes = x.numel() // length
        at_once, warps = sort_at_once(block)
        sort_kernel[(triton.cdiv(lanes, at_once),)](
            x, out, index, lanes, length, kept, inner, descending, at_once, block, num_warps=warps
        )
    return out, index


def sort(x, dim, descending):
    """Stable sort along ``dim``: (values, int64 positions); NaN counts as the largest. ValueError beyond 4096 elements a row."""
    return sort_run(x, None, dim, descending)


def topk(x, k, dim, largest):
    """The k largest (or smallest) along ``dim``, sorted: (values, int64 positions), ties by the lower position."""
    return sort_run(x, k, dim, largest)


@triton.jit
def chunk_topk_kernel(x_ptr, from_ptr, out_ptr, index_ptr, length, pitch, kept, FIRST: tl.constexpr, LARGEST: tl.constexpr,
                      BLOCK: tl.constexpr):
    """x [rows, pitch], of which ``length`` count -> the first ``kept`` of each sorted chunk of BLOCK: out, index [rows, chunks, kept]."""
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i = tl.arange(0, BLOCK)
    place = chunk * BLOCK + i
    key = sort_key(tl.load(x_ptr + row * pitch + place, mask=place < length, other=0))
    if LARGEST:
        key = ~key
    keys = tl.where(place < length, (key.to(tl.int64) << 32) | i.to(tl.int64), 0x7FFFFFFFFFFFFFFF)
    source = chunk * BLOCK + (tl.sort(keys) & 0xFFFFFFFF)
    mask = (i < kept) & (source < length)
    target = (row * tl.num_programs(1) + chunk) * kept + i
    tl.store(out_ptr + target, tl.load(x_ptr + row * pitch + source, mask=mask, other=0), mask=mask)
    if not FIRST:
        source = tl.load(from_ptr + row * pitch + source, mask=mask, other=0)
    tl.store(index_ptr + target, source, mask=mask)


def topk_long(x, k, dim, largest):
    """As ``topk``, of rows of any length and k up to 1024: chunks are sorted, and the first k of each again until one is left."""
    if k > 1024 or x.dtype in (torch.float64, torch.int64):
        raise ValueError("topk takes up to 1024 elements of at most 32 bits")
    values = x.movedim(dim, -1).contiguous()
    rows, length = values.shape[:-1], values.shape[-1]
    index, pitch, block = None, length, 1024 if k <= 256 else 4096
    while index is None or pitch > k:
        chunks = triton.cdiv(length, block)
        out = torch.empty((*rows, chunks * k), device=x.device, dtype=x.dtype)
        place = torch.empty((*rows, chunks * k), device=x.device, dtype=torch.int64)
        if out.numel() > 0:
            chunk_topk_kernel[(out.numel() // (chunks * k), chunks)](
                values, place if index is None else index, out, place, length, pitch, k, index is None, largest, block, num_warps=4
            )
        values, index, pitch = out, place, chunks * k
        length = (chunks - 1) * k + min(k, length - (chunks - 1) * block)
    return values.movedim(-1, dim).contiguous(), index.movedim(-1, dim).contiguous()
