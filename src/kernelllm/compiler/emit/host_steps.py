"""The steps of Inductor's wrapper (allocate, launch, call, free), with shape, strides and dtype of their tensors."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import sympy

from kernelllm.compiler.emit.ast_tools import name_of
from kernelllm.compiler.emit.kernels import integers
from kernelllm.compiler.emit.size_names import SizeNames
from kernelllm.compiler.inductor.wrapper_lines import Allocate, Assign, Free, HostStep, Launch, Wrapper
from kernelllm.compiler.scored_operators import PREFIX
from kernelllm.core.errors import CaptureError

if TYPE_CHECKING:
    from kernelllm.compiler.capture.captured import Captured

@dataclass
class HostTensor:
    """What is known of a buffer or argument."""

    shape: list[Any]
    stride: list[Any]
    dtype: str
    device: str = "cuda"


@dataclass
class HostProgram:
    """The steps of a file's forward."""

    items: list[HostStep]
    result: list[ast.expr]
    tensors: dict[str, HostTensor]
    same: dict[str, str] = field(default_factory=dict)
    """Names of buffers that are other names of a buffer, with that name."""
    freed: set[str] = field(default_factory=set)
    kept: int = 0
    """How many of the last results are kept for a backward, and are no outputs of the module."""
    counted: list[str] = field(default_factory=list)
    """Sizes that are read off what an operator of torch has computed."""
    members: dict[str, str] = field(default_factory=dict)
    """Members of results whose sizes are read, by their text: the name under which they are held."""

    def names(self, base: str) -> set[str]:
        """All names of a buffer."""
        return {base, *(n for n in self.same if self.base(n) == base)}

    def base(self, name: str) -> str:
        """The buffer that a name stands for."""
        while name in self.same:
            name = self.same[name]
        return name


def read(wrapper: Wrapper, captured: Captured, sizes: SizeNames) -> HostProgram:
    """The wrapper's steps with what is known of their tensors. Raises CaptureError for a shape that it does not understand."""
    program = HostProgram([], wrapper.results, dict(_argument_tensors(captured, sizes)))
    for step in wrapper.steps:
        program.items += _items(step, sizes, program)
    return program


def contiguous(shape: list[Any]) -> list[Any]:
    """Row-major strides of a shape."""
    strides, step = [], sympy.Integer(1)
    for size in reversed(shape):
        strides.append(step)
        step = step * size
    return strides[::-1]


def is_contiguous(tensor: HostTensor) -> bool:
    """Whether the strides are row-major, dimensions of size 1 aside."""
    expected = contiguous(tensor.shape)
    return all(n == 1 or equal(a, b) for n, a, b in zip(tensor.shape, tensor.stride, expected, strict=True))


def equal(a: Any, b: Any) -> bool:
    """Whether two integer expressions are equal for all sizes."""
    return bool(a == b or sympy.expand(a - b) == 0)


def moved(order: list[int]) -> str:
    """The call that puts dimensions into an order: ``.transpose(0, 1)``; empty where they are in it."""
    swapped = [i for i, o in enumerate(order) if i != o]
    if not swapped:
        return ""
    if len(swapped) == 2:
        return f".transpose({swapped[0]}, {swapped[1]})"
    return f".permute({', '.join(map(str, order))})"


def layout_kept(path: str, tensor: HostTensor, written: Callable[[list[Any]], str]) -> list[str]:
    """Statements that refuse an input with other strides than those in which the kernels write into it."""
    if not tensor.shape or not path.isidentifier():
        return []
    order = list(range(len(tensor.shape))) if is_contiguous(tensor) else row_major_order(tensor)
    fits = f"{path}.stride() == {written(tensor.stride)}" if order is None else f"{path}{moved(order)}.is_contiguous()"
    message = f"{path}: the kernels write into it, in memory that is laid out in another way"
    return [f"if not {fits}:", f'    raise ValueError("{message}")']


def in_layout(path: str, tensor: HostTensor, written: Callable[[list[Any]], str]) -> list[str]:
    """Statements that give an input the strides that the kernels read, none where it need not. They copy nothing where it has them.

    ``written`` gives the text of sizes. A dimension that is expanded stays as it comes.
    """
    if not tensor.shape or not path.isidentifier():
        return []
    if is_contiguous(tensor):
        return [f"{path} = {path}.contiguous()"]
    order = row_major_order(tensor)
    if order is not None:
        return [f"{path} = {path}{moved(order)}.contiguous(){moved([order.index(d) for d in range(len(order))])}"]
    if 0 in tensor.stride:
        return []
    strides = written(tensor.stride)
    made = f"torch.empty_strided({path}.shape, {strides}, dtype={path}.dtype, device={path}.device)"
    return [f"if {path}.stride() != {strides}:", f"    {path} = {made}.copy_({path})"]


