"""A ModelNew that is made from names and shapes, where the reference's constructor cannot be kept.

A written file imports torch and triton only, and the constructor of a package's module needs the package. Parameters and buffers
then sit in nested holders under their original names, so that state dicts fit. Arguments of the constructor are fixed.
"""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from kernelllm.compiler.emit.model_class import KeptParts
from kernelllm.core.errors import CaptureError
from kernelllm.problems import sizes
from kernelllm.problems.instance import Instance

if TYPE_CHECKING:
    from kernelllm.compiler.capture.captured import Captured
    from kernelllm.core.types import Problem

SHORT = 256
"""Values of a buffer up to which they are written though a state dict brings them."""
LISTED = 10_000
"""Most values that are written one by one."""

_HOLDER = '''
class Holder(nn.Module):
    """Parameters and buffers under their names in the reference; ModelNew.forward does the work."""

    def __init__(self, /, unsaved=None, **members):
        super().__init__()
        for name, value in members.items():
            if isinstance(value, torch.Tensor) and not isinstance(value, nn.Parameter):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)
        for name, value in (unsaved or {}).items():
            self.register_buffer(name, value, persistent=False)
'''


def from_shapes(problem: Problem, captured: Captured) -> KeptParts:
    """What a file needs in place of the reference's constructor. Raises CaptureError for state that cannot be written."""
    instance = Instance(problem)
    model = instance.model(0)
    root = _tree(model, captured)
    statements, parameters = _constructor_arguments(instance)
    ties = [f"self.{_path(new)} = self.{_path(first)}" for new, first in _tied(model).items()]
    modes = [f"{_at(path)}.eval()" for path in _evaluated(model) if root.has(path)]
    body = "\n".join("        " + s for s in (*statements, f"super().__init__({root.arguments()})", *ties, *modes))
    made = ast.parse(f"class ModelNew(Holder):\n    def __init__({', '.join(['self', *parameters])}):\n{body}").body[0]
    assert isinstance(made, ast.ClassDef)
    forward = ast.parse(f"def forward({', '.join(['self', *captured.forward_arguments])}): pass").body[0]
    assert isinstance(forward, ast.FunctionDef)
    return KeptParts(
        imports=ast.parse("import torch.nn as nn").body,
        definitions=ast.parse(_HOLDER).body,
        model=made,
        forward=forward,
        fixed={n: v for n, v in sizes.constants(problem).items() if n in sizes.model_constants(problem.source)},
    )


@dataclass
class _Holder:
    """One module: the text of each member by name."""

    members: dict[str, str] = field(default_factory=dict)
    unsaved: dict[str, str] = field(default_factory=dict)
    children: dict[str, _Holder] = field(default_factory=dict)

    def at(self, path: list[str]) -> _Holder:
        return self.children.setdefault(path[0], _Holder()).at(path[1:]) if path else self

    def has(self, path: str) -> bool:
        first, _, rest = path.partition(".")
        return not path or (first in self.children and self.children[first].has(rest))

    def text(self) -> str:
        """The call that makes it."""
        names = [*self.children, *self.members, *self.unsaved]
        if not names or not all(n.isdigit() for n in names):
            return f"Holder({self.arguments()})"
        kind, parts = ("ModuleList", {n: c.text() for n, c in self.children.items()})
        if self.members and not (self.children or self.unsaved):
            kind, parts = "ParameterList", self.members
        items = [parts.get(str(i), "nn.Identity()") for i in range(max(map(int, names)) + 1)]
        if len(items) > 1 and len(set(items)) == 1:
            return f"nn.{kind}([{items[0]} for _ in range({len(items)})])"
        return f"nn.{kind}([{', '.join(items)}])"

    def arguments(self) -> str:
        parts = {**self.members, **{n: c.text() for n, c in self.children.items()}}
        named = [f"{n}={t}" for n, t in parts.items() if n.isidentifier() and n != "unsaved"]
        odd = [f"{n!r}: {t}" for n, t in parts.items() if not n.isidentifier()]
        unsaved = [f"{n!r}: {t}" for n, t in self.unsaved.items()]
        first = [f"unsaved={{{', '.join(unsaved)}}}"] if unsaved else []
        last = [f"**{{{', '.join(odd)}}}"] if odd else []
        return ", ".join([*first, *named, *last])


def _tree(model: torch.nn.Module, captured: Captured) -> _Holder:
    root = _Holder()
    saved = set(model.state_dict())
    for name, parameter in model.named_parameters():
        *path, last = name.split(".")
        more = "" if parameter.requires_grad else ", requires_grad=False"
        root.at(path).members[last] = f"nn.Parameter({_tensor(parameter.detach())}{more})"
    for name in _tied(model):
        root.at(name.split(".")[:-1])
    for name, buffer in model.named_buffers():
        *path, last = name.split(".")
        if name in saved:
            root.at(path).members[last] = _known(buffer, name) if buffer.numel() <= SHORT else _tensor(buffer)
        else:
            root.at(path).unsaved[last] = _known(buffer, name)
    for module in captured.modes:
        root.at(module.split(".") if module else [])
    for given in captured.graph_inputs:
        if given.kind == "attribute":
            *path, last = given.name.split(".")
            root.at(path).unsaved[last] = _known(_attribute_of(model, given.name), given.name)
    for size in captured.sizes:
        if size.sources and size.sources[0].kind == "module":
            *path, last = size.sources[0].name.partition("[")[0].split(".")
            root.at(path).members[last] = repr(_attribute_of(model, ".".join([*path, last])))
    return root


def _attribute_of(model: torch.nn.Module, name: str) -> Any:
    owner, _, last = name.rpartition(".")
    return getattr(model.get_submodule(owner), last)


