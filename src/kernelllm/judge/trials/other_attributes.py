"""Attributes that a user changes after construction (``model.slope = 0.2``), and numbers among the constructor's own arguments: where the
reference's result follows them, the candidate's should."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import torch

from kernelllm.core.errors import ProblemError
from kernelllm.core.types import Finding, Severity
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.transport import plain
from kernelllm.judge.trials.failed_runs import failures_logged
from kernelllm.judge.trials.first_runs import build
from kernelllm.judge.trials.reference import Reference
from kernelllm.judge.trials.reference_results import differs, is_wrong, result
from kernelllm.judge.trials.schedule import INIT_SEED
from kernelllm.problems.constant_inputs import texts
from kernelllm.problems.seeds import own_generators

NAME = "silently_different"
_MOST, _TOLD, _LARGEST = 12, 6, 4096
"""Attributes that are tried, and that are named; the largest whole number that is changed."""
_OF_TORCH = "torch."


def try_attributes(process: CandidateProcess, reference: Reference, seed: int) -> list[Finding]:
    """Warnings where the candidate takes another number in its constructor and gives a wrong result, or follows it there alone. A file may
    have attributes written into it: that is a limit."""
    usual = None if reference.draws or reference.heavy else result(reference, reference.model, inputs := reference.inputs(seed), seed)
    if usual is None or build(process, reference) or is_wrong(process.run(inputs, seed).value, usual):
        return []
    warnings, followed = _try_arguments(process, reference, inputs, seed, usual)
    ignored, wrong = list[str](), list[str]()
    for name, other, expected in _attributes_that_count(reference, inputs, seed, usual):
        build(process, reference)
        try:
            has = process.set_attribute(name, other)
            value = process.run(inputs, seed).value
        except CandidateFailure:  # a clear error
            continue
        if is_wrong(value, expected):
            if has and name in followed:
                text = f"The constructor takes another {name}, and the attribute {name} may then change without effect:"
                warnings.append(f"{text} read it in each call, or make it read-only.")
            else:
                (wrong if is_wrong(value, usual) else ignored).append(name)
    told = [("without effect", ignored), ("and give another result than the reference's", wrong)]
    limits = [f"Attributes change after construction {what}: {', '.join(names[:_TOLD])}." for what, names in told if names]
    found = [Finding(check=NAME, message=text, severity=Severity.WARN) for text in warnings]
    return found + [Finding(check="limits", message=text, severity=Severity.INFO) for text in limits]


def _try_arguments(
    process: CandidateProcess, reference: Reference, inputs: list[Any], seed: int, usual: Any
) -> tuple[list[str], list[str]]:
    """Warnings, and the names of the constructor's arguments that the candidate follows."""
    warnings, followed = list[str](), list[str]()
    for place, other, expected in _arguments_that_count(reference, inputs, seed, usual):
        right, name = _right_when_built(process, reference, place, other, inputs, seed, expected), _name(reference, place)
        followed += [name] if right else []
        if right is False:
            text = f"When built with {name}={other!r}, where the problem has another number, the result is wrong, and nothing is said."
            warnings.append(f"{text} Follow it, or raise an error.")
    return warnings, followed


def _others(value: Any, source: str) -> list[Any]:
    """Other values of an attribute; none where it is no number, switch or text."""
    if isinstance(value, bool):
        return [not value]
    if type(value) is int:
        return [other for other in (value // 2, value + 1) if 0 < other <= _LARGEST and other != value and value > 0]
    if type(value) is float:
        return [2 * value + 0.5]
    return [text for text in texts(source) if text != value] if type(value) is str else []


def _attributes_that_count(reference: Reference, inputs: list[Any], seed: int, usual: Any) -> Iterator[tuple[str, Any, Any]]:
    """Names of attributes with another value and the reference's result under it, where that is another one."""
    tried = set[tuple[type[Any], str]]()
    for prefix, module in plain.submodules(reference.model):
        of_torch = type(module).__module__.startswith(_OF_TORCH)
        for name, value in list(vars(module).items()):
            kind = type(module), name
            others = [] if name.startswith("_") or name == "training" else _others(value, reference.problem.source)
            safe = type(value) in (float, bool) or not (of_torch or reference.device != "cpu")
            if not others or not safe or kind in tried or len(tried) == _MOST:
                continue
            tried.add(kind)
            for other in others:
                with _changed(module, name, other):
                    expected = result(reference, reference.model, inputs, seed)
                if differs(expected, usual):
                    yield prefix + name, other, expected
                    break


@contextlib.contextmanager
def _changed(module: torch.nn.Module, name: str, other: Any) -> Iterator[None]:
    before = vars(module)[name]
    vars(module)[name] = other
    try:
        yield
    finally:
        vars(module)[name] = before


def _arguments_that_count(reference: Reference, inputs: list[Any], seed: int, usual: Any) -> Iterator[tuple[int | str, Any, Any]]:
    """Floats and switches among the arguments that the problem gives to the constructor, by place or name, likewise."""
    args, kwargs = reference.init_args
    given: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
    for name, value in [(name, value) for name, value in given if type(value) in (float, bool)][:_MOST]:
        for other in _others(value, reference.problem.source):
            model = None
            with failures_logged(f"{name}={other!r} is no argument to try"), own_generators():
                model = reference.instance.model(INIT_SEED, reference.device, instead={name: other})
            if model is None:
                continue
            shapes = {n: t.shape for n, t in model.state_dict().items()}
            if shapes != {n: t.shape for n, t in reference.model.state_dict().items()}:
                continue
            model.load_state_dict(reference.model.state_dict())
            model.train(reference.training)
            expected = result(reference, model, inputs, seed)
            if differs(expected, usual):
                yield name, other, expected


def _right_when_built(
    process: CandidateProcess, reference: Reference, name: int | str, other: Any, inputs: list[Any], seed: int, expected: Any
) -> bool | None:
    """Whether a candidate that is built so gives what is expected; None where it refuses."""
    args, kwargs = list(reference.init_args[0]), dict(reference.init_args[1])
    if isinstance(name, int):
        args[name] = other
    else:
        kwargs[name] = other
    try:
        built = process.construct((args, kwargs), INIT_SEED)
        mine = {e.name: tuple(e.shape) for e in built.state}
        state = reference.state()
        process.load({k: t for k, t in state.items() if mine.get(k) == tuple(t.shape)}, reference.training)
        return not is_wrong(process.run(inputs, seed).value, expected)
    except CandidateFailure:
        return None


def _name(reference: Reference, name: int | str) -> str:
    """The name of an argument."""
    if isinstance(name, str):
        return name
    with contextlib.suppress(TypeError, ValueError, ProblemError):
        named = [p.name for p in inspect.signature(type(reference.model)).parameters.values() if p.kind is not p.VAR_POSITIONAL]
        return named[name] if name < len(named) else f"argument {name + 1}"
    return f"argument {name + 1}"
