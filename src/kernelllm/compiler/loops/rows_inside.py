"""A loop whose step reads its state at neighbouring elements becomes a kernel with the loop inside: one program for each row.

A program hands the row over through memory, behind a barrier. That is possible where rows need nothing of each other: whatever a
program reads of the state it wrote itself one step ago. It is looked at with a few sizes, element by element.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelllm.compiler.loops import inside_kernel
from kernelllm.compiler.loops.inside_kernel import LoopOfSteps, StepMethod, Unfit, need
from kernelllm.core.text import syntax_tree

ROWS = "for turn in range(0, steps)"
"""How the loop of such a kernel begins."""
_LONGEST = 16384
"""Elements of a row at the problem's own sizes: one program computes them at once."""
_SIZES = ((3, 5, 2, 4), (4, 7, 3, 5), (2, 6, 5, 3))
"""Sizes of dimensions at which a kernel is looked at."""
_MOST = 2**18
"""Elements of a state that is looked at."""
_FLAT = ("offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)", "mask = offsets < n_elements")
"""How a kernel begins that takes all elements one after the other."""


@dataclass
class _Kernel:
    node: Any
    given: dict[str, str]
    """What the step hands over, by the kernel's argument."""
    body: list[Any]
    document: list[Any]

    def pointers(self, names: set[str]) -> dict[str, str]:
        return {argument: name for argument, name in self.given.items() if name in names}


def _made(step: StepMethod) -> dict[str, str]:
    """The result that a step makes for the next one, by the parameter."""
    return {parameter: result for parameter, result in step.carried.items() if result not in step.parameters}


def _handed(step: StepMethod) -> dict[str, str]:
    """What a step was given and hands on, as the state before the last one: the earlier parameter by the later one."""
    handed = {parameter: given for parameter, given in step.carried.items() if given in step.parameters}
    need(set(handed.values()) <= _made(step).keys())
    return handed


def with_rows_inside(source: str, shapes: Mapping[str, list[int]]) -> str:
    """The file with the loop inside its kernel, or as it is. ``shapes``: of what goes from step to step, at the problem's own sizes."""

    def change(node: Any, loop: LoopOfSteps, step: StepMethod, forward: Any) -> None:
        need(not step.views)
        kernel = _kernel(node, step)
        dims = _row_dims(kernel, step)
        need(math.prod(shapes[next(iter(step.carried))][-dims:]) <= _LONGEST)
        _rewrite_kernel(kernel, step)
        _rewrite_host(loop, step, dims, forward)

    return inside_kernel.rewritten(source, change)


def _kernel(node: Any, step: StepMethod) -> _Kernel:
    names = [a.arg for a in node.args.args]
    given = {name: ast.unparse(value) for name, value in zip(names, step.launch.args, strict=False)}
    first = node.body[0]
    document = [first] if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) else []
    body = node.body[len(document) :]
    need([ast.unparse(s) for s in body[:2]] == list(_FLAT))
    return _Kernel(node, given, body[2:], document)


def _row_dims(kernel: _Kernel, step: StepMethod) -> int:
    """How many of the state's last dimensions are a row. Raises Unfit where none are."""
    state = next(iter(step.carried))
    examples = [_example(kernel, step, sizes) for sizes in _SIZES]
    for dims in range(1, len(examples[0][1][state])):
        if all(_keeps_to_itself(kernel, step, numbers, shapes[state], dims) for numbers, shapes in examples):
            return dims
    raise Unfit


