"""Finds attribute names in whatever form the source has them: ``x.a``, ``case C(a=_)``, ``getattr(x, "a")``, ``"{0.a}"``.

Some names lead from any object into the interpreter (``__globals__``, ``f_back``). They are looked for everywhere but in docstrings,
and a name that is made at run time must not be able to become one of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kernelllm.judge.checks.string_values import Parameter
from kernelllm.judge.checks.syntax import Source

INTERNALS = frozenset((
    "__globals__", "__closure__", "__code__", "__builtins__", "__subclasses__", "__mro__", "__bases__", "__base__", "__getattribute__",
    "__self__", "__func__", "__wrapped__", "__traceback__", "__context__", "__cause__", "__loader__", "__spec__", "__import__",
    "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__defaults__", "__kwdefaults__", "__objclass__", "__thisclass__",
    "__self_class__", "__match_args__", "__instancecheck__", "__subclasshook__", "__prepare__", "__weakref__", "__dict__",
    "__get__", "f_back", "f_globals", "f_locals", "f_builtins", "f_code", "gi_frame", "gi_code", "gi_yieldfrom", "cr_frame", "cr_code",
    "cr_await", "cr_origin", "ag_frame", "ag_code", "ag_await", "tb_frame", "tb_next", "cell_contents", "func_globals", "co_consts",
    "_getframe", "_current_frames", "get_capture_scope", "used_global_vals",
))  # fmt: skip
"""Names that lead from an object to the code, the frames or the modules behind it."""
_ARITHMETIC = (
    "add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow", "lshift", "rshift", "and", "or", "xor", "neg", "pos",
    "abs", "invert", "round", "trunc", "floor", "ceil", "lt", "le", "eq", "ne", "gt", "ge", "int", "float", "complex", "index", "bool",
    "len",
)  # fmt: skip
_HARMLESS = frozenset((
    "__init__", "__new__", "__call__", "__name__", "__qualname__", "__class__", "__doc__", "__version__", "__annotations__", "__module__",
    "__len__", "__iter__", "__next__", "__getitem__", "__setitem__", "__delitem__", "__contains__", "__enter__", "__exit__", "__hash__",
    "__repr__", "__str__", "__format__", "__setattr__", "__delattr__", "__getattr__", "__post_init__", "__init_subclass__",
    "__class_getitem__", "__set_name__", "__file__", "__all__", "__author__", "__main__", "__dataclass_fields__", "__path__", "__package__",
    "__members__", "__slots__", "__missing__", "__reversed__", "__copy__", "__deepcopy__", "__del__", "__set__", "__future__",
    "__torch_function__", "__torch_dispatch__", "__cuda_array_interface__", "__array__", "__array_interface__", "__dlpack__",
    "__dlpack_device__",  # other checks know these
    *(f"__{name}__" for name in _ARITHMETIC), *(f"__r{name}__" for name in _ARITHMETIC), *(f"__i{name}__" for name in _ARITHMETIC),
))  # fmt: skip
_WORD = re.compile(r"\w+")
_PART = re.compile(r"__[a-z]{3,}|[a-z]{3,}__")
_READERS = ("builtins.getattr", "operator.attrgetter", "operator.methodcaller", "inspect.getattr_static")
_OF_OBJECT = ("__getattribute__", "__getattr__")
_TABLES = ("builtins.vars", "builtins.globals", "builtins.locals")
_FIXED_READS = frozenset({"get", "__getitem__"})


def internal(name: str) -> bool:
    """Whether an attribute of this name leads into the interpreter: those known, and whatever Python itself names and is not harmless."""
    return name in INTERNALS or (name.startswith("__") and name.endswith("__") and len(name) > 4 and name not in _HARMLESS)


def internals(source: Source) -> Iterator[tuple[str, int]]:
    """Internal names in the source with their lines, in any syntactic form."""
    texts = source.docstrings
    for node in source.nodes:
        line = getattr(node, "lineno", 0)
        match node:
            case ast.Attribute(attr=name):
                if internal(name) and not (name == "__dict__" and own_object(source, node.value)):
                    yield name, line
            case ast.Name(id=name) | ast.keyword(arg=str(name)):
                if name in INTERNALS:
                    yield name, line
            case ast.FunctionDef(name="__instancecheck__" | "__subclasshook__" | "__prepare__" | "__getattribute__" as name):
                yield name, line
            case ast.MatchClass(kwd_attrs=names) | ast.Global(names=names) | ast.Nonlocal(names=names):
                yield from ((name, line) for name in names if internal(name))
            case ast.alias(name=path, asname=other):
                yield from ((name, line) for name in (*path.split("."), other or "") if name in INTERNALS)
            case ast.Constant(value=str() | bytes() as value) if node not in texts:
                text = value if isinstance(value, str) else value.decode("latin-1")
                yield from ((name, line) for name in _WORD.findall(text) if _names_internal(name))
            case ast.BinOp() | ast.JoinedStr() | ast.Subscript() | ast.Call():
                built = source.text(node) if not isinstance(node, ast.Subscript) or isinstance(node.slice, ast.Slice) else None
                yield from ((name, line) for name in _WORD.findall(built or "") if internal(name))


def _names_internal(word: str) -> bool:
    """Whether a word in a text is an internal name, or a piece of one that is to be put together."""
    if word in INTERNALS:
        return True
    return bool(_PART.fullmatch(word)) and any(name.startswith(word) or name.endswith(word) for name in INTERNALS)


def made_at_run_time(source: Source) -> Iterator[tuple[str, int]]:
    """Attributes taken by a name that the text does not tell and that may become an internal one: what is done, and the line."""
    called = {id(node.func) for node in source.nodes if isinstance(node, ast.Call)}
    for node in source.nodes:
        if isinstance(node, ast.Call):
            for owner, name in _reads(source, node):
                if not safe_name(source, name) and not (owner is not None and source.paths(owner)):
                    yield "Takes an attribute of an object by a name made at run time.", node.lineno
            if source.paths(node.func) & set(_TABLES) and not _fixed_table(source, node):
                yield "Reads a table of all names.", node.lineno
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load) and id(node) not in called:
            if passed := source.paths(node) & {*_READERS, *_TABLES}:
                yield f"Hands on {min(passed).partition('.')[2]}, which reads any attribute.", node.lineno
            elif isinstance(node, ast.Attribute) and node.attr == "__getattr__" and not _of_super(node):
                yield "Hands on __getattr__, which reads any attribute.", node.lineno


def _reads(source: Source, call: ast.Call) -> Iterator[tuple[ast.expr | None, ast.expr]]:
    """Owner (None: any object) and name of each attribute that a call reads by name."""
    paths = source.paths(call.func)
    if paths & {"builtins.getattr", "inspect.getattr_static"}:
        if len(call.args) > 1:
            yield call.args[0], call.args[1]
    elif "operator.attrgetter" in paths:
        yield from ((None, name) for name in call.args)
    elif "operator.methodcaller" in paths:
        yield from ((None, name) for name in call.args[:1])
    elif isinstance(call.func, ast.Attribute) and call.func.attr in _OF_OBJECT and call.args and not _of_super(call.func):
        yield (call.args[0], call.args[1]) if len(call.args) > 1 else (call.func.value, call.args[0])


def _of_super(node: ast.Attribute) -> bool:
    """``super().__getattr__``: an object's own, as modules override it."""
    return isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name) and node.value.func.id == "super"


