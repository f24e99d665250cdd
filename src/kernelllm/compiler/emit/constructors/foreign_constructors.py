"""Constructors that use other libraries than torch: statements that the file does not need are dropped.

A written file imports torch and triton only. ``self.split = Rearrange(...)`` holds no parameters and served the old forward alone,
so it goes; ``np.sqrt(width)`` is ``math.sqrt(width)``. A constructor that needs more is replaced (:mod:`state_holders`).
"""

from __future__ import annotations

import ast
import builtins
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from kernelllm.compiler.emit.constructors import model_class, state_holders
from kernelllm.compiler.emit.constructors.model_class import KeptParts, bound_names
from kernelllm.core.errors import CaptureError

if TYPE_CHECKING:
    from kernelllm.compiler.capture.captured import Captured
    from kernelllm.core.types import Problem

log = logging.getLogger(__name__)

_MATH = ("sqrt", "exp", "log", "log2", "log10", "ceil", "floor", "prod", "pi", "sin", "cos", "tan", "tanh", "fabs")
"""Names that numpy and ``math`` share, with one meaning for single numbers."""

_ARRAYS = frozenset({"numpy", "from_numpy", "apply_", "map_", "map2_", "untyped_storage"})
"""Methods and functions that lead out of torch: the judge takes no file that has them."""
_FROM_NUMBERS = frozenset({"tensor", "as_tensor", "asarray", "Tensor", "FloatTensor", "new_tensor", "fill_"})
"""Functions that make tensors of numbers: beside ``tolist`` they are a way out of torch and back."""


def kept_parts(problem: Problem, captured: Captured) -> KeptParts:
    """The reference's constructor where the file can have it, else one that is made from names and shapes.

    Raises CaptureError where neither is possible.
    """
    forward = None
    try:
        kept = model_class.kept_parts(problem.source)
        forward = kept.forward
        _without_libraries(kept, problem)
    except CaptureError as error:
        log.info("%s: %s", problem.name, error.what)
        kept = state_holders.from_shapes(problem, captured)
        kept.forward = forward or kept.forward
    _plain_signature(kept)
    return kept


def _plain_signature(kept: KeptParts) -> None:
    """The forward's signature in names that the file has: other defaults become None, other annotations go."""
    known = kept.names | set(dir(builtins)) | {"torch"}
    arguments = kept.forward.args

    def has(node: ast.AST) -> bool:
        return all(n.id in known for n in ast.walk(node) if isinstance(n, ast.Name))

    arguments.defaults = [d if has(d) else ast.Constant(None) for d in arguments.defaults]
    arguments.kw_defaults = [d if d is None or has(d) else ast.Constant(None) for d in arguments.kw_defaults]
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    for argument in every:
        if argument is not None and argument.annotation is not None and not has(argument.annotation):
            argument.annotation = None


def _without_libraries(kept: KeptParts, problem: Problem) -> None:
    """Rid the kept parts of libraries other than torch and the standard library, in place. Raises CaptureError where it cannot."""
    attributes = {n.attr for d in (*kept.definitions, kept.model) for n in ast.walk(d) if isinstance(n, ast.Attribute)}
    if attributes & _ARRAYS or ("tolist" in attributes and attributes & _FROM_NUMBERS):
        raise CaptureError("The constructor takes values out of torch and back.", where=problem.path or problem.name)
    _without_looked_up_names(kept, problem)
    if not kept.foreign:
        return
    imports = [s for s in kept.imports if _is_foreign(s, kept.foreign)]
    names = {n for s in imports for n in bound_names(s)}
    numpy = {n for s in imports if isinstance(s, ast.Import) for n in bound_names(s) if ast.unparse(s).startswith("import numpy")}
    classes = [s for s in (*kept.definitions, kept.model) if isinstance(s, ast.ClassDef)]
    state = _attributes_with_state(problem)
    for definition in (*kept.definitions, kept.model):
        _Mathematics(numpy).visit(definition)
    for function in (f for c in classes for f in c.body if isinstance(f, ast.FunctionDef)):
        function.body = [s for s in function.body if not _needless(s, names, state, classes)] or [ast.Pass()]
    left = next((s for d in (*kept.definitions, kept.model) for s in _statements(d) if _mentions(s, names)), None)
    if left is not None:
        libraries = ", ".join(sorted(kept.foreign))
        raise CaptureError(
            f"The constructor needs {libraries}, which a standalone file may not import: {ast.unparse(left)[:160]}",
            where=problem.path or problem.name,
            fix="Write this line with torch or the standard library.",
        )
    kept.imports = [s for s in kept.imports if s not in imports]
    known = any("math" in bound_names(s) for s in kept.imports)
    if not known and any(_mentions(d, {"math"}) for d in (*kept.definitions, kept.model)):
        kept.imports.insert(0, ast.Import([ast.alias("math")]))
    kept.foreign = []


