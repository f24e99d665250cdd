"""Files to learn from read a layer's settings off the layer: ``self.conv.stride`` in place of the number that the constructor was given.

Templates take them as arguments. A setting is replaced where the layer has that very value, so the file computes the same; a constructor
refuses other arguments only where some number stayed.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import nn

from kernelllm.compiler.emit import formatting
from kernelllm.core.text import syntax_tree

_CONV: Final = ("stride", "padding", "dilation", "groups")
_TRANSPOSED: Final = ("stride", "padding", "output_padding", "dilation", "groups")
_MAX_POOL: Final = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
_AVG_POOL: Final = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
_FREE: Final = {
    "in_channels", "out_channels", "kernel_size", "bias", "num_features", "num_groups", "num_channels", "normalized_shape", "eps", "affine",
    "elementwise_affine", *_TRANSPOSED, *_MAX_POOL, *_AVG_POOL,
}  # fmt: skip
"""Arguments of layers that a file follows where all settings of the layer are read."""


def read_settings(source: str, module: nn.Module) -> str:
    """The same file with settings read off the layers of ``module``, the module that it was written for; unchanged where there is none."""
    tree = syntax_tree(source)
    model = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "ModelNew"), None)
    methods = {n.name: n for n in model.body if isinstance(n, ast.FunctionDef)} if model else {}
    if model is None or not {"__init__", "forward"} <= methods.keys() or any(ast.unparse(base) == "Holder" for base in model.bases):
        return source  # holders have parameters and buffers, not all layers and settings
    before = ast.unparse(model)
    reader = _SettingsRead(module)
    reader.visit(methods["forward"])
    if ast.unparse(model) == before:
        return source
    kernels = any(isinstance(n, ast.Call) and isinstance(n.func, ast.Subscript) for n in ast.walk(methods["forward"]))
    if not kernels and not reader.left:
        _unguarded(methods["__init__"], reader.read)
    lines = source.splitlines(keepends=True)
    return "".join(lines[: model.lineno - 1]) + formatting.text([ast.fix_missing_locations(model)]) + "\n"


class _SettingsRead(ast.NodeTransformer):
    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.read: set[str] = set()
        """Layers whose settings the forward reads."""
        self.left = False
        """Whether a template kept a setting as a number."""

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        rule = getattr(self, f"_{node.func.id}", None) if isinstance(node.func, ast.Name) else None
        if rule is not None and not rule(node):
            self.left = True
        return node

    def _layer(self, node: ast.expr) -> tuple[str, nn.Module] | None:
        """The layer whose weight, bias, ... an expression is."""
        path = ast.unparse(node)
        if not path.startswith("self.") or "." not in path[5:]:
            return None
        name = path[5:].rpartition(".")[0]
        try:
            return name, self.module.get_submodule(name)
        except AttributeError:
            return None

    def _only(self, kinds: tuple[type[nn.Module], ...]) -> tuple[str, nn.Module] | None:
        found = [(name, layer) for name, layer in self.module.named_modules() if isinstance(layer, kinds)]
        return found[0] if len(found) == 1 else None

    def _conv(self, node: ast.Call) -> bool:
        return self._convolved(node, _CONV)

    def _conv_transpose(self, node: ast.Call) -> bool:
        return self._convolved(node, _TRANSPOSED)

    def _convolved(self, node: ast.Call, names: tuple[str, ...]) -> bool:
        found = self._layer(node.args[1])
        if found is None or not isinstance(found[1], nn.modules.conv._ConvNd):
            return False
        path, layer = found
        values = {name: getattr(layer, name) for name in names}
        given = node.args[3 : 3 + len(names)]
        if not all(_value(a) in (list(values[n]), values[n]) for n, a in zip(names[:-1], given, strict=False) if values[n] is not None):
            return False
        if isinstance(given[-1], ast.Constant) and given[-1].value != layer.groups:
            return False
        if not (isinstance(node.args[2], ast.Constant) and layer.bias is not None):
            node.args[2] = _attribute(path, "bias")
        node.args[3 : 3 + len(names)] = [_attribute(path, name) for name in names]
        self.read.add(path)
        return True

    def _max_pool_with_indices(self, node: ast.Call) -> bool:
        return self._pooled(node, _MAX_POOL, (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d))

    def _avg_pool(self, node: ast.Call) -> bool:
        return self._pooled(node, _AVG_POOL, (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d))

    def _pooled(self, node: ast.Call, names: tuple[str, ...], kinds: tuple[type[nn.Module], ...]) -> bool:
        found = self._only(kinds)
        if found is None or getattr(found[1], "return_indices", False):
            return False
        path, layer = found
        made: list[ast.expr] = []
        for name, given in zip(names, node.args[1:], strict=False):
            value, own = _value(given), getattr(layer, name)
            if isinstance(value, list) and isinstance(own, int) and value == [own] * len(value):
                made.append(ast.BinOp(ast.List([_attribute(path, name)], ast.Load()), ast.Mult(), ast.Constant(len(value))))
            elif value == own or (isinstance(value, list) and isinstance(own, tuple) and value == list(own)):
                made.append(_attribute(path, name))
            else:
                return False
        node.args[1 : 1 + len(made)] = made
        self.read.add(path)
        return True

    def _group_norm(self, node: ast.Call) -> bool:
        return self._normed(node, (nn.GroupNorm,), {1: "num_groups", 2: "weight", 3: "bias", 4: "eps"})

    def _instance_norm(self, node: ast.Call) -> bool:
        return self._normed(node, (nn.modules.instancenorm._InstanceNorm,), {1: "weight", 2: "bias", 3: "eps"})

    def _layer_norm(self, node: ast.Call) -> bool:
        if not self._normed(node, (nn.LayerNorm,), {2: "weight", 3: "bias", 4: "eps"}):
            return False
        path = ast.unparse(node.args[2])[5:].rpartition(".")[0]
        node.args[1] = ast.Call(ast.Name("len", ast.Load()), [_attribute(path, "normalized_shape")], [])
        return True

    def _channel_norm(self, node: ast.Call) -> bool:
        return self._normed(node, (nn.modules.batchnorm._BatchNorm,), {3: "weight", 4: "bias", 5: "eps"})

    def _normed(self, node: ast.Call, kinds: tuple[type[nn.Module], ...], names: Mapping[int, str]) -> bool:
        told = [self._layer(node.args[at]) for at, name in names.items() if name in ("weight", "bias")]
        found = next((one for one in told if one is not None and isinstance(one[1], kinds)), None) or self._only(kinds)
        if found is None:
            return False
        path, layer = found
        for at, name in names.items():
            value, own = node.args[at], getattr(layer, name)
            same = ast.unparse(value) == f"self.{path}.{name}" or (isinstance(value, ast.Constant) and value.value == own)
            if not same or isinstance(own, torch.Tensor) != isinstance(value, ast.Attribute):
                return False
        for at, name in names.items():
            node.args[at] = _attribute(path, name)
        self.read.add(path)
        return True


def _attribute(path: str, name: str) -> ast.expr:
    return syntax_tree(f"self.{path}.{name}", mode="eval").body


def _value(node: ast.expr) -> Any:
    """A literal's value; None for anything else."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def _unguarded(constructor: ast.FunctionDef, read: set[str]) -> None:
    """Without the refusal of arguments that layers are given whose settings are read: the file follows them."""
    uses: dict[str, bool] = {}
    for node in constructor.body:
        if isinstance(node, ast.If):
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        layer = node.value if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) else None
        layer = layer if target is not None and ast.unparse(target)[5:] in read else None
        for name in (n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)):
            uses[name] = uses.get(name, True) and layer is not None and _followed(layer, name)
    kept: list[ast.stmt] = []
    for node in constructor.body:
        if isinstance(node, ast.If) and len(node.body) == 1 and isinstance(node.body[0], ast.Raise):
            names = {n.left.id for n in ast.walk(node.test) if isinstance(n, ast.Compare) and isinstance(n.left, ast.Name)}
            if names and all(uses.get(name, False) for name in names):
                continue
        kept.append(node)
    constructor.body = kept


def _followed(layer: ast.Call, name: str) -> bool:
    """Whether a name is among the arguments by place, or by a keyword that the file follows."""
    keywords = [k for k in layer.keywords if any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(k.value))]
    return all(k.arg in _FREE for k in keywords)