def _example(kernel: _Kernel, step: StepMethod, sizes: tuple[int, ...]) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    """The kernel's numbers and the shapes of what the step is given, where dimensions that may have any size have these."""
    drawn, shapes, known = itertools.cycle(sizes), dict[str, tuple[int, ...]](), dict[str, Any]()

    def number(node: Any) -> Any:
        text = ast.unparse(node)
        for name, shape in shapes.items():
            for d in range(-len(shape), len(shape)):
                text = text.replace(f"{name}.shape[{d}]", str(shape[d]))
        return _value(syntax_tree(text, mode="eval").body, known)

    for statement in step.node.body:
        if isinstance(statement, ast.Expr) and ast.unparse(statement).startswith("check("):
            call: Any = statement.value
            need(isinstance(call.args[3], ast.Tuple))
            dims = [next(drawn) if getattr(d, "value", 0) is None else number(d) for d in call.args[3].elts]
            need(all(isinstance(d, int) for d in dims))
            shapes[ast.unparse(call.args[1])] = tuple(dims)
        elif isinstance(statement, ast.Assign):
            target, value = statement.targets[0], statement.value
            name = ast.unparse(value).removesuffix(".shape")
            if name in shapes and isinstance(target, ast.Tuple) and isinstance(value, ast.Attribute):
                known |= {ast.unparse(t): n for t, n in zip(target.elts, shapes[name], strict=True)}
            elif isinstance(target, ast.Name) and (found := number(value)) is not None:
                known[target.id] = found
    need(step.carried.keys() <= shapes.keys() and len({shapes[name] for name in step.carried}) == 1)
    need(math.prod(shapes[next(iter(step.carried))]) <= _MOST)
    arguments = [a.arg for a in kernel.node.args.args]
    given = zip(arguments, step.launch.args, strict=False)
    numbers = {name: found for name, value in given if not name.endswith("_ptr") and (found := number(value)) is not None}
    return numbers, shapes


def _keeps_to_itself(kernel: _Kernel, step: StepMethod, numbers: dict[str, Any], sizes: tuple[int, ...], dims: int) -> bool:
    """Whether no program of a row reads of the state what it has not written, at one example's sizes."""
    row = math.prod(sizes[len(sizes) - dims :])
    made, handed = _made(step), _handed(step)
    old, new = kernel.pointers(set(step.carried)), kernel.pointers(set(made.values()))
    written = []
    for program in range(math.prod(sizes) // row):
        lanes = np.arange(row)
        known = {**numbers, "offsets": program * row + lanes, "mask": lanes < row}
        reads: dict[str, set[int]] = {name: set() for name in old}
        writes: dict[str, set[int]] = {name: set() for name in new}
        for statement in kernel.body:
            for call in (n for n in ast.walk(statement) if isinstance(n, ast.Call) and ast.unparse(n.func) in ("tl.load", "tl.store")):
                pointer = ast.unparse(getattr(call.args[0], "left", call.args[0]))
                kept = reads.get(pointer, writes.get(pointer))
                if kept is not None:
                    kept |= _places(call, pointer, known, row)
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                value = _value(statement.value, known)
                if value is not None:
                    known[statement.targets[0].id] = value
        for pointer, name in old.items():
            after = next(p for p, result in new.items() if result == made[handed.get(name, name)])
            if not reads[pointer] <= writes[after]:
                return False
        written.append(writes)
    return all(set().union(*(w[p] for w in written)) == set(range(math.prod(sizes))) for p in new)


def _places(call: Any, pointer: str, known: dict[str, Any], row: int) -> set[int]:
    place = _value(syntax_tree(inside_kernel.place_of(call, pointer), mode="eval").body, known)
    masks = call.args[1 if ast.unparse(call.func) == "tl.load" else 2 :][:1]
    mask = _value(masks[0], known) if masks else True
    need(place is not None and mask is not None)
    return set(np.broadcast_to(place, (row,))[np.broadcast_to(mask, (row,))].tolist())


def _value(node: Any, known: dict[str, Any]) -> Any:
    """An expression of numbers and of whole arrays of them; None where it reads memory or is of another kind."""
    calls = [ast.unparse(n.func) for n in ast.walk(node) if isinstance(n, ast.Call)]
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} - {"tl"}
    kinds = (ast.BinOp, ast.Compare, ast.UnaryOp, ast.Name, ast.Constant, ast.Call, ast.Attribute, ast.operator, ast.unaryop, ast.cmpop,
             ast.expr_context)  # fmt: skip
    if not names <= known.keys() or not set(calls) <= {"tl.where"} or not all(isinstance(n, kinds) for n in ast.walk(node)):
        return None
    constants = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant)]
    if not all(isinstance(c, bool | int) for c in constants):
        return None
    code = compile(ast.Expression(ast.fix_missing_locations(syntax_tree(ast.unparse(node), mode="eval").body)), "<place>", "eval")
    return eval(code, {"__builtins__": {}, "tl": _Where}, known)


