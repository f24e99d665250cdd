"""The host code of a written file with constants in place of sizes: cheaper, and safe for one graph, whose sizes Dynamo guards.

A written file works out grids, buffers and how to launch at every call, since anybody may call it. Here that is done once: what the file
does at its known sizes is rewritten statement by statement, and what is not understood stays as it is.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kernelllm.core.text import syntax_tree

Run = Callable[..., Sequence[Any]]
Grid = Callable[[dict[str, int]], tuple[int, ...]]
METHOD = "forward_at_known_sizes"
_FUNCTIONS = {"min": min, "max": max}
_FORMATS = {"torch.channels_last": torch.channels_last, "torch.channels_last_3d": torch.channels_last_3d}


class NotConstant(Exception):
    """The value of an expression is known at a call only."""


def prepared(module: ModuleType, model: torch.nn.Module, device: torch.device) -> Run | None:
    """What the file's method for known sizes, or else its forward, computes for contiguous inputs on ``device``. None where the file's
    class is not found.

    The result may be called while ``device`` is the current one.
    """
    tree = syntax_tree(Path(str(module.__file__)).read_text(encoding="utf-8"))
    classes = [s for s in tree.body if isinstance(s, ast.ClassDef) and s.name == type(model).__name__]
    methods = {s.name: s for c in classes for s in c.body if isinstance(s, ast.FunctionDef)}
    found = [methods[name] for name in (METHOD, "forward") if name in methods]
    if not found:
        return None
    names: dict[str, Any] = dict(vars(module))
    function = found[0]
    function.body = _Rewriter(names, device).statements(function.body)
    made = ast.fix_missing_locations(ast.Module([function], []))
    exec(compile(made, f"{module.__file__} (host code)", "exec"), names)
    run: Run = names[function.name].__get__(model)
    return run


class _Rewriter:
    """Statements, one after the other. ``names`` gets what the new ones refer to."""

    def __init__(self, names: dict[str, Any], device: torch.device) -> None:
        self._names, self._device = names, device
        self._constants: dict[str, Any] = {}

    def statements(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return [self._rewritten(statement) for statement in body]

    def _rewritten(self, statement: ast.stmt) -> ast.stmt:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and isinstance(statement.value.func, ast.Subscript):
            return ast.Expr(self._launch(statement.value, statement.value.func))
        stored = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        for name in stored:
            self._constants.pop(name, None)
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
            try:
                self._constants[statement.targets[0].id] = self._value(statement.value)
            except NotConstant:
                statement.value = self._buffer(statement.value)
        return statement

    def _launch(self, call: ast.Call, called: ast.Subscript) -> ast.expr:
        """``kernel[grid](tensors, numbers, NAME=number)`` as a call with the tensors alone."""
        launcher = self._names.get(called.value.id) if isinstance(called.value, ast.Name) else None
        count = getattr(launcher, "pointers", 0)
        spread = any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)
        if not count or spread:
            return call
        try:
            grid = self._value(called.slice)
            numbers = tuple(self._value(a) for a in call.args[count:])
            named = {str(k.arg): self._value(k.value) for k in call.keywords}
        except NotConstant:
            return call
        name = f"_launch_{len(self._names)}"
        self._names[name] = launch_of(launcher, (grid,) if isinstance(grid, int) else grid, numbers, named, self._device)
        return ast.Call(ast.Name(name, ast.Load()), call.args[:count], [])

    def _buffer(self, value: ast.expr) -> ast.expr:
        """``torch.empty`` of a known size, as Inductor's allocation."""
        known = self._device.type == "cuda" and isinstance(value, ast.Call) and ast.unparse(value.func) == "torch.empty"
        if not known or not isinstance(value, ast.Call) or len(value.args) != 1:
            return value
        given = {k.arg: ast.unparse(k.value) for k in value.keywords}
        try:
            size = self._value(value.args[0])
        except NotConstant:
            return value
        if not isinstance(size, tuple) or "dtype" not in given or not set(given) <= {"dtype", "device", "memory_format"}:
            return value
        memory_format = _FORMATS.get(given.get("memory_format", ""), torch.contiguous_format)
        stride = torch.empty(size, device="meta", memory_format=memory_format).stride()
        guards: Any = torch._C._dynamo.guards
        self._names["_empty_strided_cuda"] = guards._empty_strided_cuda
        return syntax_tree(f"_empty_strided_cuda({size}, {stride}, {given['dtype']})", mode="eval").body

    def _value(self, node: ast.expr) -> Any:
        """A number, a tuple of them, or what computes one from the blocks of a tuned kernel. Raises NotConstant."""
        known = {**_FUNCTIONS, **self._constants}
        bound = {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
        if any(isinstance(n, ast.Attribute) or (isinstance(n, ast.Name) and n.id not in {*known, *bound}) for n in ast.walk(node)):
            raise NotConstant(ast.unparse(node))
        return eval(compile(ast.fix_missing_locations(ast.Expression(node)), "host code", "eval"), {"__builtins__": {}, **known})


def launch_of(
    launcher: Any, grid: tuple[int, ...] | Grid, numbers: tuple[Any, ...], named: dict[str, Any], device: torch.device
) -> Callable[..., None]:
    """Launches a kernel with these numbers on the tensors it is called with. From the second call on, addresses go to the driver.

    The first call of a tuned kernel finds its blocks, of which ``grid`` is made.
    """
    kernel = launcher.kernel
    stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 0)
    index = device.index if device.index is not None else torch.cuda.current_device() if device.type == "cuda" else 0
    ready: tuple[Any, Any, Any, tuple[int, ...], list[Any]] | None = None

    def launch(*tensors: torch.Tensor) -> None:
        nonlocal ready
        addresses = [tensor.data_ptr() for tensor in tensors]
        bits = 0
        for address in addresses:
            bits |= address
        if ready is not None and not bits & 15:  # Triton compiles for addresses that 16 divides, or any
            run, function, metadata, extents, rest = ready
            run(*extents, stream(index), function, metadata, None, None, None, *addresses, *rest)
            return
        compiled = kernel[grid](*tensors, *numbers, **named)
        if compiled is not None and not bits & 15:
            best = kernel.best_config.kwargs if launcher.tuned else {}
            given = dict(zip(kernel.arg_names[len(tensors) :], numbers, strict=False), **named, **best)
            rest = [given[name] for name in kernel.arg_names[len(tensors) :]]
            extents = (*(grid(best) if callable(grid) else grid), 1, 1)[:3]
            ready = compiled.run, compiled.function, compiled.packed_metadata, extents, rest

    return launch
