"""Flags outputs that compute only when they are looked at.

Outputs that are no plain tensors are refused by the worker too, see :mod:`kernelllm.judge.transport.trusted_torch`.
"""

from __future__ import annotations

import ast

from kernelllm.backends.base import Backend
from kernelllm.core.types import Finding
from kernelllm.judge.checks.syntax import analyse, uses_of

_BASES = (
    "torch.Tensor", "torch._C.TensorBase", "torch._C._TensorBase", "torch.nn.Parameter", "torch.nn.parameter.Parameter",
    "torch.FloatTensor",
)  # fmt: skip
_CERTAIN = (
    "torch.Tensor._make_subclass", "torch.Tensor._make_wrapper_subclass", "torch.Tensor.as_subclass", "torch.masked.MaskedTensor",
    "torch.lazy", "torch._subclasses", "torch._lazy", "torch.fx.experimental.proxy_tensor",
)  # fmt: skip
_METHODS = {
    "__torch_function__", "__torch_dispatch__", "_make_subclass", "_make_wrapper_subclass", "as_subclass", "__cuda_array_interface__",
}  # fmt: skip


class LazyTensors:
    name = "lazy_tensors"
    describe = "returns a tensor subclass or an object that computes only when it is compared"

    def source(self, tree: ast.Module, backend: Backend) -> list[Finding]:
        """Subclasses of tensors, hooks on their operators, and objects that lie about their class."""
        known = analyse(tree)
        found = uses_of(tree, self.name, *_CERTAIN)
        for node in analyse(tree).nodes:
            if isinstance(node, ast.ClassDef):
                found += self._of_class(node, {path for base in node.bases for path in known.paths(base)})
            elif isinstance(node, ast.Attribute) and _odd(node):
                found.append(Finding(check=self.name, message=f"Uses {node.attr}.", line=node.lineno))
            elif isinstance(node, ast.Call) and len(node.args) == 3 and "builtins.type" in known.paths(node.func):
                bases = node.args[1].elts if isinstance(node.args[1], ast.Tuple) else []
                if any(path in _BASES for base in bases for path in known.paths(base)):
                    found.append(Finding(check=self.name, message="Builds a subclass of torch.Tensor.", line=node.lineno))
        return found

    def _of_class(self, node: ast.ClassDef, bases: set[str]) -> list[Finding]:
        found = []
        if bases & set(_BASES):
            found.append(Finding(check=self.name, message=f"{node.name} is a subclass of torch.Tensor.", line=node.lineno))
        for member in node.body:
            if isinstance(member, ast.FunctionDef) and (member.name in _METHODS or member.name == "__class__"):
                found.append(Finding(check=self.name, message=f"{node.name} defines {member.name}.", line=member.lineno))
        return found


def _odd(node: ast.Attribute) -> bool:
    return node.attr in _METHODS or (node.attr == "__class__" and not isinstance(node.ctx, ast.Load))