class _Where:
    where = staticmethod(np.where)


def _rewrite_kernel(kernel: _Kernel, step: StepMethod) -> None:
    made, handed = _made(step), _handed(step)
    written = set(step.results) - set(step.parameters)
    results, old = kernel.pointers(written), kernel.pointers(set(step.carried))
    need(set(results.values()) == written and len(old) == len(step.carried) and not set(old) & set(results))
    after = {o: next(p for p, name in results.items() if name == made[n]) for o, n in old.items() if n in made}
    earlier = {o: next(p for p, name in old.items() if name == handed[n]) for o, n in old.items() if n in handed}
    apart = [p for p in after.values() if results[p] not in step.listed]
    sliced = kernel.pointers(step.sliced)
    called: list[Any] = [s.value for s in kernel.body if isinstance(s, ast.Expr)]
    stored = [call for call in called if ast.unparse(call.func) != "tl.device_assert"]
    stores = [ast.unparse(call.args[0].left) for call in stored]
    need(sorted(stores) == sorted(results))
    start = "offsets = tl.program_id(0) * row_size + lanes"
    head = syntax_tree(f"lanes = tl.arange(0, BLOCK)\n{start}\nmask = lanes < row_size").body
    here = [f"{p.removesuffix('_ptr')}_here = {p} + turn % {_slots(step)} * {p.removesuffix('_ptr')}_step" for p in apart]
    body = [_PointersRenamed({p: f"{p.removesuffix('_ptr')}_here" for p in apart}).visit(s) for s in kernel.body]
    turns = [f"{o} = {n}" for o, n in earlier.items()]
    turns += [f"{o} = {n.removesuffix('_ptr') + '_here' if n in apart else n}" for o, n in after.items()]
    listed = [p for p, name in results.items() if name in step.listed]
    moves = [f"{p} += {p.removesuffix('_ptr')}_step" for p in (*sliced, *listed)]
    loop: Any = syntax_tree(f"{ROWS}: pass").body[0]
    ends = syntax_tree("\n".join(["tl.debug_barrier()", *turns, *moves])).body
    loop.body = [*syntax_tree("\n".join(here)).body, *body, *ends]
    kernel.node.body = [*kernel.document, *head, loop]
    _arguments(kernel, step, [*sliced, *listed, *apart])


def _slots(step: StepMethod) -> int:
    """How many states are kept of those that are not kept all: what is written, and all that is read."""
    return 3 if _handed(step) else 2


class _PointersRenamed(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.names.get(node.id, node.id), node.ctx)


def _arguments(kernel: _Kernel, step: StepMethod, moving: list[str]) -> None:
    """Rows, steps, and how far each pointer goes in one; the number of all elements is not needed any more."""
    arguments, node = kernel.node.args.args, kernel.node
    need(not node.args.defaults)
    place = next(i for i, a in enumerate(arguments) if a.annotation is not None or i == len(step.launch.args))
    new = ["row_size", "steps", *(f"{name.removesuffix('_ptr')}_step" for name in moving)]
    taken = {a.arg for a in arguments} | {n.id for n in ast.walk(step.node) if isinstance(n, ast.Name)}
    need(not taken & {*new, "lanes", "turn"})
    values = ["row_size", "steps", *(f"{kernel.given[name]}.stride(0)" for name in moving)]
    arguments[place:place] = [ast.arg(name) for name in new]
    step.launch.args[place:place] = [syntax_tree(value, mode="eval").body for value in values]
    at = [a.arg for a in arguments].index("n_elements")
    uses = {n.id for n in ast.walk(ast.Module(node.body, [])) if isinstance(n, ast.Name)}
    if "n_elements" not in uses:
        del arguments[at], step.launch.args[at]


