"""The host side of Inductor's output, read from the lines of its wrapper before they are printed.

Inductor's ``PythonWrapperCodegen`` holds one object for each thing that the host does: allocate, define and launch a kernel, call an
operator, free. Steps are made of these objects. A line of another kind is asked for its own text, one statement at a time.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kernelllm.compiler import write_time
from kernelllm.compiler.inductor.kernel_source import Kernel, parse
from kernelllm.core.errors import CaptureError
from kernelllm.core.text import syntax_tree


@dataclass
class Allocate:
    """An empty buffer."""

    target: str
    size: ast.expr
    stride: ast.expr
    dtype: str
    device: str


@dataclass
class Launch:
    """A kernel's launch: host expressions by the kernel's argument names."""

    kernel: str
    arguments: dict[str, ast.expr]


@dataclass
class Assign:
    """``target = value``, or an expression alone where target is empty."""

    target: str
    value: ast.expr
    layout: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    """Size and strides that the value must have, where both are known numbers."""


@dataclass
class Free:
    """Buffers that nothing reads any more."""

    targets: list[str]


HostStep = Allocate | Launch | Assign | Free


_TEMPLATE = re.compile(r"\bkernelllm\.(?!torch_)")
"""An operator of ours that launches kernels; those of the other name call torch."""


@dataclass
class Wrapper:
    """What the host does to run a graph."""

    kernels: dict[str, Kernel] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    """Names of the graph's arguments, in order."""
    steps: list[HostStep] = field(default_factory=list)
    results: list[ast.expr] = field(default_factory=list)
    marks: frozenset[int] = frozenset()
    """Numbers that stand for how many parts a long reduction has."""

    def expressions(self) -> Iterator[ast.expr]:
        """Every host expression, in order."""
        for step in self.steps:
            yield from expressions(step)
        yield from self.results

    def has_kernels(self) -> bool:
        """Whether anything is left for a kernel: Inductor's, or one of a template."""
        return any(isinstance(s, Launch) for s in self.steps) or any(_TEMPLATE.search(ast.unparse(e)) for e in self.expressions())

    def rewrite(self, change: Callable[[ast.expr], ast.expr]) -> None:
        """Change every host expression, in place."""
        self.steps = [changed(step, change) for step in self.steps]
        self.results = [change(e) for e in self.results]

    def text(self) -> str:
        """All its text, to search for words."""
        targets = [step.target for step in self.steps if isinstance(step, Allocate | Assign)]
        return "\n".join([*(k.text for k in self.kernels.values()), *targets, *map(ast.unparse, self.expressions())])


def expressions(step: HostStep) -> list[ast.expr]:
    """The host expressions of a step."""
    match step:
        case Allocate():
            return [step.size, step.stride]
        case Launch():
            return list(step.arguments.values())
        case Assign():
            return [step.value]
    return []


def changed(step: HostStep, change: Callable[[ast.expr], ast.expr]) -> HostStep:
    """The step with every host expression changed."""
    match step:
        case Allocate():
            return replace(step, size=change(step.size), stride=change(step.stride))
        case Launch():
            return replace(step, arguments={k: change(v) for k, v in step.arguments.items()})
        case Assign():
            return replace(step, value=change(step.value))
    return step


def expression(text: str) -> ast.expr:
    """A host expression's text as a syntax tree."""
    return syntax_tree(text, mode="eval").body


def read(graph: Any) -> Wrapper:
    """The wrapper of an Inductor graph whose kernels are generated. Raises CaptureError for a line that it does not understand."""
    reader = _StepReader(graph)
    made = Wrapper(reader.kernels, list(graph.graph_inputs), list(_symbols(graph)))
    for line in graph.wrapper_code.lines:
        made.steps += reader.steps(line)
    made.results = [expression(text) for text in graph.wrapper_code.get_output_refs()]
    return made


def _symbols(graph: Any) -> Iterator[Assign]:
    """Each symbol is a size argument of the graph, or equals one."""
    import sympy

    known: set[Any] = set()
    for name, value in graph.graph_inputs.items():
        if not isinstance(value, sympy.Symbol) or value in known:
            continue
        known.add(value)
        yield Assign(str(value), ast.Name(name, ast.Load()))
        for source, target in graph.sizevars.shape_env.replacements.items():
            if target == value and isinstance(source, sympy.Symbol) and source not in known:
                known.add(source)
                yield Assign(str(source), ast.Name(str(value), ast.Load()))


