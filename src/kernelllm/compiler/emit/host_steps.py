"""The statements of Inductor's ``call``, read into steps: allocate, launch, call, view, drop."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import sympy

from kernelllm.compiler.emit import integers
from kernelllm.compiler.emit.ast_tools import Rename, name_of
from kernelllm.compiler.emit.inductor_wrapper import Wrapper
from kernelllm.compiler.emit.size_names import SizeNames
from kernelllm.core.errors import CaptureError

if TYPE_CHECKING:
    from kernelllm.compiler.capture.captured import Captured

_SKIPPED = ("assert_size_stride", "assert_alignment", "torch.cuda.set_device", "torch.cuda.synchronize", "torch._check", "record_stream")


@dataclass
class Tensor:
    """What is known of a buffer or argument."""

    shape: list[Any]
    stride: list[Any]
    dtype: str
    device: str = "cuda"


@dataclass
class Allocate:
    """An empty buffer."""

    target: str


@dataclass
class Launch:
    """A kernel's launch: wrapper expressions by Inductor's argument name."""

    kernel: str
    arguments: dict[str, ast.expr]


@dataclass
class Step:
    """Any other statement: ``target = value``, or an expression alone where target is empty."""

    target: str
    value: ast.expr


@dataclass
class Drop:
    """Buffers that nothing reads any more."""

    targets: list[str]


Item = Allocate | Launch | Step | Drop


@dataclass
class Program:
    """``call`` as steps."""

    items: list[Item]
    result: list[ast.expr]
    tensors: dict[str, Tensor]
    same: dict[str, str] = field(default_factory=dict)
    """Buffers that are another buffer by another name."""
    dropped: set[str] = field(default_factory=set)

    def names(self, base: str) -> set[str]:
        """All names of a buffer."""
        return {base, *(n for n in self.same if self.base(n) == base)}

    def base(self, name: str) -> str:
        """The buffer that a name stands for."""
        while name in self.same:
            name = self.same[name]
        return name


def read(wrapper: Wrapper, captured: Captured, sizes: SizeNames) -> Program:
    """Turn ``call``'s statements into a Program; raises CaptureError for a statement it has no place for."""
    tensors = dict(_argument_tensors(captured, sizes))
    program = Program([], [], tensors)
    for statement in _once(wrapper.body[:-1]):
        for item in _items(statement, wrapper, sizes, program):
            program.items.append(item)
    value = wrapper.body[-1].value  # type: ignore[attr-defined]
    program.result = list(value.elts) if isinstance(value, ast.Tuple | ast.List) else [value]
    return program