def row_major_order(tensor: HostTensor) -> list[int] | None:
    """The dimensions from the outermost in memory to the innermost, for all sizes; None for a tensor with holes."""
    left = sorted(range(len(tensor.shape)), key=lambda d: tensor.shape[d] != 1)
    order: list[int] = []
    step = sympy.Integer(1)
    while left:
        found = next((d for d in reversed(left) if equal(tensor.stride[d], step) or tensor.shape[d] == 1), None)
        if found is None:
            return None
        left.remove(found)
        order.insert(0, found)
        step = step * tensor.shape[found]
    return order


def _argument_tensors(captured: Captured, sizes: SizeNames) -> Iterator[tuple[str, HostTensor]]:
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
        yield argument.variable, HostTensor(shape, found if found is not None else contiguous(shape), dtype)


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


def _items(step: HostStep, sizes: SizeNames, program: HostProgram) -> Iterator[HostStep]:
    match step:
        case Allocate():
            program.tensors[step.target] = HostTensor(_tuple(step.size, sizes), _tuple(step.stride, sizes), step.dtype, step.device)
            yield step
        case Launch():
            yield step
        case Free(targets):
            program.freed.update(targets)
            free = [n for n in dict.fromkeys(map(program.base, targets)) if program.names(n) <= program.freed]
            if free:
                yield Free(free)
        case Assign("", ast.Call() as call):
            yield from _out_call(call, program)
        case Assign():
            yield from _assignment(step, sizes, program)


def _assignment(step: Assign, sizes: SizeNames, program: HostProgram) -> Iterator[HostStep]:
    name, value = step.target, step.value
    if held := program.members.get(ast.unparse(value)):
        program.same[name] = held
        return
    if isinstance(value, ast.Name) and value.id not in sizes.values:
        program.same[name] = value.id
        if program.base(name) in program.tensors:
            program.tensors[name] = program.tensors[program.base(name)]
        return
    if isinstance(value, ast.Constant) and value.value is None:  # the buffer of a number that is read off a tensor
        return
    if re.fullmatch(r"u\d+", name):
        given = name if name in sizes.values else ast.unparse(value)
        if given in sizes.values:  # a backward is given what its forward has counted
            sizes.values[name] = sizes.values[given]
            program.counted.append(name)
            return
        yield from _counted(name, value, sizes, program)
        return
    with suppress(integers.NotInteger):
        sizes.values[name] = sizes.expression(value)
        return
    if isinstance(value, ast.Call) and name_of(value.func) == "reinterpret_tensor":
        known = program.tensors.get(program.base(ast.unparse(value.args[0])))
        program.tensors[name] = HostTensor(_tuple(value.args[1], sizes), _tuple(value.args[2], sizes), known.dtype if known else "")
    made = _made(value, sizes, program)
    if made is not None:
        program.tensors[name] = made
    yield step


def _counted(name: str, value: ast.expr, sizes: SizeNames, program: HostProgram) -> Iterator[HostStep]:
    """``u0 = buf0.size(0)``, ``u0 = buf0[1].size(0)`` or ``u0 = n.item()``: a size that torch has found, or that a tensor of integers
    holds. Raises CaptureError for any other number."""
    match value:
        case ast.Call(func=ast.Attribute(value=ast.Subscript(value=ast.Name(id=base)) as member, attr="size"), args=[dim]):
            held = f"{base}_{ast.unparse(member.slice)}"
            program.members[ast.unparse(member)] = held
            yield Assign(held, member)
            read: ast.expr = ast.Call(ast.Attribute(ast.Name(held, ast.Load()), "size", ast.Load()), [dim], [])
        case ast.Call(func=ast.Attribute(value=ast.Call(args=[ast.Name(id=base), *view]) as one, attr="item")) if (
            _holds_integers(base, program)
        ):
            known, held = program.tensors[program.base(base)], f"{base}_{'read' if len(view) < 3 else ast.unparse(view[2])}"
            if len(known.shape) == 1 and is_contiguous(known) and all(isinstance(v, ast.Constant) for v in view[2:]):
                held, place = f"{base}_numbers", view[2] if len(view) > 2 else ast.Constant(0)
                before = program.items[-1] if program.items else None
                if not isinstance(before, Assign) or not ast.unparse(before.value).startswith(f"{held}["):  # one copy for all of them
                    yield Assign(held, ast.Call(ast.Attribute(ast.Name(base, ast.Load()), "tolist", ast.Load()), [], []))
                read = ast.Subscript(ast.Name(held, ast.Load()), place, ast.Load())
            else:
                yield Assign(held, one)
                read = ast.Call(ast.Attribute(ast.Name(held, ast.Load()), "item", ast.Load()), [], [])
        case ast.Call(func=ast.Attribute(value=ast.Name(id=base), attr="size")):
            read = value
        case ast.Call(func=ast.Attribute(value=ast.Name(id=base), attr="item"), args=[]) if _holds_integers(base, program):
            read = value
        case _:
            raise CaptureError(f"A number depends on the values of tensors: {ast.unparse(value)[:100]}", where="emit")
    maker = next((i.value for i in program.items if isinstance(i, Assign) and i.target == program.base(base)), None)
    called = re.search(r"(\w+?)(\.default)?$", ast.unparse(maker.func)) if isinstance(maker, ast.Call) else None
    sizes.counted(name, called[1].strip("_") if called else "found")
    program.counted.append(name)
    yield Assign(name, read)