def _rewrite_host(loop: LoopOfSteps, step: StepMethod, dims: int, forward: Any) -> None:
    state = next(iter(step.carried))
    row = " * ".join(f"{state}.shape[{-d}]" for d in range(dims, 0, -1))
    inside_kernel.rewrite_step(step)
    made, handed, slots = _made(step), _handed(step), _slots(step)
    apart = [name for name in made.values() if name not in step.listed]
    refusal = 'if steps < 1:\n    raise ValueError("the kernels were written for a loop of at least one step")'
    at = next(i for i, s in enumerate(step.node.body) if isinstance(s, ast.Expr) and s.value is step.launch)
    place = {name: f"steps - {{}}{'' if name in step.listed else f') % {slots}'}" for name in made.values()}
    at_end = {name: f"{name}[{'' if name in step.listed else '('}{text}]" for name, text in place.items()}
    finals = [f"{given} = {at_end[made[given]].format(2)} if steps > 1 else {given}" for given in handed.values()]
    finals += [f"{name} = {at_end[name].format(1)}" for name in apart]
    step.node.body[at + 1 : at + 1] = syntax_tree("\n".join(finals)).body
    step.node.body[at:at] = syntax_tree("\n".join([f"row_size = {row}", *([refusal] if apart else [])])).body
    for statement in step.node.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) in apart and ast.unparse(statement.value) not in finals:
            _in_slots(statement, slots)
    count = f"{state}.numel() // max(row_size, 1)"
    step.launch.func.slice = syntax_tree(f"({count},)", mode="eval").body
    for keyword in step.launch.keywords:
        if keyword.arg == "BLOCK":
            keyword.value = syntax_tree("max(32, triton.next_power_of_2(row_size))", mode="eval").body
        if keyword.arg == "num_warps":
            keyword.value = syntax_tree("min(16, max(1, triton.next_power_of_2(row_size) // 128))", mode="eval").body
    need({k.arg for k in step.launch.keywords} - {"debug", "sanitize_overflow"} == {"BLOCK", "num_warps"})
    names = [n for n in ast.walk(step.node) if isinstance(n, ast.Name)]
    reads = {n.id for n in names if not isinstance(getattr(n, "ctx", None), ast.Store)}
    step.node.body = [s for s in step.node.body if not (isinstance(s, ast.Assign) and _count(s) and "n_elements" not in reads)]
    inside_kernel.rewrite_forward(forward, loop, step)


def _count(statement: ast.Assign) -> bool:
    return ast.unparse(statement.targets[0]) == "n_elements"


def _in_slots(statement: Any, slots: int) -> None:
    """The allocation of a state that lies there several times: what a step writes, and what it reads."""
    value = statement.value
    if not isinstance(value, ast.Call):
        return  # the part of it that is the result
    called, like = ast.unparse(value.func), value.args[0]
    if called == "torch.empty_like":
        name = ast.unparse(like)
        statement.value = syntax_tree(f"torch.empty(({slots}, *{name}.shape), device={name}.device, dtype={name}.dtype)", mode="eval").body
        return
    need(called == "torch.empty")
    if isinstance(like, ast.Tuple):
        like.elts.insert(0, ast.Constant(slots))
    else:
        value.args[0] = ast.Tuple([ast.Constant(slots), ast.Starred(like)])


__all__ = ["ROWS", "with_rows_inside"]