def _without_looked_up_names(kept: KeptParts, problem: Problem) -> None:
    """Rid the kept parts of ``self.act = getattr(F, name)``, where the name is known at run time alone: the judge takes no file that
    has it. Raises CaptureError where it is needed."""
    modules = {n for s in kept.imports for n in bound_names(s)}
    parts = (*kept.definitions, kept.model)
    classes = [s for s in parts if isinstance(s, ast.ClassDef)]
    if not any(_looks_up(s, modules) for s in parts):
        return
    state = _attributes_with_state(problem)
    for function in (f for c in classes for f in c.body if isinstance(f, ast.FunctionDef)):
        function.body = [
            s for s in function.body if not (_looks_up(s, modules) and _needless(s, {"getattr"}, state, classes))
        ] or [ast.Pass()]
    left = next((s for d in parts for s in _statements(d) if _looks_up(s, modules)), None)
    if left is not None:
        raise CaptureError(f"The constructor looks a name up in a module: {ast.unparse(left)[:160]}", where=problem.path or problem.name)


def _looks_up(node: ast.AST, modules: set[str]) -> bool:
    """Whether ``getattr`` reads a name that the text does not tell off a module."""
    for call in ast.walk(node):
        match call:
            case ast.Call(func=ast.Name(id="getattr"), args=[owner, name, *_]) if not isinstance(name, ast.Constant):
                if _mentions(owner, modules):
                    return True
    return False


def _is_foreign(statement: ast.stmt, foreign: list[str]) -> bool:
    if isinstance(statement, ast.ImportFrom):
        return "." * statement.level + (statement.module or "") in foreign
    return isinstance(statement, ast.Import) and any(a.name in foreign for a in statement.names)


def _mentions(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(node))


def _statements(definition: ast.stmt) -> Iterator[ast.stmt]:
    """The innermost statements of a definition, for an error to quote."""
    inner = [s for s in ast.iter_child_nodes(definition) if isinstance(s, ast.stmt)]
    if not inner:
        yield definition
    for statement in inner:
        yield from _statements(statement)


def _attributes_with_state(problem: Problem) -> set[str]:
    """Attributes of modules that are, or hold, parameters, buffers or other tensors."""
    from kernelllm.compiler.capture.fake_module import build

    found: set[str] = set()
    for module in build(problem, set()).model.modules():
        found |= {n for n, child in module.named_children() if any(True for _ in (*child.parameters(), *child.buffers()))}
        found |= {n for n, _ in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))}
        found |= {n for n, value in vars(module).items() if isinstance(value, torch.Tensor)}
    return found


def _needless(statement: ast.stmt, names: set[str], state: set[str], classes: list[ast.ClassDef]) -> bool:
    """Whether the statement sets, with the help of another library, an attribute without state that nothing else here reads."""
    if not (isinstance(statement, ast.Assign) and len(statement.targets) == 1 and _mentions(statement.value, names)):
        return False
    target = statement.targets[0]
    if not (isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self"):
        return False
    own = set(ast.walk(statement))
    reads = [n for c in classes for n in ast.walk(c) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load) and n not in own]
    return target.attr not in state and not any(n.attr == target.attr for n in reads)


class _Mathematics(ast.NodeTransformer):
    """``np.sqrt`` and the like as ``math.sqrt``."""

    def __init__(self, numpy: set[str]) -> None:
        self.numpy = numpy

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id in self.numpy and node.attr in _MATH:
            return ast.copy_location(ast.Attribute(ast.Name("math", ast.Load()), node.attr, node.ctx), node)
        return node
