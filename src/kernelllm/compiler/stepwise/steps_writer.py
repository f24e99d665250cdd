"""The entry point: writes a module's file step by step."""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any, Final

import torch

from kernelllm.compiler.stepwise.forward_walk import Walk, definitions
from kernelllm.compiler.stepwise.step_values import Unsupported
from kernelllm.compiler.stepwise.steps_kernel import StepsKernel
from kernelllm.core.errors import ProblemError
from kernelllm.core.text import syntax_tree
from kernelllm.core.types import Problem
from kernelllm.problems.instance import Instance

_IMPORTS: Final = "import torch\nimport torch.nn as nn\n{functional}import triton\nimport triton.language as tl\n{device}"

_FAILED: Final = (
    ProblemError, SyntaxError, StopIteration, KeyError, ValueError, TypeError, RuntimeError, AttributeError, NotImplementedError,
)  # fmt: skip
"""What a forward on tensors without data may raise, and rules that are given other arguments than they know."""


def written(problem: Problem) -> str:
    """The file. Raises Unsupported where a module has something that is not written step by step."""
    try:
        tree = syntax_tree(problem.source)
        model = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model")
        methods = {n.name: n for n in model.body if isinstance(n, ast.FunctionDef)}
        others = [n for n in model.body if not isinstance(n, ast.FunctionDef) and not _is_docstring(n)]
        bases = [ast.unparse(base) for base in model.bases]
        if methods.keys() - {"__init__", "forward"} or others or bases not in (["nn.Module"], ["torch.nn.Module"]):
            raise Unsupported("other methods")
        walk = _walked(problem, methods["forward"])
        return _file(methods, walk)
    except _FAILED as error:
        raise Unsupported(f"{type(error).__name__}: {error}") from error


def _walked(problem: Problem, forward: ast.FunctionDef) -> Walk:
    with torch.device("meta"), torch.no_grad():
        instance = Instance(problem, {})
        model, inputs = instance.model(0), instance.inputs(0)
        if forward.args.vararg or forward.args.kwarg or forward.args.kwonlyargs or forward.args.defaults:
            raise Unsupported("other arguments")
        names = [a.arg for a in forward.args.args[1:]]
        plain = all(isinstance(i, (torch.Tensor, int, float)) for i in inputs)
        if len(names) != len(inputs) or not plain or set(names) & definitions().keys():
            raise Unsupported("other inputs")
        scope = inspect.unwrap(type(model).forward).__globals__
        walk = Walk(model, scope, dict(zip(names, inputs, strict=True)))
        for node in forward.body:
            walk.statement(node)
    return walk


def _file(methods: dict[str, ast.FunctionDef], walk: Walk) -> str:
    known = definitions()
    sections: dict[str, str] = {}

    def add(name: str) -> None:
        if name in sections or name not in known:
            return
        for need in sorted(known[name].needs, key=lambda n: known[n].order if n in known else ("", 0)):
            add(need)
        sections.setdefault(name, known[name].text)

    for part in walk.parts:
        if isinstance(part, StepsKernel):
            sections[part.name] = part.text()
        else:
            add(part)
    if not any("@triton.jit" in text for text in sections.values()):
        raise Unsupported("nothing to compute")
    text = "\n\n\n".join([*sections.values(), _class(methods, walk.lines)])
    functional = "import torch.nn.functional as F\n" if re.search(r"\bF\.", text) else ""
    device = "from triton.language.extra import libdevice\n" if "libdevice." in text else ""
    first = "import math\n\n" if re.search(r"\bmath\.", text) else ""
    return f"{first}{_IMPORTS.format(functional=functional, device=device)}\n\n{text}\n"


def _class(methods: dict[str, ast.FunctionDef], lines: list[str]) -> str:
    forward = methods["forward"]
    signature = ", ".join(a.arg for a in forward.args.args)
    parts = ["class ModelNew(nn.Module):"]
    if "__init__" in methods:
        made = ast.unparse(methods["__init__"])
        parts += ["    " + line if line else "" for line in re.sub(r"\bsuper\(Model, self\)", "super()", made).split("\n")]
        parts.append("")
    parts += [f"    def forward({signature}):", *(f"        {line}" for line in lines)]
    return "\n".join(parts)


def _is_docstring(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
