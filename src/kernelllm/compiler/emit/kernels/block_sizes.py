"""Block sizes, warps and grids: what Inductor's heuristics choose at run time, chosen here once.

Figures are for an H200 and close to Inductor's own first choices: 1024 elements a program for pointwise kernels, rows of
up to 4096 for reductions along contiguous memory, 64 x 32 tiles for reductions across it.
"""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass, field

from kernelllm.compiler.inductor import heuristics
from kernelllm.compiler.inductor.kernel_source import Kernel
from kernelllm.compiler.inductor.row_reductions import LONGER
from kernelllm.compiler.inductor.strides import gathers, reads_along_rows
from kernelllm.compiler.options import Options

_LIMITS = {"XBLOCK": 4096, "YBLOCK": 1024, "ZBLOCK": 1024}
"""Inductor leaves masks out where a size divides by these, so no block may be larger."""
SMALL = 2**16
"""Elements up to which an elementwise kernel is not tuned on a path for known sizes."""
_MANY_ROWS = 1024
"""Rows from which on a GPU has several programs of one row to go on with while others wait."""
WORTH_TUNING = 2**20
"""Elements below which a kernel takes a GPU no longer than its launch: choosing among configurations would cost more than it brings."""


_COLUMNS: list[heuristics.Blocks] = [
    ({"XBLOCK": 64, "R0_BLOCK": 32}, 4), ({"XBLOCK": 128, "R0_BLOCK": 16}, 4), ({"XBLOCK": 128, "R0_BLOCK": 16}, 1),
    ({"XBLOCK": 256, "R0_BLOCK": 4}, 1), ({"XBLOCK": 512, "R0_BLOCK": 4}, 1),
]  # fmt: skip
"""For sums across memory: Inductor's own (64 x 8) leaves half of the threads idle in half precision, and few loads under way. Programs of
one warp, with many loads each, take 0.9 of the time of larger ones on an H200 where rows do not start at a multiple of 32 bytes."""

_SCANS: list[heuristics.Blocks] = [
    ({"XBLOCK": 1, "R0_BLOCK": block}, warps) for block, warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 8), (4096, 16))
]
"""For running sums of long rows, beside Inductor's own (2048 by 16 warps): a step waits for what it reads and for all of its warps, which
smaller programs, of which more fit side by side, do for each other."""


@dataclass
class LaunchConfig:
    """How one kernel is launched."""

    rows: bool = False
    """One row of a reduction a program."""
    blocks: dict[str, int] = field(default_factory=dict)
    """Fixed block sizes by Inductor's name. A reduction block is the most that is used."""
    warps: int = 4
    tuned: list[tuple[dict[str, int], int]] = field(default_factory=list)
    """For autotune: block sizes and warps to try."""
    restored: tuple[str, ...] = ()
    """Pointers that the kernel reads and writes: tuning puts back what they lead to."""

    def every(self) -> dict[str, set[int]]:
        """What each block size may be."""
        return {b: {values.get(b, size) for values, _ in self.tuned or [({}, 0)]} for b, size in self.blocks.items()}


def launch_config(kernel: Kernel, options: Options, *, may_tune: bool = True) -> LaunchConfig:
    """Choose blocks for a kernel. No autotuning where that may not be (``may_tune``), nor of small kernels."""
    if options.short:
        return _usual(kernel, kernel.hints.get("x", 1))
    known = heuristics.candidate_blocks(kernel) if options.library else []
    tunes = may_tune and _may_tune(kernel, options, known)
    chosen = _own(kernel, options)
    if known and options.mixed and _better_by_own(kernel):
        known = [({**dict.fromkeys(kernel.blocks, 1), **chosen.blocks}, chosen.warps), *(known if tunes else ())]
    elif known and options.mixed and in_columns(kernel):
        known = [*_COLUMNS, *known] if tunes else _COLUMNS[:1]
    elif known and options.mixed and _scans_long_rows(kernel):
        known, tunes = [*_row_wise(known), *_SCANS], not kernel.meta.get("atomic_add_found")
    if known:
        chosen = _as_inductor(kernel, known if tunes else [min(known, key=lambda one: _distance(one, chosen))])
    elif tunes:
        chosen.tuned = _tuned(chosen, kernel)
    chosen.restored = tuple(p for p in kernel.params if p.startswith("in_out_ptr"))
    return chosen


