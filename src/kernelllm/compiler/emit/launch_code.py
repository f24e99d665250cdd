"""The host side of a launch: grid, arguments, block sizes."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelllm.compiler.emit.file_kernels import FileKernels
from kernelllm.compiler.emit.kernels import kernel_text
from kernelllm.compiler.emit.kernels.block_sizes import LaunchConfig
from kernelllm.compiler.emit.kernels.clean import MOST_BLOCKS, Cleaned
from kernelllm.compiler.emit.kernels.readable_names import fresh_name
from kernelllm.compiler.inductor.kernel_source import Kernel
from kernelllm.compiler.inductor.wrapper_lines import Launch

_MOST_HELD = 2**20
"""Elements of a block of Triton's."""


@dataclass
class WrittenLaunch(Launch):
    """A launch of a kernel that is written here, not by Inductor."""

    name: str = ""
    grid: str = ""
    passed: list[str] = field(default_factory=list)
    """Texts of the numbers behind the pointers."""
    settings: str = ""

    def line(self, pointers: list[str]) -> str:
        """The statement, with these texts for its ``arguments``."""
        return f"{self.name}[{self.grid}]({', '.join([*pointers, *self.passed])}, {self.settings})"


class LaunchWriter:
    """Writes the launches of one file, in order; long sizes are computed once and named."""

    def __init__(self, kernels: FileKernels, taken: set[str]) -> None:
        """``taken``: the names of forward so far."""
        self.kernels, self.taken = kernels, taken
        self.locals_of: dict[str, str] = {}
        """Text of a size to the local variable that holds it."""

    def lines(self, launch: Launch) -> list[str]:
        """The statements that launch one kernel: sizes that need a name, then the call."""
        if isinstance(launch, WrittenLaunch):
            return [launch.line([self.kernels.passed(value) for value in launch.arguments.values()])]
        cleaned, chosen, done = self.kernels.cleaned[launch.kernel], self.kernels.configs[launch.kernel], self.kernels.texts[launch.kernel]
        lines: list[str] = []
        passed: list[str] = []
        texts: dict[str, str] = {}
        grid_numels = [n for n in ("xnumel", "ynumel", "znumel") if n in launch.arguments]
        for param in dict.fromkeys([*done.order, *grid_numels]):
            if param in cleaned.pointers:
                continue
            value = self.kernels.size(launch, param)
            text = self.kernels.host.size(value)
            if not (value.is_Symbol or value.is_Integer) and (text.count(" ") > 4 or (param in grid_numels and param in done.order)):
                lines += self._local(done.names.get(param, "n_rows" if param == "xnumel" else param), text)
                text = self.locals_of[text]
            texts[param] = text
        for param in done.order:
            passed.append(self.kernels.passed(launch.arguments[param]) if param in cleaned.pointers else texts[param])
        blocks = self._blocks(cleaned, chosen, done, texts, launch)
        grid = _grid(self.kernels.wrapper.kernels[launch.kernel], cleaned, chosen, done, texts)
        if len(done.name) + len(grid) > 90:
            lines.append(f"grid = {grid}")
            grid = "grid"
        warps = "" if chosen.tuned else f", num_warps={chosen.warps}"
        warps += ", debug=True, sanitize_overflow=False" if "tl.device_assert(" in done.text else ""  # which asserts hang on
        named = "".join(f", {k}={v}" for k, v in blocks)
        lines.append(f"{done.name}[{grid}]({', '.join(passed)}{named}{warps})")
        return lines

    def _local(self, wish: str, text: str) -> list[str]:
        """Bind a long size once, under a name that no other value has at that moment."""
        if text in self.locals_of:
            return []
        name = fresh_name(wish, self.taken)
        self.locals_of[text] = name
        return [f"{name} = {text}"]

    def _blocks(
        self, cleaned: Cleaned, chosen: LaunchConfig, done: kernel_text.KernelText, texts: dict[str, str], launch: Launch
    ) -> list[tuple[str, str]]:
        tuned = {b for values, _ in chosen.tuned for b in values}
        result = []
        for block in (p for p in cleaned.params if p.endswith("BLOCK")):
            if block in tuned:
                continue
            numel = {"R0_BLOCK": "r0_numel", "R1_BLOCK": "r1_numel"}.get(block, "")
            limit = chosen.blocks.get(block, 1)
            persistent = self.kernels.persistent[launch.kernel]
            if block in persistent:
                fixed = persistent[block]
                value = (
                    str(fixed)
                    if fixed is not None and self.kernels.size(launch, numel).is_Integer
                    else f"max({max(limit, 1024) if cleaned.rows else limit}, triton.next_power_of_2({self._numel(launch, numel, texts)}))"
                )
            elif cleaned.rows and self.kernels.size(launch, numel).is_Integer:
                value = str(min(limit, _power(int(self.kernels.size(launch, numel)))))
            else:
                value = str(limit)
            if value.startswith("max(") and (beside := _power(chosen.blocks.get("XBLOCK", 1)) * _power(chosen.blocks.get("YBLOCK", 1))) > 1:
                size = self.kernels.host.size(self.kernels.size(launch, numel))
                self.kernels.held[size] = min(_MOST_HELD // beside, self.kernels.held.get(size, _MOST_HELD))
            result.append((done.names.get(block, block), value))
        return result

    def _numel(self, launch: Launch, param: str, texts: dict[str, str]) -> str:
        size = self.kernels.size(launch, param)
        text = texts.get(param) or self.kernels.host.size(size)
        counted = {self.kernels.host.paths[symbol] for symbol in self.kernels.program.counted}
        return f"max({text}, 1)" if counted & {str(s) for s in size.free_symbols} else text  # nothing may have been found


def _grid(kernel: Kernel, cleaned: Cleaned, chosen: LaunchConfig, done: kernel_text.KernelText, texts: dict[str, str]) -> str:
    tuned = {b for values, _ in chosen.tuned for b in values}

    def count(axis: str) -> str:
        numel = texts.get(f"{axis}numel", "1")
        block = f"{axis.upper()}BLOCK"
        if block not in cleaned.params:
            return numel
        outer = ""
        if axis == "x" and cleaned.columns:
            rows = str(int(numel) // cleaned.columns) if numel.isdigit() else f"({numel}) // {cleaned.columns}"
            outer, numel = f"{rows} * ", str(cleaned.columns)
        size = f'meta["{done.names[block]}"]' if block in tuned else str(chosen.blocks.get(block, 1))
        return f"{outer}{numel}" if size == "1" else f"{outer}triton.cdiv({numel}, {size})"

    axes = [a for a in ("x", "y", "z") if f"{a.upper()}BLOCK" in kernel.blocks] or ["x"]
    counts = [count(a) for a in axes]
    if "Overflow" in str(kernel.meta.get("grid_type", "")):
        counts = [counts[0], f"min({counts[1]}, {MOST_BLOCKS})", f"triton.cdiv({counts[1]}, {MOST_BLOCKS})"]
    text = f"({', '.join(counts)}{',' if len(counts) == 1 else ''})"
    return f"lambda meta: {text}" if "meta[" in text else text


def _power(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()