def _once(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements with every variable bound once: a kernel launched twice has its ``xnumel`` line written twice."""
    bound: dict[str, int] = {}
    current: dict[str, str] = {}
    for statement in body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if not isinstance(target, ast.Name):
            yield Rename(current).visit(statement) if current else statement
            continue
        assert isinstance(statement, ast.Assign)
        statement.value = Rename(current).visit(statement.value)
        bound[target.id] = bound.get(target.id, 0) + 1
        if bound[target.id] > 1:
            current[target.id] = f"{target.id}__{bound[target.id]}"
            statement.targets = [ast.Name(current[target.id], ast.Store())]
        yield statement


def contiguous(shape: list[Any]) -> list[Any]:
    """Row-major strides of a shape."""
    strides, step = [], sympy.Integer(1)
    for size in reversed(shape):
        strides.append(step)
        step = step * size
    return strides[::-1]


def is_contiguous(tensor: Tensor) -> bool:
    """Whether the strides are row-major, dimensions of size 1 aside."""
    expected = contiguous(tensor.shape)
    return all(n == 1 or equal(a, b) for n, a, b in zip(tensor.shape, tensor.stride, expected, strict=True))


def equal(a: Any, b: Any) -> bool:
    """Whether two integer expressions are equal for all sizes."""
    return bool(a == b or sympy.expand(a - b) == 0)


def _argument_tensors(captured: Captured, sizes: SizeNames) -> Iterator[tuple[str, Tensor]]:
    strides = _placeholder_strides(captured)
    for argument in captured.graph_inputs:
        if argument.kind == "size":
            continue
        shape = sizes.shape(argument.shape)
        if shape is None:
            continue
        stride = strides.get(argument.variable)
        found = sizes.shape(stride) if stride is not None else None
        dtype = f"torch.{argument.dtype.removeprefix('torch.')}"
        yield argument.variable, Tensor(shape, found if found is not None else contiguous(shape), dtype)


def _placeholder_strides(captured: Captured) -> dict[str, tuple[str, ...]]:
    graph = getattr(captured, "graph", None)
    if graph is None:
        return {}
    found = {}
    for node in graph.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if hasattr(value, "stride"):
            found[node.name] = tuple(str(s) for s in value.stride())
    return found


def _items(statement: ast.stmt, wrapper: Wrapper, sizes: SizeNames, program: Program) -> Iterator[Item]:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        if isinstance(call.func, ast.Attribute) and call.func.attr == "run" and name_of(call.func).split(".")[0] in wrapper.kernels:
            kernel = wrapper.kernels[name_of(call.func).split(".")[0]]
            if len(call.args) < len(kernel.runtime):
                raise CaptureError(f"Launch of {kernel.name} passes {len(call.args)} of {len(kernel.runtime)} arguments.", where="emit")
            yield Launch(kernel.name, dict(zip(kernel.runtime, call.args, strict=False)))
        elif not ast.unparse(call.func).startswith(_SKIPPED):
            yield from _out_call(call, program)
        return
    if isinstance(statement, ast.Delete):
        gone = [t.id for t in statement.targets if isinstance(t, ast.Name)]
        program.dropped.update(gone)
        free = [n for n in dict.fromkeys(map(program.base, gone)) if program.names(n) <= program.dropped]
        if free:
            yield Drop(free)
        return
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        yield from _assignment(statement.targets[0].id, statement.value, sizes, program)
        return
    if isinstance(statement, ast.Expr | ast.Pass | ast.Assert | ast.Import | ast.ImportFrom):
        return
    raise CaptureError(f"A statement of Inductor's output is not understood: {ast.unparse(statement)[:200]}", where="emit")


def _assignment(name: str, value: ast.expr, sizes: SizeNames, program: Program) -> Iterator[Item]:
    text = ast.unparse(value)
    if "get_raw_stream" in text or text.endswith((".size()", ".stride()")):
        if text.endswith(".size()"):
            program.tensors.setdefault(name, program.tensors.get(text.removesuffix(".size()"), Tensor([], [], "")))
        return
    if isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name) and value.value.id.endswith("_size"):
        known = program.tensors.get(value.value.id)
        if known is not None and isinstance(value.slice, ast.Constant):
            sizes.values.setdefault(name, known.shape[int(ast.unparse(value.slice))])
        return
    if isinstance(value, ast.Name) and value.id not in sizes.values:
        program.same[name] = value.id
        if program.base(name) in program.tensors:
            program.tensors[name] = program.tensors[program.base(name)]
        return
    try:
        sizes.values[name] = sizes.expression(value)
        return
    except integers.NotInteger:
        pass
    called = name_of(value.func) if isinstance(value, ast.Call) else ""
    if called.startswith("empty_strided") and isinstance(value, ast.Call):
        program.tensors[name] = Tensor(
            _tuple(value.args[0], sizes), _tuple(value.args[1], sizes), ast.unparse(value.args[2]), "cpu" if "cpu" in called else "cuda"
        )
        yield Allocate(name)
        return
    if called == "reinterpret_tensor" and isinstance(value, ast.Call):
        known = program.tensors.get(program.base(ast.unparse(value.args[0])))
        program.tensors[name] = Tensor(_tuple(value.args[1], sizes), _tuple(value.args[2], sizes), known.dtype if known else "")
    made = _made(value, sizes, program)
    if made is not None:
        program.tensors[name] = made
    yield Step(name, value)


def _made(value: ast.expr, sizes: SizeNames, program: Program) -> Tensor | None:
    """What a template's result looks like, where its arguments tell."""
    if not isinstance(value, ast.Call):
        return None
    called = ast.unparse(value.func).removeprefix("torch.ops.kernelllm.").removesuffix(".default")
    known = [_known(a, sizes, program) for a in value.args]
    match called, known:
        case "matmul", [Tensor() as a, Tensor() as b, *_]:
            shape = [a.shape[0], b.shape[1]]
        case "addmm", [_, Tensor() as a, Tensor() as b, *_]:
            shape = [a.shape[0], b.shape[1]]
        case "batched_matmul", [Tensor() as a, Tensor() as b, *_]:
            shape = [a.shape[0], a.shape[1], b.shape[2]]
        case "attention", [Tensor() as q, _, Tensor() as v, *_]:
            shape, a = [*q.shape[:-1], v.shape[-1]], q
        case (("cumsum" | "cumprod" | "logcumsumexp"), [Tensor() as a, *_]):
            shape = a.shape
        case _:
            return None
    return Tensor(shape, contiguous(shape), a.dtype)


def _known(node: ast.expr, sizes: SizeNames, program: Program) -> Tensor | None:
    if isinstance(node, ast.Name):
        return program.tensors.get(program.base(node.id))
    if isinstance(node, ast.Call) and name_of(node.func) == "reinterpret_tensor":
        base = _known(node.args[0], sizes, program)
        return Tensor(_tuple(node.args[1], sizes), _tuple(node.args[2], sizes), base.dtype if base else "")
    return None


def _tuple(node: ast.expr, sizes: SizeNames) -> list[Any]:
    if not isinstance(node, ast.Tuple | ast.List):
        raise CaptureError(f"A shape is not understood: {ast.unparse(node)[:100]}", where="emit")
    return [sizes.expression(e) for e in node.elts]


def _out_call(call: ast.Call, program: Program) -> Iterator[Item]:
    """``extern_kernels.mm(a, b, out=buf)`` as ``buf = torch.mm(a, b)`` where the buffer was made for it."""
    out = next((k.value for k in call.keywords if k.arg == "out"), None)
    if isinstance(out, ast.Name) and out.id in program.tensors:
        fresh = next((i for i in program.items if isinstance(i, Allocate) and i.target == out.id), None)
        known = program.tensors[out.id]
        touched = any(out.id in ast.unparse(a) for a in call.args)
        if fresh is not None and is_contiguous(known) and not touched:
            program.items.remove(fresh)
            call.keywords = [k for k in call.keywords if k.arg != "out"]
            yield Step(out.id, call)
            return
    yield Step("", call)