def _own(kernel: Kernel, options: Options) -> LaunchConfig:
    """By our own rules."""
    blocks, x = set(kernel.blocks), kernel.hints.get("x", 1)
    if not any(k.startswith("r") for k in kernel.hints):
        chosen = _pointwise(blocks, x, kernel.hints, options)
    elif any(k.startswith("r1") for k in kernel.hints):
        chosen = LaunchConfig(blocks={"XBLOCK": 4, "YBLOCK": 1, "R0_BLOCK": 32, "R1_BLOCK": 32}, warps=8)
    elif "YBLOCK" in blocks:
        chosen = _tiled_reduction(kernel, x, kernel.hints.get("r0_", 1))
    else:
        chosen = _reduction(kernel, x, kernel.hints.get("r0_", 1), options)
    chosen.blocks = {b: min(v, _LIMITS.get(b, v)) for b, v in chosen.blocks.items()}
    return chosen


def _may_tune(kernel: Kernel, options: Options, known: list[heuristics.Blocks]) -> bool:
    """Whether a GPU may choose among several: on the mixed path what Inductor would have it choose among, elsewhere as asked for."""
    if kernel.meta.get("atomic_add_found"):
        return False
    if options.library:
        return bool(known) and (options.autotune or options.mixed) and not _takes_a_launch(kernel)
    return options.autotune and math.prod(kernel.hints.values()) >= WORTH_TUNING


def _takes_a_launch(kernel: Kernel) -> bool:
    """Whether an elementwise kernel is so small that its launch takes most of its time, whatever the blocks."""
    return not any(k.startswith("r") for k in kernel.hints) and math.prod(kernel.hints.values()) <= SMALL


def _usual(kernel: Kernel, x: int) -> LaunchConfig:
    """The same blocks for all sizes."""
    blocks = set(kernel.blocks)
    sizes = {"XBLOCK": 32, "YBLOCK": 32 if "R0_BLOCK" not in blocks else 4, "ZBLOCK": 4, "R0_BLOCK": 64, "R1_BLOCK": 32}
    if not any(k.startswith("r") for k in kernel.hints) and "YBLOCK" not in blocks:
        return LaunchConfig(blocks={"XBLOCK": 1 if x == 1 else 1024}, warps=4)
    if blocks <= {"XBLOCK", "R0_BLOCK"} and (x == 1 or kernel.reduction_hint == "INNER" or reads_along_rows(kernel)):
        return LaunchConfig(rows=True, blocks={"R0_BLOCK": 1024}, warps=4)
    return LaunchConfig(blocks={b: sizes[b] for b in (*kernel.blocks, "R0_BLOCK") if b in sizes}, warps=4)


def _better_by_own(kernel: Kernel) -> bool:
    """Whether our own rule knows better than Inductor's: rows that it takes for columns, that are read twice or longer than it holds."""
    across = kernel.reduction_hint == "OUTER" and reads_along_rows(kernel)
    return across or _reads_rows_twice(kernel) or _holds_longer_rows(kernel)


def in_columns(kernel: Kernel) -> bool:
    """Whether it is a loop of sums across memory, long enough for deep blocks and for enough of them."""
    loop = "R0_BLOCK" in kernel.blocks and "YBLOCK" not in kernel.blocks and not any(k.startswith("r1") for k in kernel.hints)
    large = kernel.hints.get("r0_", 1) >= 32 and kernel.hints.get("x", 1) >= 2**13
    return loop and large and kernel.reduction_hint != "INNER" and not reads_along_rows(kernel)


