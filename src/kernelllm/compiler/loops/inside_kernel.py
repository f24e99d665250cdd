"""A loop whose step is one kernel becomes a kernel with the loop inside: what a step hands to the next stays in registers.

That is possible where a program writes what it carries at the very elements that it read, and where the other inputs of a step are
slices of tensors at the loop's index. The slices become whole tensors with the loop's dimension in front.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kernelllm.compiler.emit import formatting
from kernelllm.compiler.loops.body import STEP
from kernelllm.compiler.loops.loop_forms import lengths
from kernelllm.core.text import syntax_tree

INSIDE = "for _ in tl.range(0, steps"
"""How the loop of such a kernel begins."""
_STAGES = 6
"""Loads of as many steps are under way: a step alone waits for memory."""
_TILE, _BLOCK = 128, 32
"""Elements of a program, of rows with columns and alone; small: steps follow each other, so that only many programs fill a GPU."""


_TURNS = ("transpose", "permute")
"""Views of the same elements in another order."""
_AROUND = {
    "check", "empty", "empty_like", "contiguous", "view", *_TURNS, "stride", "size", "dim", "numel", "element_size", "bit_length", "cdiv",
    "next_power_of_2", "max", "min", "apply", "parameters", "buffers", "is_grad_enabled", "is_autocast_enabled", "storage_offset",
    "settings_of", "ValueError", "NotImplementedError", "TypeError",
}  # fmt: skip
"""What a step may call beside its kernel: nothing that computes with what it is given."""


class Unfit(Exception):
    """The file is not of the form that is handled; it stays as it is."""


@dataclass
class LoopOfSteps:
    """The loop of a forward and its one call of the step."""

    node: Any
    steps: Any
    call: Any
    targets: list[str]
    lists: dict[str, str]
    """The list that a result is appended to, by the result's name."""


@dataclass
class StepMethod:
    """The method that launches the kernel once."""

    node: Any
    launch: Any
    parameters: list[str]
    results: list[str]
    sliced: set[str] = field(default_factory=set)
    carried: dict[str, str] = field(default_factory=dict)
    """The result that becomes a parameter of the next step, by the parameter."""
    listed: set[str] = field(default_factory=set)
    """Results of which each step's is kept."""
    views: dict[str, str] = field(default_factory=dict)
    """The tensor that a result is a view of, by the result."""


def with_loop_inside(source: str) -> str:
    """The file with the loop inside its kernel, or as it is."""

    def change(kernel: Any, loop: LoopOfSteps, step: StepMethod, forward: Any) -> None:
        _rewrite_kernel(kernel, step)
        rewrite_step(step)
        rewrite_forward(forward, loop, step)

    return rewritten(source, change)


def rewritten(source: str, change: Callable[[Any, LoopOfSteps, StepMethod, Any], None]) -> str:
    """The file whose kernel, step and forward ``change`` has changed in place; as it is where they are not of the form or Unfit."""
    tree = syntax_tree(source)
    try:
        model = next(s for s in tree.body if isinstance(s, ast.ClassDef) and s.name == "ModelNew")
        methods: dict[str, Any] = {s.name: s for s in model.body if isinstance(s, ast.FunctionDef)}
        forward = methods["forward"]
        loop, step = loop_of(forward), step_of(methods[STEP])
        name = step.launch.func.value.id
        (kernel,) = [s for s in tree.body if isinstance(s, ast.FunctionDef) and s.name == name]
        need(sum(isinstance(n, ast.Name) and n.id == name for n in ast.walk(tree)) == 1 and len(kernel.decorator_list) == 1)
        changed = [(span(node), node, indent) for node, indent in ((kernel, 0), (methods[STEP], 4), (forward, 4))]
        relate(loop, step)
        change(kernel, loop, step, forward)
    except (Unfit, StopIteration, KeyError, AttributeError, ValueError):  # a node is not of the kind that it must be
        return source
    return formatting.replaced(source, changed)


def span(node: ast.FunctionDef) -> tuple[int, int]:
    """First and last line of a function, its decorators included."""
    return min([node.lineno, *(d.lineno for d in node.decorator_list)]), node.end_lineno or 0


