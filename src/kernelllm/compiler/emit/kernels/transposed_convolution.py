"""Statements of a transposed convolution in a kernel: a stride spreads the pixels that one tap reaches.

Each program has pixels of one phase, of the same remainders by the stride, which the same few taps reach. Where pixels are to be stored
side by side, it has those of both phases of the last direction: two sums, joined row by row.
"""

from __future__ import annotations

import math

from kernelllm.compiler.emit.kernels.convolution_shape import Shape, joined, names, split, times


def statements(shape: Shape, images: str, weights: str, mask: str) -> list[str]:
    """What computes ``acc``, in float32, for the pixels that it calls ``pixels``, of which there are those that it calls ``there``.

    ``mask``: of the weights' channels.
    """
    if not shape.paired:
        taps = [f"{n}_taps" for n in names(shape)]
        return [*_places(shape), f"first = {_first(shape)}", *_sum(shape, "acc", "BLOCK_M", "there", taps, images, weights, mask)]
    last = names(shape)[-1]
    lines = _paired_places(shape)
    for side in (0, 1):
        first = (side + shape.padding[-1]) % 2
        taps = [*(f"{n}_taps" for n in names(shape)[:-1]), str((shape.taps[-1] + 1 - first) // 2)]
        lines += [
            f"{last} = {last}_from + {(side + shape.padding[-1]) // 2}",
            f"{last}_first = {first}",
            f"first = {_first(shape)}",
            *_sum(shape, f"acc_{side}", "BLOCK_M // 2", "paired", taps, images, weights, mask),
        ]
    return [*lines, "acc = tl.reshape(tl.permute(tl.join(acc_0, acc_1), (0, 2, 1)), (BLOCK_M, BLOCK_N))"]


def _first(shape: Shape) -> str:
    return f"({joined(['image', *names(shape)], (0, *shape.size))}) * {shape.channels}"


def _among(shape: Shape, what: str, count: int, to: str) -> str:
    """The text of a mask: which places lie inside of the output."""
    tests = [f"{what} < {count}"]
    for name, size, q, s in zip(names(shape), shape.out_size, shape.places, shape.stride, strict=True):
        if q * s != size and not (shape.paired and what == "pairs" and name == names(shape)[-1]):
            tests.append(f"{name}_{to} < {size}")
    return " & ".join(f"({test})" for test in tests) if len(tests) > 1 else tests[0]


def _places(shape: Shape) -> list[str]:
    steps = list(zip(names(shape), shape.stride, shape.padding, strict=True))
    return [
        f"tiles = tl.cdiv({shape.out_channels}, BLOCK_N)",
        f"phase = tl.program_id(0) // tiles % {shape.phases}",
        f"places = tl.program_id(0) // (tiles * {shape.phases}) * BLOCK_M + tl.arange(0, BLOCK_M)",
        "channels = tl.program_id(0) % tiles * BLOCK_N + tl.arange(0, BLOCK_N)",
        f"image = places // {math.prod(shape.places)}",
        *(f"{name}_first = {part}" for name, part in zip(names(shape), split("phase", shape.stride), strict=True)),
        *(f"{name}_to = {times(of, s)} + {name}_first" for (name, s, _), of in zip(steps, split("places", shape.places), strict=True)),
        f"there = {_among(shape, 'places', shape.images * math.prod(shape.places), 'to')}",
        f"pixels = tl.where(there, {joined(['image', *(f'{name}_to' for name in names(shape))], (0, *shape.out_size))}, 0)",
        *_starts(shape, "to", len(steps)),
    ]


def _starts(shape: Shape, to: str, directions: int) -> list[str]:
    """Where the first tap of pixels lies in the images, which it is, and how many follow, in the first so many ``directions``."""
    steps = list(zip(names(shape), shape.stride, shape.padding, shape.taps, strict=True))[:directions]
    return [
        *(f"{name} = ({name}_{to} + {pad}) // {s}" if pad else f"{name} = {name}_{to} // {s}" for name, s, pad, _ in steps),
        *(f"{name}_first = ({name}_first + {pad}) % {s}" for name, s, pad, _ in steps if pad),
        *(f"{name}_taps = ({k + s - 1} - {name}_first) // {s}" for name, s, _, k in steps),
    ]


def _paired_places(shape: Shape) -> list[str]:
    """Pixels of both phases of the last direction, ``places``, and what a tap reaches of them, ``pairs``."""
    others, last = list(zip(names(shape)[:-1], shape.stride[:-1], strict=True)), names(shape)[-1]
    wide = (*shape.places[:-1], 2 * shape.places[-1])
    phases = math.prod(shape.stride[:-1])

    def spread(whole: str, sizes: tuple[int, ...], to: str) -> list[str]:
        parts = split(whole, sizes)
        return [*(f"{n}_{to} = {times(of, s)} + {n}_first" for (n, s), of in zip(others, parts, strict=False)), parts[-1]]

    *placed, at = spread("places", wide, "to")
    *paired, start = spread("pairs", shape.places, "from")
    return [
        f"tiles = tl.cdiv({shape.out_channels}, BLOCK_N)",
        f"phase = tl.program_id(0) // tiles % {phases}",
        f"start = tl.program_id(0) // (tiles * {phases}) * BLOCK_M",
        "channels = tl.program_id(0) % tiles * BLOCK_N + tl.arange(0, BLOCK_N)",
        *(f"{name}_first = {part}" for (name, _), part in zip(others, split("phase", shape.stride[:-1]), strict=True)),
        "places = start + tl.arange(0, BLOCK_M)",
        f"image = places // {math.prod(wide)}",
        *placed,
        f"{last}_to = {at}",
        f"there = {_among(shape, 'places', shape.images * math.prod(wide), 'to')}",
        f"pixels = tl.where(there, {joined(['image', *(f'{name}_to' for name in names(shape))], (0, *shape.out_size))}, 0)",
        "pairs = start // 2 + tl.arange(0, BLOCK_M // 2)",
        f"image = pairs // {math.prod(shape.places)}",
        *paired,
        f"{last}_from = {start}",
        f"paired = {_among(shape, 'pairs', shape.images * math.prod(shape.places), 'from')}",
        *_starts(shape, "from", len(others)),
    ]


def _sum(shape: Shape, acc: str, block: str, there: str, counts: list[str], images: str, weights: str, mask: str) -> list[str]:
    """A loop over the taps that reach a phase, of which there are ``counts`` by direction: a pixel's taps go back from it."""
    deep = f"step % ({shape.channels} // BLOCK_K) * BLOCK_K"
    steps = list(zip(names(shape), shape.stride, strict=True))
    backs = []
    for at, name in enumerate(names(shape)):
        below = " * ".join(counts[at + 1 :])
        back = f"tap // ({below})" if below else "tap"
        backs.append(f"{name}_back = {f'{back} % {counts[at]}' if at else back}")
    tests = [f"({n} >= {n}_back) & ({n} - {n}_back < {size})" for n, size in zip(names(shape), shape.size, strict=True)]
    place = joined([f"{name}_back" for name in names(shape)], shape.size)
    taps = joined([f"({name}_first + {times(f'{name}_back', s)})" for name, s in steps], shape.taps)
    where = f"(({taps}) * {shape.out_channels} + channels[None, :]) * {shape.channels} + taken[:, None]"
    return [
        f"{acc} = tl.zeros(({block}, BLOCK_N), dtype=tl.float32)",
        f"for step in range({' * '.join(counts)} * ({shape.channels} // BLOCK_K)):",
        f"    tap = step // ({shape.channels} // BLOCK_K)",
        *(f"    {line}" for line in backs),
        f"    inside = {there} & {' & '.join(tests)}",
        f"    taken = {deep} + tl.arange(0, BLOCK_K)",
        f"    at = {deep} - ({place}) * {shape.channels}",
        f"    window = tl.load({images} + ((first + at)[:, None] + tl.arange(0, BLOCK_K)[None, :]), inside[:, None], other=0.0)",
        f"    weight = tl.load({weights} + ({where}){mask})",
        f"    {acc} = tl.dot(window, weight, {acc}, input_precision=PRECISION)",
    ]


__all__ = ["statements"]
