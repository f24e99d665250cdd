"""The analysis of a loop over a tensor's dimension that stays a loop: its step is compiled on its own, and the forward calls it.

Tracing unrolls such a loop, so that the graph grows with the dimension and holds for this length alone. Where the loop is simple
enough, its body becomes the forward of a problem of its own. Its inputs are what the step reads, its outputs what others read of it
later. What the loop does with lists and slices stays in the forward.
"""

from __future__ import annotations

import ast
import functools
import textwrap
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from kernelllm.compiler.capture.captured import Captured
from kernelllm.compiler.emit.ast_tools import names, stored
from kernelllm.compiler.emit.constructors.model_class import bound_names
from kernelllm.compiler.emit.launcher import launched_again
from kernelllm.compiler.loops.before_after import BEGIN, FINISH, LENGTHENED, LONGER, BeforeAfter, first_of, kept_and_changed, refuses, split
from kernelllm.compiler.loops.body import STEP, OutlinedLoop, Outliner
from kernelllm.compiler.loops.checked_once import checked_once
from kernelllm.compiler.loops.contiguous_steps import with_contiguous_steps
from kernelllm.compiler.loops.fission import with_fission
from kernelllm.compiler.loops.groups_of_rows import with_groups
from kernelllm.compiler.loops.hoisted import with_products_ahead
from kernelllm.compiler.loops.inside_kernel import INSIDE, with_loop_inside
from kernelllm.compiler.loops.joined_kernels import with_one_kernel
from kernelllm.compiler.loops.loop_forms import with_one_form
from kernelllm.compiler.loops.merged_files import ensured, merged, renamed
from kernelllm.compiler.loops.module_numbers import counts_many, with_numbers_written_out
from kernelllm.compiler.loops.renamed_variables import with_versions
from kernelllm.compiler.loops.rows_inside import ROWS, with_rows_inside
from kernelllm.compiler.loops.unrolled_layers import layers_of
from kernelllm.core.errors import CaptureError
from kernelllm.core.text import syntax_tree
from kernelllm.core.types import Problem

if TYPE_CHECKING:
    import torch

_ENTRY, _ENTERED = "_entry", "_entered"
_TAKEN = {STEP, BEGIN, FINISH}
"""Names that the module must not have itself."""
_SOURCE = """
def {entered}(inputs):
    from kernelllm.problems.instance import init_arguments
    args, kwargs = init_arguments(get_init_inputs() if "get_init_inputs" in globals() else [], Model)
    return Model(*args, **kwargs).{entry}(*inputs)
"""


@dataclass(frozen=True)
class Carry:
    """What is to be done with tensors, by name, so that a step gives the next what it was given itself."""

    wider: Mapping[str, str] = field(default_factory=dict)
    """Dtypes in which they enter the loop, as its first step would make them."""
    alike: Mapping[str, Collection[int]] = field(default_factory=dict)
    """Dimensions of them that are as long behind a step, as the file checks."""


class CarryChanges(CaptureError):
    """A step could give the next what it was given itself, if something were done with it (``needed``)."""

    def __init__(self, needed: Carry) -> None:
        super().__init__(f"What the loop carries becomes other in a step: {needed}.", where="loops")
        self.needed = needed