class _StepReader:
    """Turns one line after the other into steps."""

    def __init__(self, graph: Any) -> None:
        self.graph, self.wrapper = graph, graph.wrapper_code
        self.kernels: dict[str, Kernel] = {}

    def steps(self, line: Any) -> Sequence[HostStep]:
        from torch._inductor.codegen import wrapper as lines

        match line:
            case lines.KernelDefinitionLine() if line.gpu:
                write_time.check()
                self.kernels[line.kernel_name] = parse(line.kernel_name, line.kernel_body, line.metadata or "")
                return []
            case lines.KernelCallLine() if line.triton:
                return [self._launch(line)]
            case lines.AllocateLine() if not line.comm_buffer:
                node = line.node
                size, stride = (expression(self.wrapper.codegen_shape_tuple(n)) for n in (node.get_size(), node.get_stride()))
                return [Allocate(node.get_name(), size, stride, str(node.get_dtype()), node.get_device().type)]
            case lines.FreeLine() | lines.FreeIfNotReusedLine():
                return [] if getattr(line, "is_reused", False) else [Free([line.node.get_name()])]
            case lines.SymbolicCallArgLine():
                name = str(line.arg.inner)
                known = name.endswith("numel")  # the launches have the expression itself
                return [] if known else [Assign(name, self._size(line.arg.inner_expr))]
            case lines.ExternKernelAllocLine() if line.node.get_name() and not _returns_nothing(line.node):
                node = line.node
                call = f"{node.get_kernel_name()}({', '.join([*node.codegen_args(), *node.codegen_kwargs()])})"
                return [Assign(node.get_name(), expression(call), _layout(node))]
            case lines.MultiOutputLine():
                layout = _layout(self.graph.try_get_buffer(line.result_name))
                return [replace(s, layout=layout) if isinstance(s, Assign) else s for s in self._printed(line)]
            case (
                lines.CommentLine() | lines.NullLine() | lines.EnterDeviceContextManagerLine() | lines.ExitDeviceContextManagerLine()
                | lines.LineContext() | lines.KernelDefinitionLine()
            ):  # fmt: skip
                return []
        return self._printed(line)

    def _size(self, value: Any) -> ast.expr:
        return expression(self.wrapper.codegen_sizevar(value))

    def _launch(self, line: Any) -> Launch:
        from torch._inductor.codegen.wrapper import SymbolicCallArg

        kernel = self.kernels[line.kernel_name]
        texts = self.wrapper.prepare_triton_kernel_call(line.call_args)
        values = [
            self._size(arg.inner_expr) if isinstance(arg, SymbolicCallArg) else expression(text)
            for arg, text in zip(line.call_args, texts, strict=True)
        ]
        if len(values) < len(kernel.runtime):
            raise CaptureError(f"Launch of {kernel.name} passes {len(values)} of {len(kernel.runtime)} arguments.", where="inductor")
        return Launch(kernel.name, dict(zip(kernel.runtime, values, strict=False)))

    def _printed(self, line: Any) -> list[HostStep]:
        """The steps of a line that has no case of its own, from its text."""
        from torch._inductor.codegen.wrapper import WrapperLine
        from torch._inductor.utils import IndentedBuffer

        buffer = IndentedBuffer()

        def write(part: Any) -> None:
            if isinstance(part, WrapperLine):
                part.codegen(buffer)
            else:
                buffer.writeline(part)

        self.wrapper.writeline = write
        try:
            write(line)
        finally:
            del self.wrapper.writeline
        text = buffer.getvalue()
        try:
            statements = syntax_tree(text).body
        except SyntaxError as error:
            raise CaptureError(f"A line of Inductor's wrapper is not understood: {text.strip()[:200]}", where="inductor") from error
        return [step for statement in statements for step in _step(statement)]


def _layout(node: Any) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Size and strides of an operator's one result, where they are numbers."""
    from torch._inductor.ir import Layout

    members: Any = getattr(node, "outputs", None) or ()
    if len(members) == 1:  # an operator that Inductor does not know stands for a list of results
        node = members[0]
    if not isinstance(getattr(node, "layout", None), Layout):
        return None
    size, stride = node.get_size(), node.get_stride()
    known = all(getattr(n, "is_Integer", isinstance(n, int)) for n in (*size, *stride))
    return (tuple(map(int, size)), tuple(map(int, stride))) if known else None


def _returns_nothing(node: Any) -> bool:
    from torch._inductor.ir import NoneLayout

    return isinstance(node.layout, NoneLayout)


_CHECKS = re.compile(r"assert_|torch\.(cuda\.(set_device|synchronize)|_check)|record_stream")


def _step(statement: ast.stmt) -> Iterator[HostStep]:
    match statement:
        case ast.Expr(value=ast.Call() as value):
            if not _CHECKS.match(ast.unparse(value.func)):
                yield Assign("", value)
        case ast.Delete(targets=targets):
            yield Free([t.id for t in targets if isinstance(t, ast.Name)])
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            if "get_raw_stream" not in ast.unparse(value):
                yield Assign(name, value)
        case ast.Expr() | ast.Pass() | ast.Assert() | ast.Import() | ast.ImportFrom():
            return
        case _:
            raise CaptureError(f"A statement of Inductor's is not understood: {ast.unparse(statement)[:200]}", where="inductor")


__all__ = ["Allocate", "Assign", "Free", "HostStep", "Launch", "Wrapper", "changed", "expression", "expressions", "read"]