def need(condition: object) -> None:
    """Raise Unfit where a condition of the rewrite does not hold."""
    if not condition:
        raise Unfit


def loop_of(forward: Any) -> LoopOfSteps:
    loops = [n for n in ast.walk(forward) if isinstance(n, ast.For | ast.While)]
    need(len(loops) == 1 and loops[0] in forward.body)
    loop: Any = loops[0]
    need(isinstance(loop, ast.For) and isinstance(loop.target, ast.Name) and isinstance(loop.iter, ast.Call))
    need(ast.unparse(loop.iter.func) == "range" and len(loop.iter.args) == 1 and not loop.orelse)
    body: list[Any] = loop.body
    first, *rest = body
    need(isinstance(first, ast.Assign) and isinstance(first.value, ast.Call) and ast.unparse(first.value.func) == f"self.{STEP}")
    target: Any = first.targets[0]
    targets = [n.id for n in getattr(target, "elts", [target])]
    lists = {}
    for statement in rest:
        call = statement.value
        need(call.func.attr == "append" and call.args[0].id in targets and call.args[0].id not in lists)
        lists[call.args[0].id] = call.func.value.id
    need(not first.value.keywords)
    return LoopOfSteps(loop, loop.iter.args[0], first.value, targets, lists)


def _named_result(node: Any) -> None:
    """Name the one result of a step that is marked where it is returned: ``return (Mark.apply((out,), x)[0] if asked() else out,)``."""
    value: Any = node.body[-1].value
    if len(getattr(value, "elts", ())) == 1 and isinstance(value.elts[0], ast.IfExp) and isinstance(value.elts[0].body, ast.Subscript):
        (found,) = value.elts
        name, call = ast.unparse(found.orelse), ast.unparse(found.body.value)
        marked = f"if {ast.unparse(found.test)}:\n    ({name},) = {call}\nreturn ({name},)"
        node.body[-1:] = syntax_tree(marked).body


def step_of(node: Any) -> StepMethod:
    _named_result(node)
    launches = [s.value for s in node.body if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call)
                and isinstance(s.value.func, ast.Subscript)]  # fmt: skip
    need(len(launches) == 1 and isinstance(node.body[-1], ast.Return))
    calls = [n.func for n in ast.walk(node) if isinstance(n, ast.Call) and n is not launches[0]]
    need(all((f.attr if isinstance(f, ast.Attribute) else getattr(f, "id", "")) in _AROUND for f in calls))
    value: Any = node.body[-1].value
    results = [n.id for n in getattr(value, "elts", [value])]
    step = StepMethod(node, launches[0], [a.arg for a in node.args.args[1:]], results)
    for statement in (s for s in node.body if isinstance(s, ast.Assign) and ast.unparse(s.targets[0]) in results):
        made: Any = statement.value
        if isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.func.attr in ("view", *_TURNS):
            step.views[ast.unparse(statement.targets[0])] = ast.unparse(made.func.value)
    return step


def relate(loop: LoopOfSteps, step: StepMethod) -> None:
    """Find out what is carried, what is sliced, and which results are kept step by step."""
    need(len(loop.targets) == len(step.results) and len(loop.call.args) == len(step.parameters))
    index = loop.node.target.id
    for parameter, given in zip(step.parameters, loop.call.args, strict=True):
        if isinstance(given, ast.Name) and given.id in loop.targets:
            step.carried[parameter] = step.results[loop.targets.index(given.id)]
        elif index in {n.id for n in ast.walk(given) if isinstance(n, ast.Name)}:
            _slice_dim(given, index)
            step.sliced.add(parameter)
    step.results = [step.views.get(name, name) for name in step.results]
    step.carried = {parameter: step.views.get(name, name) for parameter, name in step.carried.items()}
    step.listed = {step.results[loop.targets.index(name)] for name in loop.lists}
    need(step.carried and len(set(step.carried.values())) == len(step.carried))
    need(set(step.results) == step.listed | set(step.carried.values()))