def _tied(model: torch.nn.Module) -> dict[str, str]:
    """Names of parameters that are another one under a second name, to that one's name."""
    first = {id(p): n for n, p in model.named_parameters()}
    return {n: first[id(p)] for n, p in model.named_parameters(remove_duplicate=False) if first[id(p)] != n}


def _evaluated(model: torch.nn.Module) -> list[str]:
    """Paths of the outermost modules that are in evaluation mode."""
    found: list[str] = []
    for path, module in model.named_modules():
        if not module.training and not any(not f or path.startswith(f"{f}.") for f in found):
            found.append(path)
    return found


def _at(path: str) -> str:
    return f"self.{_path(path)}" if path else "self"


def _path(name: str) -> str:
    parts = name.split(".")
    return "".join(f"[{p}]" if p.isdigit() else f".{p}" for p in parts).removeprefix(".")


def _tensor(value: torch.Tensor) -> str:
    """An expression for a tensor that a state dict brings: of its shape, and of its value where that is one plain rule."""
    return _plain(value) or f"torch.zeros{_shape(value)}"


def _known(value: torch.Tensor, name: str) -> str:
    """An expression for a tensor that no state dict brings."""
    text = _plain(value) or (_listed(value) if value.numel() <= LISTED else "")
    if not text:
        raise CaptureError(
            f"The buffer {name} has {value.numel()} values that no state dict brings and that are too many to be written into a file.",
            where="emit", fix="Register it as a persistent buffer.",
        )
    return text


def _shape(value: torch.Tensor) -> str:
    kind = "" if value.dtype is torch.float32 else f"dtype={value.dtype}"
    return f"({', '.join([*(map(str, value.shape) if value.dim() else ['()']), *([kind] if kind else [])])})"


def _plain(value: torch.Tensor) -> str:
    """Numbers that follow a simple rule; "" for others."""
    flat = value.reshape(-1)
    if not len(flat) or value.is_complex():
        return "" if len(flat) else f"torch.zeros{_shape(value)}"
    if bool((flat == flat[0]).all()):
        number = flat[0].item()
        if number in (0, 1):
            return f"torch.{'ones' if number else 'zeros'}{_shape(value)}"
        return f"torch.full({tuple(value.shape)}, {_number(flat[0])}, dtype={value.dtype})"
    if value.dtype is torch.int64 and torch.equal(flat, torch.arange(len(flat))):
        return f"torch.arange({len(flat)})" + (f".view{tuple(value.shape)}" if value.dim() > 1 else "")
    for dim in range(value.dim()):
        if value.shape[dim] > 1 and bool((value == value.narrow(dim, 0, 1)).all()):
            return f"{_known(value.narrow(dim, 0, 1), '')}.expand{tuple(value.shape)}.contiguous()"
    if value.dim() >= 2 and value.numel() == value.shape[-1] * value.shape[-2]:
        return _triangle(value.reshape(value.shape[-2:])) and f"{_triangle(value.reshape(value.shape[-2:]))}.view{tuple(value.shape)}"
    return ""


def _triangle(value: torch.Tensor) -> str:
    """A mask: one number on and below the diagonal, another above; "" for others."""
    lower, upper = value[-1, 0], value[0, -1]
    below = torch.ones(value.shape, dtype=torch.bool).tril()
    if not torch.equal(value, torch.where(below, lower, upper)):
        return ""
    ones = f"torch.ones{tuple(value.shape)}.tril()"
    if lower == 1 and upper == 0:
        return ones if value.dtype is torch.float32 else f"{ones}.to({value.dtype})"
    return f"torch.where({ones} > 0, {_number(lower)}, {_number(upper)}).to({value.dtype})"


def _number(value: torch.Tensor) -> str:
    """The shortest text that gives the same number again."""
    if not value.is_floating_point():
        return repr(value.item())
    text = f"{value.item():.9g}" if value.dtype is torch.float32 else repr(value.item())
    return f'float("{text}")' if text.lstrip("-") in ("inf", "nan") else text


def _listed(value: torch.Tensor) -> str:
    if value.is_complex():
        return f"torch.view_as_complex({_listed(torch.view_as_real(value))})"
    numbers = ", ".join(_number(v) for v in value.reshape(-1))
    shape = "" if value.dim() == 1 else f".view({', '.join(map(str, value.shape)) or '()'})"
    return f"torch.tensor([{numbers}], dtype={value.dtype}){shape}"


def _constructor_arguments(instance: Instance) -> tuple[list[str], list[str]]:
    """Statements that refuse other arguments than the problem's, and the parameters as text."""
    args, kwargs = instance.init_inputs(0)
    signature = inspect.signature(instance.namespace["Model"])
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    parameters = list(signature.parameters.values())
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        return [], ["*args", "**kwargs"]
    texts, checked, by_name = [], {}, False
    for parameter in parameters:
        value = bound.arguments[parameter.name]
        if _is_literal(value):
            checked[parameter.name] = value
        if parameter.kind is parameter.KEYWORD_ONLY and not by_name:
            texts.append("*")
            by_name = True
        default = parameter.default if _is_literal(parameter.default) else None
        texts.append(parameter.name if parameter.default is parameter.empty else f"{parameter.name}={default!r}")
    if not checked:
        return [], texts
    names, values = (f"({', '.join(parts)}{',' * (len(parts) == 1)})" for parts in (list(checked), [repr(v) for v in checked.values()]))
    words = ", ".join(f"{n}={v!r}" for n, v in checked.items())
    message = f"This file was written for {words} alone."
    return [f"if {names} != {values}:", f"    raise ValueError({message!r})"], texts


def _is_literal(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_literal(v) for v in value)
    return value is None or type(value) in (bool, int, float, str)
