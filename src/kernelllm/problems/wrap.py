"""Any ``nn.Module`` class of a file, with inputs described on the command line, becomes a problem in KernelBench's format."""

from __future__ import annotations

import ast
import difflib
import re
from dataclasses import dataclass

from kernelllm.core.errors import ProblemError, UsageError
from kernelllm.core.text import syntax_tree

FLOATS = ("float32", "float16", "bfloat16", "float64")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
DTYPES = (*FLOATS, *INTEGERS, "bool")


DRAW = "_draw_inputs"
"""What get_inputs of the file is called where it is wrapped."""
_BY_NAME = '''

def get_inputs():
    value = {draw}()
    pair = isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], (list, tuple)) and isinstance(value[1], dict)
    args, kwargs = value if pair else ((), value) if isinstance(value, dict) else (value, {{}})
    if not kwargs:
        return list(args) if isinstance(args, (list, tuple)) else [args]
    import inspect

    forward = inspect.signature(Model.forward)
    bound = forward.bind(None, *args, **kwargs)
    last = max(i for i, name in enumerate(forward.parameters) if name in bound.arguments)
    bound.apply_defaults()
    if bound.kwargs:
        raise TypeError(f"forward takes {{', '.join(bound.kwargs)}} by keyword alone")
    return list(bound.args)[1 : last + 1]
'''
"""get_inputs of a callable that returns a tensor, a list or tuple of arguments, a dictionary of keyword arguments, or (args, kwargs)."""


@dataclass(frozen=True)
class Arguments:
    """What the command line says of a class: a callable for its inputs or their shapes, their dtype, its constructor's arguments."""

    inputs: str | None = None
    shapes: tuple[str, ...] = ()
    dtype: str = "float32"
    init: str | None = None