def _scans_long_rows(kernel: Kernel) -> bool:
    """Whether it goes along many rows of neighbours with running sums or the like."""
    long = kernel.hints.get("r0_", 1) >= 4096 and kernel.hints.get("x", 1) >= _MANY_ROWS
    loop = "R0_BLOCK" in kernel.blocks and "YBLOCK" not in kernel.blocks
    return bool(kernel.combines) and loop and long and (kernel.reduction_hint == "INNER" or reads_along_rows(kernel))


def _row_wise(known: list[heuristics.Blocks]) -> list[heuristics.Blocks]:
    """Those with one row a program."""
    return [one for one in known if one[0].get("XBLOCK", 1) == 1]


def _reads_rows_twice(kernel: Kernel) -> bool:
    """Whether long rows along memory are read in one loop for a reduction and in another for what is made of it."""
    loops = sum(isinstance(statement, ast.For) for statement in kernel.function.body)
    return loops > 1 and kernel.reduction_hint == "INNER" and "YBLOCK" not in kernel.blocks


def _holds_longer_rows(kernel: Kernel) -> bool:
    """Whether whole rows along memory are held that are longer than Inductor's own."""
    persistent = "R0_BLOCK" not in kernel.blocks and "YBLOCK" not in kernel.blocks
    return persistent and kernel.reduction_hint == "INNER" and 1024 < kernel.hints.get("r0_", 1) <= LONGER


def _as_inductor(kernel: Kernel, known: list[heuristics.Blocks]) -> LaunchConfig:
    """Inductor's choice, or several to tune among. Rows of one program each need no block of rows."""
    persistent = any(b.startswith("r") for b in kernel.hints) and "R0_BLOCK" not in kernel.blocks
    whole = {"R0_BLOCK": kernel.hints["r0_"]} if persistent else {}
    known = [({**blocks, **whole}, warps) for blocks, warps in known]
    known = [one for i, one in enumerate(known) if one not in known[:i]]
    rows = "YBLOCK" not in kernel.blocks and all("R0_BLOCK" in blocks and blocks.get("XBLOCK", 1) == 1 for blocks, _ in known)
    if rows:
        known = [({b: v for b, v in blocks.items() if b != "XBLOCK"}, warps) for blocks, warps in known]
    first, warps = known[0]
    varied = [({b: v for b, v in blocks.items() if b not in whole}, w) for blocks, w in known]
    return LaunchConfig(rows=rows, blocks=first, warps=warps, tuned=varied if len(known) > 1 else [])


def _distance(one: heuristics.Blocks, chosen: LaunchConfig) -> float:
    """How far block sizes are from others, in doublings. Inductor tunes where it knows several; a file that does not takes the nearest."""
    pairs = ((size, chosen.blocks.get(block, 1)) for block, size in one[0].items())
    return sum(abs(math.log2(max(size, 1) / max(other, 1))) for size, other in pairs)


def _scale(options: Options) -> float:
    return {"auto": 1, "small": 0.25, "large": 4}[options.tile]