def safe_name(source: Source, name: ast.expr) -> bool:
    """Whether a name is known, or begins with a text with which no internal name begins (``f"conv{i}"``)."""
    if isinstance(name, ast.Starred):
        return False
    known = source.texts(name)
    if known is not None:
        return not any(internal(part) for text in known for part in text.split("."))
    heads = _heads(source, name)
    return bool(heads) and all(head and not head.startswith("_") and not any(i.startswith(head) for i in INTERNALS) for head in heads)


def _heads(source: Source, name: ast.expr) -> set[str]:
    match name:
        case ast.JoinedStr(values=[first, *_]):
            return source.texts(first.value if isinstance(first, ast.FormattedValue) else first) or set()
        case ast.BinOp(op=ast.Add(), left=left):
            return source.texts(left) or _heads(source, left)
        case ast.BinOp(op=ast.Mod(), left=ast.Constant(value=str(text))) | ast.Call(
            func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")
        ):
            return {re.split(r"[%{]", text)[0]}
    return set()


def own_object(source: Source, node: ast.expr) -> bool:
    """``self`` of a method that is called on objects alone, or an object of a class that the candidate's file defines."""
    if not isinstance(node, ast.Name):
        return False
    known = source.bindings(node) or []
    if len(known) == 1 and isinstance(known[0], Parameter):
        return _is_self(source, known[0])
    built = source.built_by(node)
    return bool(built) and built <= source.classes


def _is_self(source: Source, parameter: Parameter) -> bool:
    function = parameter.function
    owner = source.parents.get(function)
    if not isinstance(owner, ast.ClassDef) or isinstance(function, ast.Lambda) or function.decorator_list or not function.args.args:
        return False
    reads = source.named.get(function.name, ())
    return function.args.args[0].arg == parameter.name and all(isinstance(node, ast.Attribute) and _on_object(node) for node in reads)


def _on_object(node: ast.Attribute) -> bool:
    return _of_super(node) or (isinstance(node.value, ast.Name) and node.value.id == "self")


def _fixed_table(source: Source, call: ast.Call) -> bool:
    """``globals()["name"]``, ``vars(self)`` and the like: the text tells what is read, or it is the candidate's own object."""
    if call.args and own_object(source, call.args[0]):
        return True
    parent = source.parents.get(call)
    key: ast.expr | None = None
    if isinstance(parent, ast.Subscript):
        key = parent.slice
    elif isinstance(parent, ast.Attribute) and parent.attr in _FIXED_READS:
        above = source.parents.get(parent)
        key = above.args[0] if isinstance(above, ast.Call) and above.args else None
    elif isinstance(parent, ast.Compare):
        return True
    known = source.texts(key) if key is not None else None
    return known is not None and not any(internal(text) for text in known)
