"""The kernels of one file: cleaned, those that differ only in numbers merged, named, and printed."""

from __future__ import annotations

import ast
import copy
import re
from dataclasses import dataclass, field, replace
from typing import Any

import sympy

from kernelllm.compiler import write_time
from kernelllm.compiler.emit import forward as fw
from kernelllm.compiler.emit.any_dtype import FollowedDtype
from kernelllm.compiler.emit.buffer_names import name_buffers
from kernelllm.compiler.emit.host_steps import HostProgram
from kernelllm.compiler.emit.kernels import column_sums, integers, kernel_text
from kernelllm.compiler.emit.kernels.block_sizes import LaunchConfig, in_columns, launch_config
from kernelllm.compiler.emit.kernels.clean import Cleaned, clean
from kernelllm.compiler.emit.kernels.readable_names import kernel_name, operator_words
from kernelllm.compiler.inductor.wrapper_lines import Launch, Wrapper
from kernelllm.compiler.options import Options
from kernelllm.core.errors import CaptureError


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
            untuned = _mutates(launch, arguments) or _of_counted_size(launch)
            if launch.kernel in cleaned:
                if untuned:
                    self.configs[launch.kernel].tuned = []
                continue
            self.configs[launch.kernel] = chosen = launch_config(kernel, options, may_tune=not untuned)
            cleaned[launch.kernel] = clean(kernel, rows=chosen.rows, blocks=chosen.every(), hints=options.library)
            chosen.rows = cleaned[launch.kernel].rows
            if options.mixed and in_columns(kernel):
                made = cleaned[launch.kernel]
                made.columns = column_sums.by_outer_index(made.body, chosen.every().get("XBLOCK", ()))
                made.params = [p for p in made.params if p != "xnumel" or not made.columns]
                column_sums.summed(made.body)
        self.persistent = {k: c.persistent for k, c in cleaned.items()}
        self.held: dict[str, int] = {}
        """Sizes of rows of which a program holds several, and how long those may be. Known once launches are written."""
        self.merged = find(cleaned, self.configs)
        self.cleaned = {k: cleaned[first] for k, first in self.merged.written.items()}
        self._sizes: dict[int, dict[str, Any]] = {}
        """What each launch passes for the size arguments of its kernel."""

    def _launches(self) -> list[Launch]:
        return [i for i in self.program.items if isinstance(i, Launch)]

    def write(self, top: set[str], local: set[str]) -> None:
        """Name kernels and buffers, and print the kernels. ``top`` and ``local``: names taken in the file and in forward."""
        names = {k: kernel_name(c, top) for k, c in self.cleaned.items() if self.merged.written[k] == k}
        local |= top
        bases = {k: "_".join(operator_words(self.wrapper.kernels[k].ops)[-2:]) or "copied" for k in self.cleaned}
        wishes = {k: kernel_text.suggested_buffer_names(c) for k, c in self.cleaned.items()}
        name_buffers(self.program, self.host, wishes, bases, local)
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
                return self.pointer(node.args[0])
        return self.host.text(node)

    def passed(self, node: ast.expr) -> str:
        """The same as an argument, as the kernel reads it."""
        return self.host.dense_text(self.pointer(node))

    def size(self, launch: Launch, param: str) -> Any:
        """What a launch passes for a size argument, over the file's size names."""
        if param.startswith("composite"):
            return self._sizes[id(launch)][param]
        try:
            return self.host.sizes.expression(launch.arguments[param])
        except integers.NotInteger as error:  # a number read off a tensor, in a graph of torch.export
            what = f"A kernel takes a number that only the values of tensors decide ({ast.unparse(launch.arguments[param])})."
            raise CaptureError(what, where="emit", fix="Keep the number a tensor: leave out .item(), float() or int().") from error


def _of_counted_size(launch: Launch) -> bool:
    """Whether a size depends on values that a forward counts (``nonzero``): a tuned kernel would be tuned again at each call."""
    return any(isinstance(n, ast.Name) and re.fullmatch(r"u\d+", n.id) for v in launch.arguments.values() for n in ast.walk(v))