def _pointwise(blocks: set[str], x: int, hints: dict[str, int], options: Options) -> LaunchConfig:
    scale = _scale(options)
    if "ZBLOCK" in blocks:
        return LaunchConfig(blocks={"XBLOCK": 32, "YBLOCK": 8, "ZBLOCK": 4}, warps=4)
    if "YBLOCK" in blocks:
        y = hints.get("y", 1)
        side_x, side_y = min(32, max(x, 1)), min(32, max(y, 1))
        side_x, side_y = max(side_x, min(x, 1024 // side_y)), max(side_y, min(y, 1024 // side_x))
        if scale > 1:
            side_x *= 2
        return LaunchConfig(blocks={"XBLOCK": side_x, "YBLOCK": side_y}, warps=8 if scale > 1 else 4)
    block = 1024 if x >= 1 << 18 else 256 if x >= 1 << 14 else 128
    block = max(32, int(block * scale))
    return LaunchConfig(blocks={"XBLOCK": 1 if x == 1 else block}, warps=max(1, min(8, block // 256)))


def _reduction(kernel: Kernel, x: int, r: int, options: Options) -> LaunchConfig:
    scale = _scale(options)
    persistent = "R0_BLOCK" not in kernel.blocks
    inner = kernel.reduction_hint == "INNER" or x == 1 or reads_along_rows(kernel)
    if inner and not persistent and r < 512 and x > 1:
        side = min(1024 // (1 << (r - 1).bit_length()), x)
        return LaunchConfig(blocks={"XBLOCK": side, "R0_BLOCK": r}, warps=max(1, min(16, side * r // 256)))
    if inner and scale == 1 and r >= (12288 if options.library else 32768) and _reads_rows_twice(kernel):
        # few programs at once, so that the second reading of a row comes from the L2 cache
        return LaunchConfig(rows=True, blocks={"R0_BLOCK": 8192}, warps=32 if options.library and r % 8 == 0 else 16)
    if (inner and (not persistent or r >= 256)) or x == 1:
        cap = r if persistent else min(r, max(512, int(4096 * scale)))
        warps = max(1, min(16, cap // 256))
        if options.mixed and _holds_longer_rows(kernel):
            warps = 4  # few warps wait less for each other
        return LaunchConfig(rows=True, blocks={"R0_BLOCK": cap}, warps=warps)
    if persistent:
        few = gathers(kernel)  # many small programs wait for memory better than a few whose warps wait for each other
        side = max(1, min(128, int((256 if few else 1024 if inner else 2048) * scale) // r, x))
        return LaunchConfig(blocks={"XBLOCK": side, "R0_BLOCK": r}, warps=2 if few else max(1, min(16, side * r // 256)))
    side = max(1, min(64, x))
    deep = min(r, max(8, int(2048 * scale) // side))
    return LaunchConfig(blocks={"XBLOCK": side, "R0_BLOCK": deep}, warps=max(1, min(16, side * deep // 256)))


def _tiled_reduction(kernel: Kernel, x: int, r: int) -> LaunchConfig:
    """A reduction over tiles of two axes: a few rows along each, at most 4096 elements a program."""
    persistent = "R0_BLOCK" not in kernel.blocks
    deep = r if persistent else min(r, 256)
    side = max(1, min(8, x, 4096 // max(deep, 1)))
    other = max(1, min(4, kernel.hints.get("y", 1), 4096 // max(deep * side, 1)))
    return LaunchConfig(blocks={"XBLOCK": side, "YBLOCK": other, "R0_BLOCK": deep}, warps=max(1, min(16, side * other * deep // 256)))


def _tuned(chosen: LaunchConfig, kernel: Kernel) -> list[tuple[dict[str, int], int]]:
    """A few block sizes around the fixed choice."""
    persistent = "R0_BLOCK" in chosen.blocks and "R0_BLOCK" not in kernel.blocks
    if "YBLOCK" in chosen.blocks and "R0_BLOCK" in chosen.blocks:
        return []
    if chosen.rows:
        if persistent:
            return [({}, w) for w in (2, 4, 8, 16)]
        return [({"R0_BLOCK": b}, w) for b, w in ((512, 2), (1024, 4), (2048, 8), (4096, 8), (4096, 16), (8192, 16))]
    if "R0_BLOCK" in chosen.blocks:
        if persistent:
            return [({"XBLOCK": b}, w) for b, w in ((1, 2), (4, 2), (8, 4), (32, 4), (64, 8))]
        return [
            ({"XBLOCK": b, "R0_BLOCK": r}, w) for b, r, w in ((16, 64, 4), (32, 32, 4), (64, 16, 4), (64, 64, 8), (128, 8, 4), (8, 256, 8))
        ]
    if "YBLOCK" in chosen.blocks and "ZBLOCK" not in chosen.blocks:
        return [
            ({"XBLOCK": a, "YBLOCK": b}, w) for a, b, w in ((32, 32, 4), (64, 32, 4), (32, 64, 8), (64, 64, 8), (256, 4, 4), (4, 256, 4))
        ]
    if set(chosen.blocks) == {"XBLOCK"} and chosen.blocks["XBLOCK"] > 1:
        return [({"XBLOCK": b}, w) for b, w in ((256, 2), (512, 4), (1024, 4), (2048, 8), (4096, 8))]
    return []
