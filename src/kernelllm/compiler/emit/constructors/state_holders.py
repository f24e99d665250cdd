"""A ModelNew that is built from names and shapes of parameters, where the reference's constructor cannot be kept.

A written file imports torch and triton only, and the constructor of a package's module needs the package. Parameters and buffers
then sit in nested holders under their original names, so that state dicts fit. Arguments of the constructor are fixed.
"""

from __future__ import annotations

import ast
import inspect
from typing import TYPE_CHECKING, Any

import torch

from kernelllm.compiler.emit.constructors.model_class import KeptParts
from kernelllm.core.text import syntax_tree
from kernelllm.problems import sizes
from kernelllm.problems.graphs.graph_text import HOLDER, ModuleMembers, known_text, path_text, tensor_text
from kernelllm.problems.instance import Instance

if TYPE_CHECKING:
    from kernelllm.compiler.capture.captured import Captured
    from kernelllm.core.types import Problem

SHORT = 256
"""Values of a buffer up to which they are written though a state dict brings them."""


def from_shapes(problem: Problem, captured: Captured) -> KeptParts:
    """What a file needs in place of the reference's constructor. Raises CaptureError for state that cannot be written."""
    instance = Instance(problem)
    model = instance.model(0)
    root = _tree(model, captured)
    statements, parameters = _constructor_arguments(instance)
    ties = [f"self.{path_text(new)} = self.{path_text(first)}" for new, first in _tied(model).items()]
    modes = [f"{_at(path)}.eval()" for path in _evaluated(model) if root.has(path)]
    body = "\n".join("        " + s for s in (*statements, f"super().__init__({root.arguments()})", *ties, *modes))
    if any(name.isdigit() for name in root.children):  # a subclass of nn.Sequential
        body += "\n\n    def __getitem__(self, index):\n        return self.get_submodule(str(index))"
    made = syntax_tree(f"class ModelNew(Holder):\n    def __init__({', '.join(['self', *parameters])}):\n{body}").body[0]
    assert isinstance(made, ast.ClassDef)
    forward = syntax_tree(f"def forward({', '.join(['self', *captured.forward_arguments])}): pass").body[0]
    assert isinstance(forward, ast.FunctionDef)
    return KeptParts(
        imports=syntax_tree("import torch.nn as nn").body,
        definitions=syntax_tree(HOLDER if "unsaved=" in body else _without_unsaved(HOLDER)).body,
        model=made,
        forward=forward,
        fixed={n: v for n, v in sizes.constants(problem).items() if n in sizes.model_constants(problem.source)},
    )


def refuse_unread(definitions: list[ast.stmt]) -> None:
    """Let the class Holder refuse what the original has and kernels do not read (``norm.eps = 1e-3``), once a model is made. In place."""
    holder = next(d for d in definitions if isinstance(d, ast.ClassDef) and d.name == "Holder")
    if not any(isinstance(d, ast.FunctionDef) and d.name == "__setattr__" for d in holder.body):
        holder.body += syntax_tree(_REFUSES).body


_REFUSES = '''
def __setattr__(self, name, value):
    made = type(self.__dict__.get("_modules", {})) is not dict  # it keeps its layers from then on
    if made and not (hasattr(self, name) or name.startswith("_") or isinstance(value, (nn.Module, nn.Parameter))):
        raise NotImplementedError(f"{name}: the kernels hold the value that it had in the original")
    super().__setattr__(name, value)
'''


def _without_unsaved(holder: str) -> str:
    lines = holder.replace(" unsaved=None,", "").split("\n")
    at = next(i for i, line in enumerate(lines) if "(unsaved or" in line)
    return "\n".join(lines[:at] + lines[at + 2 :])


def _tree(model: torch.nn.Module, captured: Captured) -> ModuleMembers:
    root = ModuleMembers()
    saved = set(model.state_dict())
    for path, module in model.named_modules():
        if any(t is not None for t in (*module._parameters.values(), *module._buffers.values())):
            root.at(path.split(".") if path else [])  # in the module's order, which optimizers' state dicts go by
    for name, parameter in model.named_parameters():
        *path, last = name.split(".")
        more = "" if parameter.requires_grad else ", requires_grad=False"
        root.at(path).members[last] = f"nn.Parameter({tensor_text(parameter.detach())}{more})"
    for name in _tied(model):
        root.at(name.split(".")[:-1])
    for name, buffer in model.named_buffers():
        *path, last = name.split(".")
        if name in saved:
            root.at(path).members[last] = known_text(buffer, name) if buffer.numel() <= SHORT else tensor_text(buffer)
        else:
            root.at(path).unsaved[last] = known_text(buffer, name)
    for module in list(captured.modes)[:1]:  # the one that the file asks for its mode
        root.at(module.split(".") if module else [])
    for given in captured.graph_inputs:
        if given.kind == "attribute":
            *path, last = given.name.split(".")
            root.at(path).unsaved[last] = known_text(_attribute_of(model, given.name), given.name)
    for size in captured.sizes:
        if size.sources and size.sources[0].kind == "module":
            *path, last = size.sources[0].name.partition("[")[0].split(".")
            root.at(path).members[last] = repr(_attribute_of(model, ".".join([*path, last])))
    for path, module in model.named_modules():
        if root.has(path) and (text := _layer_text(module)):
            root.at(path.split(".")).layer = text, frozenset(module.state_dict())
    return root