@dataclass(frozen=True)
class LoopStep:
    """One step of the loop in a problem's forward."""

    problem: Problem
    """Computes the step, which the forward calls as ``self.step``."""
    outside: Mapping[str, Problem]
    """Compute the methods ``begin`` and ``finish``, where the forward has them."""
    methods: Mapping[str, Method]
    """The new forward and the module's own methods that it calls."""
    inputs: tuple[str, ...]
    """The step's inputs by their names in the forward."""
    carried: tuple[tuple[int, int], ...]
    """Positions of what goes from one step to the next, among the step's inputs and among its results."""

    @property
    def forward(self) -> str:
        """The new forward."""
        return self.methods["forward"].text

    def matrices(self, captured: Captured) -> list[str]:
        """What goes from one step to the next and has matrices in its last two dimensions; vectors beside them stay."""
        placeholders = captured.graph.graph.find_nodes(op="placeholder")
        ranks = {given.index: node.meta["val"].dim() for given, node in zip(captured.graph_inputs, placeholders, strict=True)
                 if given.index in {position for position, _ in self.carried}}  # fmt: skip
        return [self.inputs[position] for position, rank in ranks.items() if rank >= 3 and rank == max(ranks.values())]

    def shapes(self, captured: Captured) -> dict[str, list[int]]:
        """The sizes of what goes from one step to the next, at the problem's own."""
        placeholders = captured.graph.graph.find_nodes(op="placeholder")
        nodes = {given.index: node for given, node in zip(captured.graph_inputs, placeholders, strict=True)}
        return {self.inputs[position]: _lengths(nodes[position].meta["val"]) for position, _ in self.carried if position in nodes}

    def check(self, captured: Captured) -> None:
        """Raise CaptureError where what one step hands to the next is of another shape or dtype than what it was given.

        Where it has a wider dtype alone, or sizes that are the same at the problem's own, the error is CarryChanges.
        """
        import torch

        wider: dict[str, str] = {}
        alike: dict[str, list[int]] = {}
        placeholders = captured.graph.graph.find_nodes(op="placeholder")
        nodes = {given.index: node for given, node in zip(captured.graph_inputs, placeholders, strict=True)}
        results = captured.graph.graph.output_node().args[0]
        for position, result in self.carried:
            one, other = nodes[position].meta["val"], results[result].meta["val"]
            same = [str(n) for n in one.shape] == [str(n) for n in other.shape]
            if not same and one.dtype == other.dtype and _lengths(one) == _lengths(other):
                pairs = enumerate(zip(one.shape, other.shape, strict=True))
                alike[self.inputs[position]] = [dim for dim, (n, m) in pairs if str(n) != str(m)]
            elif same and one.dtype != other.dtype == torch.promote_types(one.dtype, other.dtype) and one.is_floating_point():
                wider[self.inputs[position]] = str(other.dtype)
            elif one.dtype != other.dtype or not same:
                what = f"from {list(one.shape)} {one.dtype} to {list(other.shape)} {other.dtype}"
                raise CaptureError(f"What the loop carries changes in a step, {what}.", where="loops")
        if wider or alike:
            raise CarryChanges(Carry(wider, alike))

    def whole_file(self, step: str, outside: Mapping[str, str], *, strict: bool, shapes: Mapping[str, list[int]]) -> str:
        """The file for the whole problem, from those for one step and for what is ``outside`` of the loop; other methods stay.

        ``shapes``: of what goes from one step to the next.

        Raises CaptureError where one of those cannot stay: it needs modules of the problem's own, or leaves work to torch and
        that is not wanted (``strict``).
        """
        kept = {name: method for name, method in self.methods.items() if name not in outside}
        for name, method in kept.items():
            if not method.can_stay or (strict and (method.layers or name in self.outside)):
                raise CaptureError(f"{name}, which is outside of the loop, cannot be left to torch.", where="loops")
        source = renamed(step, STEP)
        for name, part in outside.items():
            source = merged(source, part, name)
        methods = "\n\n".join(textwrap.indent(method.text, "    ") for method in kept.values())
        needed = [text for method in kept.values() for text in method.needed or ()]
        whole = ensured(f"{source.rstrip()}\n\n{methods}\n", needed)
        joined = with_loop_inside(with_one_kernel(whole))
        found = joined if INSIDE in joined else with_loop_inside(whole)
        found = found if INSIDE in found else with_loop_inside(with_groups(whole))
        for text in () if INSIDE in found else (with_one_kernel(whole), whole):
            found = found if ROWS in found else with_rows_inside(text, shapes)
        if INSIDE in found or ROWS in found:
            return found
        return launched_again(checked_once(with_contiguous_steps(whole)))


@dataclass(frozen=True)
class Method:
    """A method of the module that is kept as it was written."""

    text: str
    needed: tuple[str, ...] | None
    """Statements that it needs at the top of the file; None where it needs more than imports and constants."""
    layers: frozenset[str]
    """Attributes of the module that it calls."""
    known: bool
    """Whether those are torch's own layers alone."""

    @property
    def can_stay(self) -> bool:
        """Whether the method can stay in the file as it is."""
        return self.known and self.needed is not None