def _mutates(launch: Launch, arguments: set[str]) -> bool:
    """Whether a launch changes what its caller reads, or what it reads itself by another pointer."""
    writes = {_buffer(v) for p, v in launch.arguments.items() if p.startswith(("out_ptr", "in_out_ptr"))}
    reads = {_buffer(v) for p, v in launch.arguments.items() if p.startswith("in_ptr")}
    return bool(writes & (arguments | reads))


def _buffer(node: ast.expr) -> str:
    """What a pointer leads into, whatever view of it is passed."""
    while isinstance(node, ast.Call) and node.args:
        node = node.args[0]
    return ast.unparse(node)


@dataclass
class MergedKernels:
    """Which kernel stands for which, and the numbers that each passes."""

    written: dict[str, str] = field(default_factory=dict)
    """Kernel to the one that is written in its place: itself, or one that differs in numbers only."""
    numbers: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Kernel to argument name to number, as sympy."""


def find(cleaned: dict[str, Cleaned], configs: dict[str, LaunchConfig]) -> MergedKernels:
    """Group the kernels; bodies of those that stand for others get names in the place of numbers, in place."""
    groups: dict[tuple[Any, ...], list[str]] = {}
    numbers: dict[str, list[int | float]] = {}
    for name, one in cleaned.items():
        found = _Numbers()
        text = "\n".join(ast.unparse(found.visit(copy.deepcopy(s))) for s in one.body)
        numbers[name] = found.values
        pointers = tuple(one.kernel.signature.get(p, "") for p in one.pointers)
        key = (text, tuple(one.params), pointers, one.rows, one.columns, str(configs[name].tuned), tuple(one.persistent))
        groups.setdefault(key, []).append(name)
    merged = MergedKernels()
    for members in groups.values():
        for name in members:
            merged.written[name] = members[0]
            merged.numbers[name] = {}
        if len(members) > 1:
            _lift(cleaned[members[0]], members, numbers, merged)
    return merged


def _lift(first: Cleaned, members: list[str], numbers: dict[str, list[int | float]], merged: MergedKernels) -> None:
    columns: dict[str, tuple[int | float, ...]] = {}
    known: dict[str, str] = {}
    names: dict[int, str] = {}
    for at in range(len(numbers[members[0]])):
        column = tuple(numbers[m][at] for m in members)
        if len(set(column)) > 1:
            names[at] = known.setdefault(repr(column), f"composite_lifted{len(known)}")  # 64 is a size and 64.0 a number
            columns[names[at]] = column
    if not names:
        return
    first.body = [_Named(names).visit(s) for s in _numbered(first.body)]
    for name, column in columns.items():
        whole = all(isinstance(v, int) for v in column)
        first.facts.types[name], first.facts.axes[name] = ("size" if whole else "number"), frozenset()
        if whole:
            first.facts.sizes.add(name)
        for member, value in zip(members, column, strict=True):
            merged.numbers[member][name] = sympy.Integer(value) if isinstance(value, int) else integers.symbol(repr(value))
    blocks = [p for p in first.params if p.endswith("BLOCK")]
    first.params = [*(p for p in first.params if p not in blocks), *columns, *blocks]


def _is_number(node: ast.Constant) -> bool:
    return isinstance(node.value, int | float) and not isinstance(node.value, bool)


class _Numbers(ast.NodeTransformer):
    """Collects numbers in order and puts a mark in their place; an integer and a float leave different marks."""

    def __init__(self) -> None:
        self.values: list[int | float] = []

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if not _is_number(node):
            return node
        assert isinstance(node.value, int | float)
        self.values.append(node.value)
        return ast.Name("_int" if isinstance(node.value, int) else "_float", ast.Load())


def _numbered(body: list[ast.stmt]) -> list[ast.stmt]:
    """Give every number its position in the order that :class:`_Numbers` sees."""
    count = 0

    class Number(ast.NodeTransformer):
        def visit_Constant(self, node: ast.Constant) -> ast.expr:
            nonlocal count
            if _is_number(node):
                node.kind = str(count)
                count += 1
            return node

    return [Number().visit(s) for s in body]


class _Named(ast.NodeTransformer):
    def __init__(self, names: dict[int, str]) -> None:
        self.names = names

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if not _is_number(node):
            return node
        at, node.kind = int(node.kind or 0), None
        return ast.Name(self.names[at], ast.Load()) if at in self.names else node