def _holds_integers(name: str, program: HostProgram) -> bool:
    known = program.tensors.get(program.base(name))
    return known is not None and known.dtype.startswith("torch.int")


def _made(value: ast.expr, sizes: SizeNames, program: HostProgram) -> HostTensor | None:
    """What a template's result looks like, where its arguments tell."""
    one = one_of_three(value, program)
    if one is not None:
        a, weight = (_known(n, sizes, program) for n in one)
        return HostTensor([a.shape[0], weight.shape[0]], contiguous([a.shape[0], weight.shape[0]]), a.dtype) if a and weight else None
    if not isinstance(value, ast.Call):
        return None
    called = ast.unparse(value.func).removeprefix("torch.ops.kernelllm.").removesuffix(".default")
    known = [_known(a, sizes, program) for a in value.args]
    called = "attention" if called.startswith(PREFIX) else called
    match called, known:
        case ("matmul" | "half_matmul" | "gated_matmul"), [HostTensor() as a, HostTensor() as b, *_]:
            shape = [a.shape[0], b.shape[1]]
        case "addmm", [_, HostTensor() as a, HostTensor() as b, *_]:
            shape = [a.shape[0], b.shape[1]]
        case ("batched_matmul" | "half_batched_matmul"), [HostTensor() as a, HostTensor() as b, *_]:
            shape = [a.shape[0], a.shape[1], b.shape[2]]
        case ("attention" | "half_attention" | "sink_attention"), [HostTensor() as q, _, HostTensor() as v, *_]:
            batch, heads, queries, width = *q.shape[:-1], v.shape[-1]
            return HostTensor([batch, heads, queries, width], [queries * heads * width, width, heads * width, sympy.Integer(1)], q.dtype)
        case (("cumsum" | "cumprod" | "logcumsumexp" | "row_softmax"), [HostTensor() as a, *_]):
            shape = a.shape
        case "bincount", _ if len(value.args) == 3 and ast.unparse(value.args[1]) == "None":
            length = [sizes.expression(value.args[2])]
            return HostTensor(length, contiguous(length), "torch.int64")
        case _:
            return None
    return HostTensor(shape, contiguous(shape), a.dtype)


def one_of_three(value: ast.expr, program: HostProgram) -> tuple[ast.expr, ast.expr] | None:
    """The operands of a product that was made together with two others, where ``value`` is that."""
    match value:
        case ast.Subscript(value=ast.Name(id=base), slice=ast.Constant(value=int() as place)):
            maker = next((i.value for i in program.items if isinstance(i, Assign) and i.target == program.base(base)), None)
            if isinstance(maker, ast.Call) and ".matmul_three" in ast.unparse(maker.func):
                return maker.args[0], maker.args[1 + place]
    return None


def _known(node: ast.expr, sizes: SizeNames, program: HostProgram) -> HostTensor | None:
    if isinstance(node, ast.Name):
        return program.tensors.get(program.base(node.id))
    if isinstance(node, ast.Call) and name_of(node.func) == "reinterpret_tensor":
        base = _known(node.args[0], sizes, program)
        return HostTensor(_tuple(node.args[1], sizes), _tuple(node.args[2], sizes), base.dtype if base else "")
    return None


def _tuple(node: ast.expr, sizes: SizeNames) -> list[Any]:
    if not isinstance(node, ast.Tuple | ast.List):
        raise CaptureError(f"A shape is not understood: {ast.unparse(node)[:100]}", where="emit")
    return [sizes.expression(e) for e in node.elts]


def _out_call(call: ast.Call, program: HostProgram) -> Iterator[HostStep]:
    """``extern_kernels.mm(a, b, out=buf)`` as ``buf = torch.mm(a, b)`` where the buffer was made for it."""
    out = next((k.value for k in call.keywords if k.arg == "out"), None)
    if isinstance(out, ast.Name) and out.id in program.tensors:
        fresh = next((i for i in program.items if isinstance(i, Allocate) and i.target == out.id), None)
        known = program.tensors[out.id]
        touched = any(out.id in ast.unparse(a) for a in call.args)
        if fresh is not None and is_contiguous(known) and not touched:
            program.items.remove(fresh)
            call.keywords = [k for k in call.keywords if k.arg != "out"]
            yield Assign(out.id, call)
            return
    yield Assign("", call)