_LAYERS = tuple(
    getattr(torch.nn, name)
    for name in ("Linear", "Embedding", "LayerNorm", "RMSNorm", "GroupNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d",
                 "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d")
)  # fmt: skip


def _layer_text(module: torch.nn.Module) -> str:
    """A call of torch's own layer that makes these very parameters and buffers; "" where there is none."""
    layer = next((c for c in _LAYERS if isinstance(module, c)), None)
    if layer is None:
        return ""
    arguments, parameters = [], inspect.signature(layer).parameters
    for name, parameter in parameters.items():
        value = getattr(module, name, None)
        if name in ("bias", "dtype", "device", "_weight", "_freeze"):
            continue
        value = value[0] if isinstance(value, tuple) and len(set(value)) == 1 and name != "normalized_shape" else value
        value = value[0] if isinstance(value, tuple) and len(value) == 1 else value
        if parameter.default is parameter.empty:
            arguments.append(repr(value))
        elif value != parameter.default:
            arguments.append(f"{name}={value!r}")
    state = dict(module.named_parameters()) | dict(module.named_buffers())
    if getattr(module, "bias", None) is None and "bias" in parameters:
        arguments.append("bias=False")
    if (dtype := next((t.dtype for t in state.values()), torch.float32)) is not torch.float32:
        arguments.append(f"dtype={dtype}")
    text = f"nn.{layer.__name__}({', '.join(arguments)})"
    with torch.device("meta"):
        made = eval(text, {"nn": torch.nn, "torch": torch})
    others = dict(made.named_parameters()) | dict(made.named_buffers())
    alike = [{n: (t.shape, t.dtype, t.requires_grad, type(t)) for n, t in tensors.items()} for tensors in (state, others)]
    return text if alike[0] == alike[1] else ""


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
    return f"self.{path_text(path)}" if path else "self"


def _constructor_arguments(instance: Instance) -> tuple[list[str], list[str]]:
    """Statements that refuse other arguments than the problem's, and the parameters as text."""
    args, kwargs = instance.init_inputs(0)
    signature = inspect.signature(instance.namespace["Model"])
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    texts, checked, by_name = [], {}, False
    for parameter in signature.parameters.values():
        value = bound.arguments[parameter.name]
        checked.update(_checked(parameter.name, value))
        by_name |= parameter.kind is parameter.VAR_POSITIONAL
        if parameter.kind is parameter.KEYWORD_ONLY and not by_name:
            texts.append("*")
            by_name = True
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        default = parameter.default if _is_literal(parameter.default) else None
        texts.append(f"{stars}{parameter.name}" + ("" if parameter.default is parameter.empty else f"={default!r}"))
    if not checked:
        return [], texts
    names, values = (f"({', '.join(parts)}{',' * (len(parts) == 1)})" for parts in (list(checked), [repr(v) for v in checked.values()]))
    words = ", ".join(f"{n}={v!r}" for n, v in checked.items())
    message = f"This file was written for {words} alone."
    return [f"if {names} != {values}:", f"    raise ValueError({message!r})"], texts


def _checked(name: str, value: Any) -> dict[str, Any]:
    """What an argument of the constructor must be, by expression: the argument itself, or the attributes of an object of settings."""
    if _is_literal(value):
        return {name: value}
    if isinstance(value, dict):
        return {name: value} if all(map(_is_literal, value.values())) else {}
    known = {} if isinstance(value, type | torch.nn.Module | torch.Tensor) else getattr(value, "__dict__", {})
    return {f"{name}.{n}": v for n, v in known.items() if n.isidentifier() and not n.startswith("_") and _is_literal(v)}


def _is_literal(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_literal(v) for v in value)
    return value is None or type(value) in (bool, int, float, str)