def _slice_dim(given: Any, index: str) -> int:
    """The dimension that the loop's index picks from in ``x[:, t, None]`` or ``x[..., t]``; what else is picked must be whole or new."""
    need(isinstance(given, ast.Subscript) and isinstance(given.value, ast.Name) and given.value.id != index)
    items = given.slice.elts if isinstance(given.slice, ast.Tuple) else [given.slice]
    at = [i for i, item in enumerate(items) if isinstance(item, ast.Name) and item.id == index]
    texts = [ast.unparse(item) for item in items]
    need(len(at) == 1 and {*texts} <= {":", "None", "...", index})
    if "..." in texts[: at[0]]:
        return -sum(text != "None" for text in texts[at[0] :])
    return sum(text != "None" for text in texts[: at[0]])


def _rewrite_kernel(kernel: Any, step: StepMethod) -> None:
    names = [a.arg for a in kernel.args.args]
    given = {name: ast.unparse(value) for name, value in zip(names, step.launch.args, strict=False)}
    moving = {n: v for n, v in given.items() if v in step.sliced | step.listed}
    old = {n: v for n, v in given.items() if v in step.carried}
    results = {v: n for n, v in given.items() if v in step.results}
    need(len(old) == len(step.carried) and set(results) == set(step.results) and not set(old) & set(results.values()))
    document = kernel.body[:1] if isinstance(kernel.body[0], ast.Expr) and isinstance(kernel.body[0].value, ast.Constant) else []
    before: list[Any] = []
    inside: list[Any] = []
    after: list[Any] = []
    held: dict[str, tuple[str, str]] = {}  # by the pointer that is read at first: the variable, and where it is read
    stored: dict[str, Any] = {}
    variant: set[str] = set()
    for statement in kernel.body[len(document) :]:
        called = _loads(statement)
        pointers = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and n.id in names}
        if isinstance(statement, ast.Expr):
            call, pointer, place = _store(statement)
            if pointer in {results[r] for r in step.carried.values()}:
                need(pointer not in stored)
                stored[pointer] = call
            if given[pointer] in step.listed:
                inside.append(statement)
            else:
                after.append(syntax_tree(f"tl.store({', '.join([f'{pointer} + {place}', '0', *map(ast.unparse, call.args[2:])])})").body[0])
            continue
        need(isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name))
        target = statement.targets[0].id
        if pointers & old.keys():
            (pointer,) = pointers & old.keys()
            need(pointer not in held and called is not None and ast.unparse(statement.value) == ast.unparse(called))
            held[pointer] = target, place_of(called, pointer)
            before.append(statement)
            variant.add(target)
            continue
        read = {n.id for n in ast.walk(statement.value) if isinstance(n, ast.Name)}
        if read & variant or read & moving.keys():
            inside.append(statement)
            variant.add(target)
        else:
            before.append(statement)
    need(set(held) == set(old))
    turns, finals = _turns(step, old, results, held, stored)
    for statement in after:
        call = statement.value
        call.args[1] = ast.Name(finals[call.args[0].left.id])
    advance = [syntax_tree(f"{name} += {name.removesuffix('_ptr')}_step").body[0] for name in moving]
    loop: Any = syntax_tree(f"{INSIDE}, num_stages={_STAGES}): pass").body[0]
    _add_arguments(kernel, step, moving)
    loop.body = [*inside, *turns, *advance]
    kernel.body = [*document, *before, loop, *after]


def _turns(step: StepMethod, old: dict[str, str], results: dict[str, str], held: dict[str, tuple[str, str]], stored: dict[str, Any]
           ) -> tuple[list[Any], dict[str, str]]:  # fmt: skip
    """The statements that hand over to the next step, and the variable of each final result by its pointer."""
    makes, takes, finals = [], [], {}
    for pointer, (variable, place) in held.items():
        result = results[step.carried[old[pointer]]]
        call = stored[result]
        need(place_of(call, result) == place)
        makes.append(f"next_{variable} = tl.broadcast_to({ast.unparse(call.args[1])}, {variable}.shape)")
        takes.append(f"{variable} = next_{variable}")
        finals[result] = variable
    return syntax_tree("\n".join(makes + takes)).body, finals