def wrapped(source: str, tree: ast.Module, class_name: str, arguments: Arguments, where: str, *, imported: bool = False) -> str:
    """``source`` with ``Model``, ``get_inputs`` and ``get_init_inputs`` added for the class.

    ``imported``: ``source`` imports the class from the file of ``tree`` and holds none of its other names.
    Raises UsageError for a class or callable that is not there or an argument that does not parse.
    """
    bound = bound_names(tree)
    if bound is not None and class_name not in bound:
        known = classes(tree)
        near = difflib.get_close_matches(class_name, known, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        what = f"The file defines no class {class_name}.{hint}"
        raise UsageError(what, where=where, fix=f"It defines: {', '.join(known) or 'no class'}.")
    parts = [source.rstrip("\n"), ""]
    taken = bound or frozenset()
    if class_name != "Model":
        if "Model" in taken and not imported and _is_needed("Model", tree):
            raise ProblemError(
                f"The file uses a class Model beside {class_name}, and the problem's format needs that name for {class_name}.",
                where=where,
                fix=f"Rename Model in the file, name a part of it (--submodule), or move {class_name} to a file of its own.",
            )
        parts += ["", f"Model = {class_name}"]
    parts += _inputs(arguments, taken, bound is None, where)
    if arguments.init is not None:
        parts += ["", "", "def get_init_inputs():", f"    return {_call_arguments(arguments.init)}"]
    elif "get_init_inputs" not in taken:
        parts += ["", "", "def get_init_inputs():", "    return []"]
    return "\n".join(parts) + "\n"


def _is_needed(name: str, tree: ast.Module) -> bool:
    """Whether functions or classes ask for a name once the file was read: the class of that name itself aside."""
    later = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
    inside = [n for top in tree.body if getattr(top, "name", "") != name for n in ast.walk(top) if isinstance(n, later)]
    return any(isinstance(n, ast.Name) and n.id == name for one in inside for n in ast.walk(one))


def _inputs(arguments: Arguments, taken: frozenset[str], anything: bool, where: str) -> list[str]:
    """Lines that define get_inputs."""
    if arguments.inputs and arguments.shapes:
        raise UsageError("--inputs and --shape exclude each other.", where=where, fix="Give one of them.")
    if arguments.inputs:
        name = arguments.inputs
        if not anything and name not in taken:
            near = difflib.get_close_matches(name, sorted(taken), n=1)
            hint = f"Did you mean {near[0]}?" if near else "Define it: a function without arguments that returns the inputs."
            raise UsageError(f"The file defines no {name}, which --inputs names.", where=where, fix=hint)
        if not name.isidentifier():
            raise UsageError(f"--inputs takes the name of a function in the file, not {name!r}.", where=where)
        renamed = [*(["", "", f"{DRAW} = {name}"] if name == "get_inputs" else [])]
        return [*renamed, *_BY_NAME.format(draw=DRAW if name == "get_inputs" else name).rstrip().split("\n")]
    if arguments.shapes:
        lines = [f"        {tensor_call(shape, arguments.dtype, where)}," for shape in arguments.shapes]
        return ["", "", "def get_inputs():", "    import torch", "", "    return [", *lines, "    ]"]
    if anything or "get_inputs" in taken:
        return []
    fix = "Add --shape 8,128,768 (once for each input), or --inputs NAME."
    raise UsageError("Nothing says what the inputs of the class look like.", where=where, fix=fix)


def tensor_call(shape: str, dtype: str, where: str) -> str:
    """The call that draws one input from ``8,128``, ``8,128:int64`` or ``8,128:int64:50`` (whole numbers below 50, else below 100)."""
    dims, _, own = shape.partition(":")
    own, _, high = own.partition(":")
    dtype = (own or dtype).removeprefix("torch.").strip()
    if dtype not in DTYPES:
        near = difflib.get_close_matches(dtype, DTYPES, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise UsageError(f"Unknown dtype {dtype!r}.{hint}", where=where, fix=f"Known: {', '.join(DTYPES)}.")
    text = dims.strip().strip("()[]").replace("x", ",")
    parts = [p.strip() for p in text.removesuffix(",").split(",")] if text else []
    if not all(re.fullmatch(r"\d+", p) for p in parts) or (not parts and dims.strip() not in ("()", "")):
        what = f"--shape takes whole numbers separated by commas, not {shape!r}."
        raise UsageError(what, where=where, fix="For example: --shape 8,128,768.")
    if any(int(p) == 0 for p in parts):
        raise UsageError(f"--shape {shape} has a dimension of 0.", where=where, fix="Give every dimension a size of at least 1.")
    size = f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
    if high and (not high.isdigit() or int(high) == 0 or dtype not in INTEGERS):
        raise UsageError(f"--shape {shape} ends in no bound for whole numbers.", where=where, fix="For example: --shape 8,128:int64:50.")
    if dtype in FLOATS:
        return f"torch.randn({size}, dtype=torch.{dtype})"
    if dtype == "bool":
        return f"torch.rand({size}) < 0.5"
    return f"torch.randint(0, {high or 100}, {size}, dtype=torch.{dtype})"


def _call_arguments(text: str) -> str:
    """``64, heads=4`` as the pair ``[[64], {'heads': 4}]``. Raises UsageError where it is not a list of literal arguments."""
    try:
        call = syntax_tree(f"f({text})", mode="eval").body
        assert isinstance(call, ast.Call)
        args = [ast.literal_eval(a) for a in call.args]
        kwargs = {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg is not None}
    except (SyntaxError, ValueError, AssertionError) as error:
        what = f"--init takes the constructor's arguments as literals, not {text!r}."
        raise UsageError(what, fix="For example: --init '64, heads=4'.") from error
    return repr([args, kwargs]) if kwargs else repr(args)


def classes(tree: ast.Module) -> list[str]:
    """Names of the classes at module level that have a base class, the likely modules first."""
    found = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    likely = [c.name for c in found if any("Module" in ast.unparse(b) for b in c.bases)]
    return likely + [c.name for c in found if c.name not in likely]


def bound_names(tree: ast.Module) -> frozenset[str] | None:
    """Every name that the module's top level binds (inside ``if``, ``try`` and ``with`` too); None with a star import."""
    names: set[str] = set()
    queue: list[ast.AST] = list(tree.body)
    while queue:
        node = queue.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                if alias.name == "*":
                    return None
                names.add(alias.asname or alias.name.partition(".")[0])
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        queue.extend(ast.iter_child_nodes(node))
    return frozenset(names)
