"""The kernels of one file: cleaned, those that differ only in numbers merged, named, and printed."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

from kernelllm.compiler import write_time
from kernelllm.compiler.emit import forward as fw
from kernelllm.compiler.emit import kernel_text, merge_kernels
from kernelllm.compiler.emit.any_dtype import FollowedDtype
from kernelllm.compiler.emit.block_sizes import LaunchConfig, launch_config
from kernelllm.compiler.emit.clean import Cleaned, clean
from kernelllm.compiler.emit.host_steps import HostProgram
from kernelllm.compiler.emit.readable_names import kernel_name, spoken
from kernelllm.compiler.inductor.wrapper_lines import Launch, Wrapper
from kernelllm.compiler.options import Options


class FileKernels:
    """Every kernel that a file launches, by Inductor's name."""

    def __init__(
        self, wrapper: Wrapper, program: HostProgram, host: fw.HostPrinter, arguments: set[str], options: Options, dtypes: FollowedDtype
    ) -> None:
        """``arguments``: the graph's arguments. A kernel that writes into one must not be tuned by trial runs."""
        self.wrapper, self.program, self.host, self.dtypes = wrapper, program, host, dtypes
        self.configs: dict[str, LaunchConfig] = {}
        self.texts: dict[str, kernel_text.KernelText] = {}
        cleaned: dict[str, Cleaned] = {}
        for launch in self._launches():
            kernel = wrapper.kernels[launch.kernel]
            write_time.check()
            mutates = _mutates(launch, arguments)
            if launch.kernel in cleaned:
                if mutates:
                    self.configs[launch.kernel].tuned = []
                continue
            self.configs[launch.kernel] = chosen = launch_config(kernel, options, mutates=mutates)
            cleaned[launch.kernel] = clean(kernel, rows=chosen.rows)
            chosen.rows = cleaned[launch.kernel].rows
        self.persistent = {k: c.persistent for k, c in cleaned.items()}
        self.merged = merge_kernels.find(cleaned, self.configs)
        self.cleaned = {k: cleaned[first] for k, first in self.merged.written.items()}
        self._sizes: dict[int, dict[str, Any]] = {}
        """What each launch passes for the size arguments of its kernel."""

    def _launches(self) -> list[Launch]:
        return [i for i in self.program.items if isinstance(i, Launch)]

    def write(self, top: set[str], local: set[str]) -> None:
        """Name kernels and buffers, and print the kernels. ``top`` and ``local``: names taken in the file and in forward."""
        names = {k: kernel_name(c, top) for k, c in self.cleaned.items() if self.merged.written[k] == k}
        local |= top
        bases = {k: "_".join(spoken(self.wrapper.kernels[k].ops)[-2:]) or "copied" for k in self.cleaned}
        wishes = {k: kernel_text.store_wishes(c) for k, c in self.cleaned.items()}
        fw.name_buffers(self.program, self.host, wishes, bases, local)
        calls: dict[str, list[kernel_text.LaunchValues]] = {}
        for launch in self._launches():
            write_time.check()
            cleaned = self.cleaned[launch.kernel]
            buffers = {p: self.pointer(launch.arguments[p]) for p in cleaned.pointers}
            self._sizes[id(launch)] = sizes = dict(self.merged.numbers[launch.kernel])
            sizes.update({p: self.size(launch, p) for p in cleaned.params if p not in buffers and not p.endswith("BLOCK")})
            half = {p for p in cleaned.pointers if cleaned.kernel.signature.get(p) == "*fp32" and self.dtypes.has(launch.arguments[p])}
            calls.setdefault(self.merged.written[launch.kernel], []).append(kernel_text.LaunchValues(buffers, sizes, half))
        varies = self.host.sizes.varies
        made = {k: kernel_text.to_text(self.cleaned[k], name, calls[k], self.configs[k], varies) for k, name in names.items()}
        self.texts = {k: made[first] for k, first in self.merged.written.items()}

    def take_over(self, other: FileKernels) -> None:
        """Launch the kernels of ``other`` that have the same text as one of these."""
        known = {t.text.replace(t.name, "", 1): t.name for t in other.texts.values()}
        for key, text in self.texts.items():
            name = known.get(text.text.replace(text.name, "", 1))
            if name:
                self.texts[key] = replace(text, name=name, text=text.text.replace(text.name, name, 1))

    def pointer(self, node: ast.expr) -> str:
        """What a launch passes for a pointer: a view that starts where its buffer does is the buffer."""
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "reinterpret_tensor":
            offset = self.host.sizes.expression(node.args[3]) if len(node.args) > 3 else 0
            if offset == 0:
                return self.host.text(node.args[0])
        return self.host.text(node)

    def size(self, launch: Launch, param: str) -> Any:
        """What a launch passes for a size argument, over the file's size names."""
        if param.startswith("composite"):
            return self._sizes[id(launch)][param]
        return self.host.sizes.expression(launch.arguments[param])


def _mutates(launch: Launch, arguments: set[str]) -> bool:
    """Whether a launch changes what it, or its caller, reads."""
    if any(p.startswith("in_out_ptr") for p in launch.arguments):
        return True
    writes = {ast.unparse(v) for p, v in launch.arguments.items() if p.startswith("out_ptr")}
    reads = {ast.unparse(v) for p, v in launch.arguments.items() if p.startswith("in_")}
    return bool(writes & (arguments | reads))
