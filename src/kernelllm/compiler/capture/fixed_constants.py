"""Which of a problem's constants a graph has fixed, so that the file can say it and the judge leaves them as they are."""

from __future__ import annotations

from typing import Any

import torch
import torch.utils._pytree as pytree

from kernelllm.compiler.capture.captured import Captured
from kernelllm.core.errors import ProblemError
from kernelllm.core.types import Problem
from kernelllm.problems import sizes
from kernelllm.problems.instance import Instance
from kernelllm.problems.relations import SMALL


def fixed_constants(captured: Captured) -> dict[str, Any]:
    """Name to value. Kernel sizes and other small numbers, which nobody changes, are not among them."""
    known = {n: v for n, v in sizes.constants(captured.problem).items() if _largest(n, v) > SMALL}
    if captured.way == "make_fx":
        pinned = {key.partition("[")[0] for key in captured.specialized}
        return {n: v for n, v in known.items() if n in pinned}
    if captured.way == "static":
        return known
    of_model = sizes.model_constants(captured.problem.source)
    return {n: v for n, v in known.items() if n in of_model or not _stays_general(captured, n, v)}


def _largest(name: str, value: Any) -> int:
    return max((v for v in pytree.tree_leaves(value) if sizes.is_size(name, v)), default=0)


def _stays_general(captured: Captured, name: str, value: Any) -> bool:
    """Whether all that the constant changes among the inputs are dimensions that the graph has a symbol for."""
    before = _shapes(captured.problem, {})
    after = _shapes(captured.problem, {name: pytree.tree_map(lambda v: 2 * v, value)})
    if before is None or after is None or before.keys() != after.keys() or before == after:
        return False
    symbolic = {given.name: given.shape for given in captured.graph_inputs if given.kind == "input"}
    for path, shape in before.items():
        for dim, (one, other) in enumerate(zip(shape, after[path], strict=False)):
            text = symbolic.get(captured.forward_arguments[path[0]] + path[1])
            if one != other and text is not None and (len(shape) != len(after[path]) or text[dim].isdigit()):
                return False
    return True


def _shapes(problem: Problem, constants: dict[str, Any]) -> dict[tuple[int, str], tuple[int, ...]] | None:
    """The shape of each input tensor by its position and place; None where they cannot be drawn without memory."""
    try:
        with torch.device("meta"):
            inputs = Instance(problem, constants).inputs(0)
    except ProblemError:
        return None
    flat, _ = pytree.tree_flatten_with_path(inputs)
    return {(path[0].idx, pytree.keystr(path[1:])): tuple(v.shape) for path, v in flat if isinstance(v, torch.Tensor)}  # type: ignore[attr-defined]
