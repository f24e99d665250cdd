"""Sizes that a capture has fixed because a loop went over them: any size is let in where the loop, rolled again, is right for others too.

``torch.export`` unrolls ``for t in range(x.shape[1])``, and fixes the size with that. The text of the graph has the loop again.
"""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import torch

from kernelllm.app.live.call_arguments import BoundCalls
from kernelllm.app.live.dispatch import difference
from kernelllm.app.live.filled_arguments import called
from kernelllm.app.live.module_capture import LiveGraph
from kernelllm.app.live.program import reason
from kernelllm.core.text import syntax_tree
from kernelllm.core.types import Problem
from kernelllm.problems.graphs.graph_problem import SIZE
from kernelllm.problems.instance import Instance

_LOOP = re.compile(r"for \w+ in range\(\w+\.shape\[\d+\]\):")
_FEWEST = 3
"""Below that a size is more often what it has to be than a length."""
_LARGEST = 500_000_000
"""Elements of parameters of a module that is built a second time for this."""
Places = Sequence[tuple[int, int]]
"""Numbers of inputs, and a dimension of each."""
log = logging.getLogger(__name__)


def freed(module: torch.nn.Module, live: LiveGraph, problem: Problem) -> tuple[LiveGraph, Problem]:
    """The graph's signature and its problem with the sizes free for which the problem does what the module does at other sizes too.

    Each size that comes is compared with the module once, as that of a size which was never tried.
    """
    signature = live.signature
    if not _LOOP.search(problem.source) or signature.writes_state or sum(p.numel() for p in module.parameters()) > _LARGEST:
        return live, problem
    places: dict[int, list[tuple[int, int]]] = {}
    for i, shape in enumerate(signature.shapes):
        for d, size in enumerate(shape):
            if isinstance(size, int) and size >= _FEWEST:
                places.setdefault(size, []).append((i, d))
    for size, there in places.items():
        for source in _texts(problem.source, there, size, signature.names[there[0][0]]):
            tried = msgspec.structs.replace(problem, source=source)
            if not _is_right(module, live, tried, size, there):
                continue
            problem, symbol = tried, f"length{size}"
            shapes = tuple(tuple(symbol if (i, d) in there else n for d, n in enumerate(s)) for i, s in enumerate(live.signature.shapes))
            live = replace(live, signature=replace(live.signature, shapes=shapes, compared=(*live.signature.compared, (symbol, size))))
            break
    return live, problem


def _is_right(module: torch.nn.Module, live: LiveGraph, problem: Problem, size: int, places: Places) -> bool:
    """Whether the problem gives the module's results for fewer and for more than ``size``."""
    names = BoundCalls(module.forward)

    def by_torch(one: torch.nn.Module, given: Sequence[torch.Tensor]) -> Any:
        return called(names, live.signature.nest, live.fills, given, one.forward)

    try:
        model = with_state(module, live.constants, problem)
        for other in (max(2, size * 2 // 3), size + 5):
            inputs = [_resized(t, {d for at, d in places if at == i}, other) for i, t in enumerate(live.inputs)]
            if told := difference(lambda given: live.output.build(flat_tensors(model(*given))), by_torch, module, inputs):
                log.info("fixed at %s: %s", size, told)
                return False
    except Exception as error:  # noqa: BLE001 - code of others, which may refuse such a size
        log.info("fixed at %s: %s", size, reason(error))
        return False
    return True


def flat_tensors(results: Any) -> list[torch.Tensor]:
    return [t for t in torch.utils._pytree.tree_leaves(results) if isinstance(t, torch.Tensor)]


def with_state(module: torch.nn.Module, constants: Mapping[str, torch.Tensor], problem: Problem) -> torch.nn.Module:
    """The problem's Model with the module's values."""
    device = next((t.device for t in (*module.parameters(), *module.buffers())), torch.device("cpu"))
    model = Instance(problem).model(0, str(device)).train(module.training)
    model.load_state_dict(module.state_dict(), strict=False)
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name in constants:
                buffer.copy_(constants[name])
    return model


def _resized(tensor: torch.Tensor, dims: set[int], size: int) -> torch.Tensor:
    """The tensor with its rows again from the first where there are more."""
    for dim in dims:
        tensor = tensor.index_select(dim, torch.arange(size, device=tensor.device) % tensor.shape[dim])
    return tensor


def _texts(source: str, places: Places, size: int, first: str) -> Iterator[str]:
    """The problem's text with a constant for the size of inputs; then also with the size for such a number in the forward, as where a
    slice ends. ``first``: the name of the first input that has it. None where an input is not drawn by its shape.
    """
    numbers = [int(n) for n in re.findall(rf"^{SIZE}(\d+) = ", source, re.MULTILINE)]
    name = f"{SIZE}{max(numbers, default=-1) + 1}"
    functions = {n.name: n for n in ast.walk(syntax_tree(source)) if isinstance(n, ast.FunctionDef)}
    drawn = functions["get_inputs"].body[-1].value.elts  # type: ignore[attr-defined]
    found: list[tuple[ast.Constant, str]] = []
    for i, dim in places:
        shape = next((k.value for k in getattr(drawn[i], "keywords", []) if k.arg == "shape"), None) if i < len(drawn) else None
        number = shape.elts[dim] if isinstance(shape, ast.Tuple) and dim < len(shape.elts) else None
        if not isinstance(number, ast.Constant) or number.value != size:
            return
        found.append((number, name))
    inside = [n for n in ast.walk(functions["forward"]) if isinstance(n, ast.Constant) and type(n.value) is int and n.value == size]
    for chosen in (found, [*found, *((n, f"{first}.shape[{places[0][1]}]") for n in inside)])[: 1 + bool(inside)]:
        head, module, rest = _replaced(source, chosen).partition("import torch.nn as nn\n")
        yield f"{head}{module}\n{name} = {size}\n{rest}"


def _replaced(source: str, numbers: Sequence[tuple[ast.Constant, str]]) -> str:
    lines = source.split("\n")
    for number, text in sorted(numbers, key=lambda pair: (pair[0].lineno, pair[0].col_offset), reverse=True):
        line = lines[number.lineno - 1].encode()
        lines[number.lineno - 1] = (line[: number.col_offset] + text.encode() + line[number.end_col_offset :]).decode()
    return "\n".join(lines)