def loop_step(
    problem: Problem, turned: Collection[str] = (), carry: Carry | None = None, *, fission: bool = True
) -> LoopStep | None:  # fmt: skip
    """The step of the loop in the problem's forward; None where there is no loop over a dimension, or it is not simple enough.

    ``fission``: products that need nothing of other steps are computed outside of the loop.

    Matrices of the names ``turned`` go from step to step transposed: sums over their rows are then along memory.
    """
    try:
        tree = syntax_tree(problem.source)
    except SyntaxError:
        return None
    model = _model(tree)
    forward = next((s for s in model.body if isinstance(s, ast.FunctionDef) and s.name == "forward"), None) if model else None
    if model is None or forward is None or forward.args.vararg or forward.args.kwarg or forward.decorator_list:
        return None
    statements = forward.body[1:] if ast.get_docstring(forward) is not None else list(forward.body)
    found = [i for i, s in enumerate(statements) if isinstance(s, ast.For)]
    if not found or any(_attribute(node) in _TAKEN for node in ast.walk(model)):
        return None
    if {a.arg for a in forward.args.kwonlyargs} & set().union(*(names(s) for s in statements if not refuses(s))):
        return None
    loop = statements[found[0]]
    assert isinstance(loop, ast.For)
    if kept_and_changed(statements[: found[0] + 1], statements[found[0] + 1 :]):
        return None
    given = [a.arg for a in forward.args.args[1:]]
    layers = functools.cache(lambda: layers_of(problem))
    before, loop, after = with_numbers_written_out(statements[: found[0]], loop, statements[found[0] + 1 :], layers)
    before, loop, after = with_one_form(before, loop, after)
    before, loop, after = with_fission(before, loop, after, layers) if fission else (before, loop, after)
    before = with_products_ahead(before, loop, layers)
    before, loop, after = with_versions(given, before, loop, after)
    before = [*before, *_as_carried(carry or Carry(), loop)]
    if turned:
        # a product with 1 is no view: the kernel that sums over the new matrix stores it too, already turned
        forms = "{0}.mT", "{0}.mT.contiguous()", "torch.mul({0}.mT, 1.0).contiguous()"
        turn, lay, store = (syntax_tree("\n".join(f"{name} = {form.format(name)}" for name in turned)).body for form in forms)
        before, loop.body, after = [*before, *lay], [*turn, *loop.body, *store], [*turn, *after]
    plain, many = Outliner(given, before, loop, after), counts_many(loop, layers)
    for around in (split(given, before, loop, after, plain.sizes, plain.empty), BeforeAfter(before, after)):
        outlined = Outliner(given, around.before, loop, around.after, many=many).done()
        if outlined is not None and not any(isinstance(s, ast.For) for s in around.after):
            return _loop_step(problem, tree, model, forward, around, before, outlined)
    return None


def _as_carried(carry: Carry, loop: ast.For) -> list[ast.stmt]:
    """What is done with tensors before the loop; checks of their sizes end its body."""
    lines = [f"_{name}_given = {name}" for name in carry.alike]
    checks = [f"torch._check({n}.shape[{dim}] == _{n}_given.shape[{dim}])" for n, dims in carry.alike.items() for dim in dims]
    loop.body = [*syntax_tree("\n".join(lines)).body, *loop.body, *syntax_tree("\n".join(checks)).body]
    return syntax_tree("\n".join(f"{name} = {name}.to({dtype})" for name, dtype in carry.wider.items())).body


def _lengths(tensor: torch.Tensor) -> list[int]:
    """A fake tensor's sizes at the problem's own."""
    return [getattr(getattr(n, "node", None), "hint", n) for n in tensor.shape]


