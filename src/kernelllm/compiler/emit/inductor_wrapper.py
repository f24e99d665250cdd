"""Reading Inductor's Python wrapper: its Triton kernels and the statements of its ``call``.

Tolerant of both forms that torch 2.11 to 2.13 write: ``call`` as a function or as a method of ``Runner``, kernels
launched with ``.run(..., stream=...)``.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import Any

from kernelllm.core.errors import CaptureError

_ORIGINAL = re.compile(r"Original ATen: \[([^\]]*)\]")


@dataclass
class Kernel:
    """One Triton kernel as Inductor wrote it, parsed."""

    name: str
    """Inductor's own name, e.g. ``triton_poi_fused_add_0``."""
    ops: list[str]
    """The fused operators in order, without overload: ``aten.mul`` ..."""
    kind: str
    """The heuristic's name: ``pointwise``, ``reduction``, ``persistent_reduction`` ..."""
    function: ast.FunctionDef
    combines: dict[str, ast.FunctionDef]
    """Helper functions that the source defines (combine functions of scans)."""
    hints: dict[str, int]
    """Size hints by axis: ``x``, ``y``, ``z``, ``r0_``, ``r1_``."""
    reduction_hint: str
    signature: dict[str, str]
    """Argument name to Triton type: ``*fp32``, ``i32``, ``constexpr`` ..."""
    meta: dict[str, Any]
    """Those entries of ``inductor_meta`` that are literals."""

    @property
    def params(self) -> list[str]:
        """Argument names, in order."""
        return [a.arg for a in self.function.args.args]

    @property
    def blocks(self) -> list[str]:
        """The block-size arguments, in order."""
        return [p for p in self.params if p.endswith("BLOCK")]

    @property
    def runtime(self) -> list[str]:
        """The arguments that a launch passes, in order."""
        return [p for p in self.params if not p.endswith("BLOCK")]


@dataclass
class Wrapper:
    """The parts of a wrapper that matter."""

    kernels: dict[str, Kernel]
    arguments: list[str]
    """Names of ``call``'s arguments, in order (``arg0_1`` ...)."""
    body: list[ast.stmt]
    """``call``'s statements, flattened, in order; the last is the return."""
    constants: dict[str, ast.expr] = field(default_factory=dict)
    """Module-level assignments that are neither kernels nor the wrapper's usual preamble."""


def parse(text: str) -> Wrapper:
    """Parse a wrapper's text. Raises CaptureError where it has an unknown form."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise CaptureError(f"Inductor's output does not parse: {error}.", where="emit") from error
    lines = text.splitlines()
    kernels: dict[str, Kernel] = {}
    constants: dict[str, ast.expr] = {}
    for node in tree.body:
        if not (isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)):
            continue
        name, value = node.targets[0].id, node.value
        if isinstance(value, ast.Call) and ast.unparse(value.func) == "async_compile.triton":
            kernels[name] = _kernel(name, ast.literal_eval(value.args[1]), _ops_above(lines, node.lineno))
        else:
            constants[name] = value
    call = _find_call(tree)
    body = list(_flatten(call.body))
    arguments: list[str] = []
    rest: list[ast.stmt] = []
    for statement in body:
        if not arguments and isinstance(statement, ast.Assign) and ast.unparse(statement.value) == "args":
            target = statement.targets[0]
            arguments = [ast.unparse(e) for e in target.elts] if isinstance(target, ast.Tuple | ast.List) else [ast.unparse(target)]
        elif ast.unparse(statement) != "args.clear()":
            rest.append(statement)
    if not rest or not isinstance(rest[-1], ast.Return):
        raise CaptureError("Inductor's output has no return at the end of call().", where="emit")
    return Wrapper(kernels, arguments, rest, constants)


def _find_call(tree: ast.Module) -> ast.FunctionDef:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "call" and node.args.args and node.args.args[-1].arg == "args":
            return node
    raise CaptureError("Inductor's output has no call(args).", where="emit")


def _flatten(body: list[ast.stmt]) -> list[ast.stmt]:
    flat: list[ast.stmt] = []
    for statement in body:
        if isinstance(statement, ast.With):
            flat.extend(_flatten(statement.body))
        else:
            flat.append(statement)
    return flat


def _ops_above(lines: list[str], lineno: int) -> list[str]:
    at = lineno - 2
    while at >= 0 and lines[at].lstrip().startswith("#"):
        match = _ORIGINAL.search(lines[at])
        if match:
            return [op.strip() for op in match[1].split(",") if op.strip()]
        at -= 1
    return []


def _kernel(name: str, source: str, ops: list[str]) -> Kernel:
    tree = ast.parse(source)
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    # unique_kernel_names=False calls every kernel triton_; it is the last function then.
    function = functions.pop(name if name in functions else list(functions)[-1])
    heuristic = next((d for d in function.decorator_list if isinstance(d, ast.Call)), None)
    if heuristic is None:
        raise CaptureError(f"Kernel {name} has no heuristic.", where="emit")
    keywords = {k.arg: k.value for k in heuristic.keywords if k.arg}
    kind = ast.unparse(heuristic.func).rsplit(".", 1)[-1]
    hints = ast.literal_eval(keywords["size_hints"]) if "size_hints" in keywords else {}
    if not isinstance(hints, dict):
        hints = dict(zip(("x", "y", "z"), hints, strict=False))
    signature: dict[str, str] = {}
    triton_meta = keywords.get("triton_meta")
    if isinstance(triton_meta, ast.Dict):
        for key, value in zip(triton_meta.keys, triton_meta.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "signature":
                signature = {str(k): str(v) for k, v in ast.literal_eval(value).items()}
    hint = keywords.get("reduction_hint")
    return Kernel(
        name=name,
        ops=ops,
        kind=kind,
        function=function,
        combines=functions,
        hints=hints,
        reduction_hint=ast.unparse(hint).rsplit(".", 1)[-1] if hint is not None else "",
        signature=signature,
        meta=_literals(keywords.get("inductor_meta")),
    )


def _literals(node: ast.expr | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant):
                try:
                    found[str(key.value)] = ast.literal_eval(value)
                except ValueError:
                    continue
    return found
