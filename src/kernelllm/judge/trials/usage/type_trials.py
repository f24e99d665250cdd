"""Tries a model in other types than the problem's: turned into one of half precision, or with inputs of another type than its parameters.

A file that asks for types may do something else in another one. Who asks for none is told of a difference as a limit.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from kernelllm.judge.checks.parsed_source import parse_source
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.transport import values
from kernelllm.judge.trials.first_runs import build
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.judge.trials.reference_runs.reference_results import result
from kernelllm.judge.trials.usage.half_difference import half_precision_difference
from kernelllm.problems.nested import mapped

_NAMES = frozenset({
    "dtype", "element_ty", "is_floating_point", "element_size", "itemsize", "primitive_bitwidth", "finfo", "get_default_dtype", "nbytes",
    "is_fp16", "is_bf16", "is_fp32", "is_fp64", "is_floating", "bits", "eps", "tiny", "promote_types", "result_type", "can_cast",
})  # fmt: skip
_HALF, _OTHERS = torch.bfloat16, (torch.bfloat16, torch.float16, torch.float64)


def asks_for_types(source: str) -> bool:
    """Whether a file decides by the type of a tensor: in a condition or a comparison, or by a table."""
    known = parse_source(source)
    if known is None:
        return False
    asked = set[str]()  # names that hold what was asked
    for node in known.nodes:
        if isinstance(node, ast.Assign) and any(map(_asks, ast.walk(node.value))):
            asked |= {target.id for target in node.targets if isinstance(target, ast.Name)}
            asked |= {target.attr for target in node.targets if isinstance(target, ast.Attribute)}
    for node in known.nodes:
        match node:
            case ast.Compare(left=left, comparators=others):
                sides = [left, *others]
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
                sides = [test]
            case ast.Match(subject=test) | ast.Subscript(slice=test):
                sides = [test]
            case _:
                continue
        for part in (inner for side in sides for inner in ast.walk(side)):
            if _asks(part) or (isinstance(part, ast.Name) and part.id in asked) or (isinstance(part, ast.Attribute) and part.attr in asked):
                return True
    return False


def _asks(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in _NAMES


def try_types(
    process: CandidateProcess, reference: Reference, state: Mapping[str, torch.Tensor], inputs: list[Any], seed: int, usual: Any,
    source: str,
) -> tuple[list[str], list[str]]:  # fmt: skip
    """Warnings and limits. Of a file that asks for types all are tried, else half precision in the place of float32."""
    own = {t.dtype for t in (*values.flatten(inputs), *reference.state().values()) if t.is_floating_point()}
    asks = asks_for_types(source)
    if len(own) != 1 or reference.heavy or not (asks or own == {torch.float32}):
        return [], []
    mine = own.pop()
    pairs: list[tuple[torch.dtype, torch.dtype]] = [(dtype, dtype) for dtype in ((*_OTHERS, torch.float32) if asks else (_HALF,))]
    if asks and state:
        other = _HALF if mine is not _HALF else torch.float32
        pairs += [(mine, other), (other, mine)]
    warnings, limits = list[str](), list[str]()
    for of_model, of_inputs in pairs:
        if of_model is of_inputs is mine:
            continue
        text, type_alone = _different(process, reference, state, inputs, seed, usual, of_model, of_inputs)
        if text and asks and not type_alone:
            warnings.append(f"The file asks for types, and {text[0].lower()}{text[1:]}")
        elif text and of_model is of_inputs is _HALF:
            limits.append(text)
        _restore(process, reference, state, mine)
    return warnings[:1], limits


def _different(
    process: CandidateProcess, reference: Reference, state: Mapping[str, torch.Tensor], inputs: list[Any], seed: int, usual: Any,
    of_model: torch.dtype, of_inputs: torch.dtype,
) -> tuple[str, bool]:  # fmt: skip
    """How results differ from the reference's, empty where they do not; and whether only in their type."""
    model, given = copy.deepcopy(reference.model).to(of_model), mapped(inputs, partial(_converted, dtype=of_inputs))
    expected = result(reference, model, given, seed)
    if expected is None or [t.shape for t in values.flatten(expected)] != [t.shape for t in values.flatten(usual)]:
        return "", False
    name = values.dtype_name(of_model)
    what = f"a model of {name} (.to(torch.{name}))"
    what = what if of_model is of_inputs else f"{what} on inputs of {values.dtype_name(of_inputs)}"
    try:
        process.load(state, reference.training, dtype=name)
        value = process.run(given, seed).value
    except CandidateFailure:
        return "", False
    made, wanted = values.flatten(value), values.flatten(expected)
    other = [t.dtype for t in made] != [t.dtype for t in wanted]
    if other and [t.shape for t in made] == [t.shape for t in wanted]:
        types = iter([t.dtype for t in wanted])
        value = mapped(value, lambda tensor: tensor.to(next(types)))
    far = half_precision_difference(value, expected, usual)
    if far:
        return f"As {what} its results are far from the reference's.", False
    return (f"As {what} its results have another type than the reference's.", True) if other else ("", False)


def _converted(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _restore(process: CandidateProcess, reference: Reference, state: Mapping[str, torch.Tensor], dtype: torch.dtype) -> None:
    if process.lost:
        build(process, reference)
    process.load(state, reference.training, dtype=values.dtype_name(dtype))