def _attribute(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr if ast.unparse(node.value) == "self" else ""
    return node.name if isinstance(node, ast.FunctionDef) else ""


def _loop_step(
    problem: Problem, tree: ast.Module, model: ast.ClassDef, forward: ast.FunctionDef, parts: BeforeAfter, before: list[ast.stmt],
    outlined: OutlinedLoop,
) -> LoopStep | None:  # fmt: skip
    new = syntax_tree("def forward(self): pass").body[0]
    assert isinstance(new, ast.FunctionDef)
    new.args, new.body = forward.args, [*parts.before, outlined.loop, *parts.after]
    own = {s.name: s for s in model.body if isinstance(s, ast.FunctionDef)} | parts.methods
    torchs = _of_torch(model)
    methods = {}
    for method in (*_helpers(new, own), new):
        layers = frozenset(_called(method) - own.keys() - {STEP})
        text = ast.unparse(ast.fix_missing_locations(method))
        methods[method.name] = Method(text, _needed(tree, method), layers, layers <= torchs)
    if not all(method.can_stay for name, method in methods.items() if name not in parts.methods):
        return None
    first = syntax_tree(f"{ast.unparse(outlined.loop.target)} = {first_of(outlined.loop.iter)}").body
    handed = syntax_tree(f"return [{', '.join(f'({v}).contiguous()' for v in outlined.values)}]").body
    step = _part(problem, model, forward, outlined.inputs, outlined.body, [*before, *first, *handed])
    others = {
        name: _part(problem, model, forward, [a.arg for a in method.args.args[1:]], method.body, parts.entries[name])
        for name, method in parts.methods.items()
    }
    return LoopStep(step, others, methods, tuple(outlined.inputs), outlined.carried)


def _part(
    problem: Problem, model: ast.ClassDef, forward: ast.FunctionDef, inputs: list[str], body: list[ast.stmt], entry: list[ast.stmt]
) -> Problem:  # fmt: skip
    """The problem of computing ``body`` of ``inputs``, which the statements ``entry`` return, given the forward's own arguments."""
    known = {n.name for n in ast.walk(syntax_tree(problem.source)) if isinstance(n, ast.FunctionDef)}
    entry_name, entered = (next(f"{n}{i or ''}" for i in range(len(known) + 1) if f"{n}{i or ''}" not in known) for n in (_ENTRY, _ENTERED))
    made = syntax_tree(f"def forward({', '.join(['self', *inputs])}): pass\ndef {entry_name}(self): pass").body
    made[0].body, made[1].body, made[1].args = body, entry, forward.args  # type: ignore[attr-defined]
    tensors = {a.arg for a in forward.args.args[1:]}
    made = [_Lengths(tensors).visit(s) for s in syntax_tree("\n".join(ast.unparse(ast.fix_missing_locations(s)) for s in made)).body]
    part = syntax_tree(problem.source)
    for node in part.body:
        if isinstance(node, ast.ClassDef) and node.name == model.name:
            node.body = [s for s in node.body if not (isinstance(s, ast.FunctionDef) and s.name == "forward")] + made
        elif isinstance(node, ast.FunctionDef) and node.name == "get_inputs":
            for inner in ast.walk(node):
                if isinstance(inner, ast.Return) and inner.value is not None:
                    inner.value = ast.Call(ast.Name(entered, ast.Load()), [inner.value], [])
    source = ast.unparse(ast.fix_missing_locations(part)) + "\n" + _SOURCE.format(entry=entry_name, entered=entered)
    source += "" if LENGTHENED in known else LONGER
    return msgspec.structs.replace(problem, source=source)


class _Lengths(ast.NodeTransformer):
    """``len(x)`` of the forward's arguments as ``x.shape[0]``, which may be a symbol."""

    def __init__(self, tensors: set[str]) -> None:
        self.tensors = tensors

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        of = node.args[0] if isinstance(node.func, ast.Name) and node.func.id == "len" and node.args else None
        if isinstance(of, ast.Name) and of.id in self.tensors:
            return syntax_tree(f"{of.id}.shape[0]", mode="eval").body
        return node


def _model(tree: ast.Module) -> ast.ClassDef | None:
    """The class Model, or the one that is called so by ``Model = Net``."""
    name = "Model"
    for statement in reversed(tree.body):
        if isinstance(statement, ast.Assign) and name in bound_names(statement) and isinstance(statement.value, ast.Name):
            name = statement.value.id
        elif isinstance(statement, ast.ClassDef) and statement.name == name:
            return statement
    return None


def _needed(tree: ast.Module, method: ast.FunctionDef) -> tuple[str, ...] | None:
    """Imports and constants for a method that stays as it is; None where it needs more, such as functions of the problem's own."""
    text = []
    free = names(method) - {*stored(method), *(a.arg for a in method.args.args)}
    for statement in tree.body:
        if not free & set(bound_names(statement)):
            continue
        if not isinstance(statement, ast.Import | ast.ImportFrom | ast.Assign):
            return None
        if isinstance(statement, ast.Assign) and not isinstance(statement.value, ast.Constant):
            return None
        text.append(ast.unparse(statement))
    return tuple(text)


def _called(method: ast.FunctionDef) -> set[str]:
    """Attributes of the module that a method calls."""
    calls = [n.func for n in ast.walk(method) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
    return {call.attr for call in calls if _root(call) == "self"}


def _helpers(forward: ast.FunctionDef, methods: dict[str, ast.FunctionDef]) -> list[ast.FunctionDef]:
    """The module's own methods that the new forward calls, and those that they call."""
    found: dict[str, ast.FunctionDef] = {}
    todo = [forward]
    while todo:
        for name in sorted(_called(todo.pop()) & methods.keys() - found.keys()):
            found[name] = methods[name]
            todo.append(methods[name])
    return list(found.values())


def _of_torch(model: ast.ClassDef) -> set[str]:
    """Attributes that the constructor makes of torch's own layers alone."""
    found = set()
    for node in ast.walk(model):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute) and isinstance(node.value, ast.Call):
            calls = [ast.unparse(n.func) for n in ast.walk(node.value) if isinstance(n, ast.Call)]
            if all(call.startswith(("nn.", "torch.nn.")) for call in calls):
                found.add(node.targets[0].attr)
    return found


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