def _loads(statement: Any) -> Any:
    found = [n for n in ast.walk(statement) if isinstance(n, ast.Call) and ast.unparse(n.func) == "tl.load"]
    need(len(found) <= 1)
    return found[0] if found else None


def place_of(call: Any, pointer: str) -> str:
    """Where a load or store is: what is added to its pointer."""
    at = call.args[0]
    need(isinstance(at, ast.BinOp) and isinstance(at.op, ast.Add) and ast.unparse(at.left) == pointer)
    return ast.unparse(at.right)


def _store(statement: Any) -> tuple[Any, str, str]:
    call = statement.value
    need(isinstance(call, ast.Call) and ast.unparse(call.func) == "tl.store" and len(call.args) in (2, 3))
    pointer = ast.unparse(call.args[0].left)
    return call, pointer, place_of(call, pointer)


def _add_arguments(kernel: Any, step: StepMethod, moving: dict[str, str]) -> None:
    """The number of steps and how far each pointer goes in one, before the first compile-time argument; fewer elements a program."""
    arguments = kernel.args.args
    need(not kernel.args.defaults and len(step.launch.args) <= len(arguments))
    place = next(i for i, a in enumerate(arguments) if a.annotation is not None or i == len(step.launch.args))
    new = ["steps", *(f"{name.removesuffix('_ptr')}_step" for name in moving)]
    taken = {n.id for node in (kernel, step.node) for n in ast.walk(node) if isinstance(n, ast.Name)} | {a.arg for a in arguments}
    need(not taken & set(new))
    arguments[place:place] = [ast.arg(name) for name in new]
    step.launch.args[place:place] = [ast.Name("steps"), *(syntax_tree(f"{v}.stride(0)", mode="eval").body for v in moving.values())]
    columns = next((int(n) for k in step.launch.keywords if k.arg == "BLOCK_COLS" for n in re.findall(r"\d+", ast.unparse(k.value))), _TILE)
    most = {"BLOCK_ROWS": max(1, _TILE // columns), "BLOCK": _BLOCK} if "tl.trans(" not in ast.unparse(kernel) else {}
    for keyword in step.launch.keywords:
        wanted, value = most.get(keyword.arg or ""), keyword.value
        if wanted and isinstance(value, ast.Constant) and isinstance(value.value, int) and value.value > wanted:
            grid = ast.unparse(step.launch.func.slice)
            parts = grid.rpartition(f", {value.value}),")
            need(parts[1])
            step.launch.func.slice = syntax_tree(f"{parts[0]}, {wanted}),{parts[2]}", mode="eval").body
            keyword.value = ast.Constant(wanted)
            for other in step.launch.keywords:
                if other.arg == "num_warps":
                    other.value = ast.Constant(1)


def rewrite_step(step: StepMethod) -> None:
    """Sliced parameters and listed results have the steps in front."""
    step.node.args.args.insert(1, ast.arg("steps"))
    for statement in step.node.body:
        if isinstance(statement, ast.Assign):
            target: Any = statement.targets[0]
            value: Any = statement.value
            if isinstance(target, ast.Name) and target.id in step.views:
                if step.views[target.id] in step.listed:
                    need(value.func.attr == "view")
                    value.args.insert(0, ast.Name("steps"))
            elif isinstance(target, ast.Name) and target.id in step.results:
                statement.value = _allocated(value, target.id in step.listed, step.sliced)
            elif isinstance(value, ast.Attribute) and ast.unparse(value.value) in step.sliced:
                target.elts.insert(0, ast.Name("_"))
            elif isinstance(value, ast.Subscript) and ast.unparse(value.value).removesuffix(".shape") in step.sliced:
                dim: Any = value.slice
                value.slice = ast.Constant(dim.value + 1)
            else:
                need(not any(f"{name}.shape" in ast.unparse(statement) for name in step.sliced))
        elif isinstance(statement, ast.Expr) and ast.unparse(statement).startswith("check("):
            call: Any = statement.value
            if ast.unparse(call.args[1]) in step.sliced:
                shape = call.args[3]
                if isinstance(shape, ast.Tuple):
                    shape.elts.insert(0, ast.Name("steps"))
                else:
                    call.args[3] = ast.Constant(shape.value + 1)


def _allocated(value: Any, listed: bool, sliced: set[str]) -> Any:
    """The allocation of a result, with the steps in front where each step's is kept."""
    need(isinstance(value, ast.Call))
    if isinstance(value.func, ast.Attribute) and value.func.attr in _TURNS:
        need(not listed)
        value.func.value = _allocated(value.func.value, listed, sliced)
        return value
    called, like = ast.unparse(value.func), value.args[0]
    if called == "torch.empty_like":
        name = ast.unparse(like)
        if (name in sliced) == listed:
            return value
        whole = f"torch.empty((steps, *{name}.shape), device={name}.device, dtype={name}.dtype)"
        one = f"torch.empty({name}.shape[1:], device={name}.device, dtype={name}.dtype)"  # where there is no step, too
        return syntax_tree(whole if listed else one, mode="eval").body
    need(called == "torch.empty" and isinstance(like, ast.Tuple))
    if listed:
        like.elts.insert(0, ast.Name("steps"))
    return value


def rewrite_forward(forward: Any, loop: LoopOfSteps, step: StepMethod) -> None:
    index = loop.node.target.id
    for position, given in enumerate(loop.call.args):
        if step.parameters[position] in step.sliced:
            items = given.slice.elts if isinstance(given.slice, ast.Tuple) else [given.slice]
            rest = [ast.unparse(i) for i in items if ast.unparse(i) != index]
            whole, dim, steps = ast.unparse(given.value), _slice_dim(given, index), ast.unparse(loop.steps)
            every = f"{whole}.shape[{dim}]" in lengths(loop.steps, forward.body)  # if not, the loop may take fewer steps than there are
            picked = ", ".join([":" if every else f":{steps}", *rest])
            loop.call.args[position] = syntax_tree(f"{whole}.movedim({dim}, 0)[{picked}]", mode="eval").body
    loop.call.args.insert(0, loop.steps)
    new = [loop.node.body[0]]
    new += [syntax_tree(f"{kept} = {name}").body[0] for name, kept in loop.lists.items()]
    last = [n for n, r in zip(loop.targets, step.results, strict=True) if r in step.listed and r in step.carried.values()]
    new += [syntax_tree(f"{name} = {name}[-1]").body[0] for name in last]
    if last:
        refusal = f'if {ast.unparse(loop.steps)} < 1:\n    raise ValueError("the kernels were written for a loop of at least one step")'
        new = [*syntax_tree(refusal).body, *new]
    at = forward.body.index(loop.node)
    before, after = forward.body[:at], forward.body[at + 1 :]
    kept = [s for s in before if not (isinstance(s, ast.Assign) and ast.unparse(s.value) == "[]")]
    lists = set(loop.lists.values())
    need(len(kept) + len(lists) == len(before) and len(lists) == len(loop.lists))
    need(not lists & {n.id for s in kept for n in ast.walk(s) if isinstance(n, ast.Name)})
    need(index not in {n.id for s in after for n in ast.walk(s) if isinstance(n, ast.Name)})
    stacks = Stacks(lists)
    forward.body = [*kept, *new, *(stacks.visit(s) for s in after)]
    uses = sum(isinstance(n, ast.Name) and n.id in lists for s in after for n in ast.walk(s))
    need(stacks.found == uses)


class Stacks(ast.NodeTransformer):
    """``torch.stack(results, dim)`` of tensors that are one already."""

    def __init__(self, lists: set[str]) -> None:
        self.lists, self.found = lists, 0

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if ast.unparse(node.func) != "torch.stack" or not isinstance(node.args[0], ast.Name) or node.args[0].id not in self.lists:
            return node
        self.found += 1
        given = [*node.args[1:], *(k.value for k in node.keywords if k.arg == "dim")]
        dim = ast.unparse(given[0]) if given else "0"
        return syntax_tree(f"{node.args[0].id}.movedim(0, {dim}).contiguous()", mode="eval").body
