"""Tries attributes that users change after construction (``model.slope = 0.2``), and other numbers for the constructor.

Where the reference's result follows them, the candidate's should.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from kernelllm.core.errors import ProblemError
from kernelllm.core.types import Finding, Severity, Status
from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess
from kernelllm.judge.transport import trusted_torch
from kernelllm.judge.trials.comparison.same_computation import same_shapes
from kernelllm.judge.trials.first_runs import build
from kernelllm.judge.trials.reference_runs.device_asserts import no_device_assert
from kernelllm.judge.trials.reference_runs.failed_runs import failures_logged
from kernelllm.judge.trials.reference_runs.reference import Reference
from kernelllm.judge.trials.reference_runs.reference_results import differs, is_wrong, result
from kernelllm.judge.trials.reference_runs.rounding_noise import NOISE_SEED, WideNoise
from kernelllm.judge.trials.schedule import INIT_SEED
from kernelllm.judge.trials.usage.sizes_of_inputs import sizes_of_inputs
from kernelllm.problems import nested
from kernelllm.problems.constant_inputs import texts
from kernelllm.problems.nested import mapped
from kernelllm.problems.seeds import own_generators, random_state

NAME = "silently_different"
_MOST, _TOLD, _LARGEST, _FEW = 12, 6, 4096, 64
"""Attributes that are tried, and that are named; the largest whole number that is changed; elements of a tensor that is no buffer."""
_SMALL = 16
"""The largest whole number of the constructor that is taken for no size."""
_PARAMETERS = 1_000_000
"""Of a model that is built several times in no time."""
_DROPPED = 0.5
_TURNED, _ROUNDINGS, _CLOSE = 0.05, 8, 1e-2
"""Share of elements that decisions of rounding may turn over, runs of the reference that are to show it, and what is no difference."""
_OF_TORCH, _MODE = "torch.", "training"


def try_attributes(process: CandidateProcess, reference: Reference, seed: int) -> list[Finding]:
    """Warnings where the candidate takes another number in its constructor and gives a wrong result, or follows it there alone. A file may
    have attributes written into it: that is a limit."""
    usual = None if reference.draws or reference.heavy else result(reference, reference.model, inputs := reference.inputs(seed), seed)
    if usual is None or build(process, reference) or is_wrong(process.run(inputs, seed).value, usual):
        return []
    warnings, followed = _try_arguments(process, reference, inputs, seed, usual)
    warnings += _try_noise(process, reference, inputs, seed, usual)
    ignored, wrong = list[str](), list[str]()
    for name, other, expected in _attributes_that_count(reference, inputs, seed, usual):
        build(process, reference)
        try:
            has = process.set_attribute(name, _plain(other))
            value = process.run(inputs, seed).value
        except CandidateFailure:  # a clear error
            continue
        if is_wrong(value, expected):
            if has and name.endswith(f".{_MODE}"):
                part = name.removesuffix(f".{_MODE}")
                text = f"Where {part} alone is in evaluation mode, as where a norm is frozen, the result is wrong:"
                warnings.append(f"{text} ask that module for its mode.")
            elif has and name in followed:
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
        args = [other if place == number else value for number, value in enumerate(reference.init_args[0])]
        kwargs = {name: other if place == name else value for name, value in reference.init_args[1].items()}
        rounded = partial(_hangs_on_rounding, reference, {place: other}, inputs, seed, expected)
        right, name = _right_when_built(process, reference, (args, kwargs), inputs, seed, expected, rounded), _name(reference, place)
        if right and not followed:
            _refuse_shared(process, reference, (args, kwargs), inputs, seed, usual, name)
        followed += [name] if right else []
        if right is False:
            text = f"When built with {name}={other!r}, where the problem has another number, the result is wrong, and nothing is said."
            warnings.append(f"{text} Follow it, or raise an error.")
    defaults = _defaults(reference)
    expected = _result_when_built(reference, defaults, inputs, seed) if defaults else None
    if differs(expected, usual):
        left = reference.init_args[0][: -len(defaults)], reference.init_args[1]
        if _right_when_built(process, reference, left, inputs, seed, expected) is False:
            names = ", ".join(_name(reference, place) for place in sorted(defaults, key=str))
            warnings.append(f"When built without {names}, the result is wrong: a default is another one than the reference's.")
    return warnings, followed


def _refuse_shared(
    process: CandidateProcess, reference: Reference, other: tuple[list[Any], dict[str, Any]], inputs: list[Any], seed: int, usual: Any,
    name: str,
) -> None:  # fmt: skip
    """Raises CandidateFailure where a model is another one once a second one is built, of other arguments."""
    build(process, reference)
    try:
        process.construct(other, INIT_SEED, beside=True)
        process.load(reference.buffers(), reference.training, swap=True)
        wrong = is_wrong(process.run(inputs, seed).value, usual)
    except CandidateFailure:  # whoever calls it would see that
        return
    if wrong:
        text = f"Silently different where a second model is built with another {name}: the result of the first one is wrong then."
        raise CandidateFailure(Status.INCORRECT, f"{text} Keep what the constructor gets in the model.", check=NAME)


def _try_noise(process: CandidateProcess, reference: Reference, inputs: list[Any], seed: int, usual: Any) -> list[str]:
    """Where a float that the problem gives as zero makes the reference draw random numbers, as the share that dropout drops does."""
    args, kwargs = reference.init_args
    given: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
    for place in (name for name, value in given if type(value) is float and value == 0):
        drawn = False
        with failures_logged("no noise by an argument"), reference.calling(seed):
            model = reference.instance.model(INIT_SEED, reference.device, instead={place: _DROPPED}).train(reference.training)
            before = random_state(reference.device)
            model(*mapped(inputs, torch.Tensor.clone))
            drawn = random_state(reference.device) != before
        init = [_DROPPED if place == n else v for n, v in enumerate(args)], {n: _DROPPED if place == n else v for n, v in kwargs.items()}
        if drawn and _right_when_built(process, reference, init, inputs, seed, usual):
            told = f"When built with {_name(reference, place)}={_DROPPED} the reference draws random numbers"
            return [f"{told}; the result stays as it was, and nothing is said."]
    return []


def _others(value: Any, source: str) -> list[Any]:
    """Other values of an attribute; none where it is no number, switch or text."""
    if isinstance(value, bool):
        return [not value]
    if type(value) is int:
        return [other for other in (value // 2, value + 1) if 0 < other <= _LARGEST and other != value and value > 0]
    if type(value) is float:
        return [2 * value + 0.5]
    if type(value) in (list, tuple) and value and all(type(one) is float for one in value):
        return [type(value)(2 * one + 0.5 for one in value)]
    if type(value) is torch.Tensor and value.is_floating_point() and value.numel() <= _FEW and not value.requires_grad:
        return [2 * value + 0.5]
    return [text for text in texts(source) if text != value] if type(value) is str else []


def _attributes_that_count(reference: Reference, inputs: list[Any], seed: int, usual: Any) -> Iterator[tuple[str, Any, Any]]:
    """Names of attributes with another value and the reference's result under it, where that is another one."""
    tried = set[tuple[type[Any], str]]()
    for prefix, module in trusted_torch.submodules(reference.model):
        of_torch = type(module).__module__.startswith(_OF_TORCH)
        for name, value in list(vars(module).items()):
            kind = type(module), name
            mode = name == _MODE
            asked = (value and bool(prefix) and _has_a_mode(module, reference.problem.source)) if mode else not name.startswith("_")
            others = _others(value, reference.problem.source) if asked else []
            safe = type(value) not in (int, str) or not (of_torch or reference.device != "cpu")
            if not others or not safe or kind in tried or len(tried) == _MOST:
                continue
            tried.add(kind)
            for other in others:
                with _changed(module, name, other):
                    expected = result(reference, reference.model, inputs, seed)
                if differs(expected, usual):
                    yield prefix + name, other, expected
                    break


def _has_a_mode(module: torch.nn.Module, source: str) -> bool:
    """Whether a module that is a part of another may do something else in training: users freeze a norm in a model that they train."""
    if type(module).__module__.startswith(_OF_TORCH):
        return isinstance(module, torch.nn.modules.batchnorm._NormBase)
    return f".{_MODE}" in source


def _plain(value: Any) -> Any:
    """A value as it is handed to the candidate's process."""
    if isinstance(value, torch.Tensor):
        return value.flatten().tolist()
    return list(value) if isinstance(value, tuple) else value


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
    few = sum(parameter.numel() for parameter in reference.model.parameters()) <= _PARAMETERS
    shared = sizes_of_inputs(reference.problem.source)
    whole = [name for name, value in given if few and _no_size(value, reference) and name not in shared]
    counted = [(name, value) for name, value in given if type(value) in (float, bool) or name in whole]
    for name, value in counted[:_MOST]:
        for other in _whole_others(value) if type(value) is int else _others(value, reference.problem.source):
            expected = _result_when_built(reference, {name: other}, inputs, seed)
            if differs(expected, usual):
                yield name, other, expected
                break


def _no_size(value: Any, reference: Reference) -> bool:
    """Whether it is a whole number that no constant of the problem has, so no size that trials change: a dimension, groups, a stride."""
    return type(value) is int and abs(value) <= _SMALL and not any(value in pair for pair in reference.sizes.changed.values())


def _whole_others(value: int) -> list[int]:
    """Other dimensions, strides, or numbers of groups and heads."""
    others = dict.fromkeys((value + 1, value - 1, value // 2))
    return [other for other in others if other != value and (other < 0) is (value < 0)]


def _result_when_built(reference: Reference, instead: dict[int | str, Any], inputs: list[Any], seed: int) -> Any:
    """The result of a model with other arguments and the same state; None where there is none."""
    model = None
    with failures_logged(f"{instead} are no arguments to try"), own_generators():
        model = reference.instance.model(INIT_SEED, reference.device, instead=instead)
    own = reference.model.state_dict()
    if model is None or {n: t.shape for n, t in model.state_dict().items()} != {n: t.shape for n, t in own.items()}:
        return None
    model.load_state_dict(own)
    model.train(reference.training)
    whole = any(type(value) is int for value in instead.values())  # a position, say
    if whole and not no_device_assert(reference, inputs, whole_numbers=True, model=model):
        return None
    return result(reference, model, inputs, seed)


def _defaults(reference: Reference) -> dict[int | str, Any]:
    """The last arguments that the problem gives by place and that have other defaults, to these."""
    found: dict[int | str, Any] = {}
    with contextlib.suppress(TypeError, ValueError):
        parameters = list(inspect.signature(type(reference.model)).parameters.values())
        for place in range(len(reference.init_args[0]) - 1, -1, -1):
            if place >= len(parameters) or type(parameters[place].default) not in (bool, int, float, str):
                break
            found[place] = parameters[place].default
    return found


def _right_when_built(
    process: CandidateProcess, reference: Reference, init: tuple[list[Any], dict[str, Any]], inputs: list[Any], seed: int, expected: Any,
    rounded: Callable[[Any], bool] = lambda _: False,
) -> bool | None:  # fmt: skip
    """Whether a candidate that is built so gives what is expected; None where it refuses, and where rounding may be the cause.

    ``rounded``: whether it may be for a result that is wrong.
    """
    try:
        built = process.construct(init, INIT_SEED)
        mine = {e.name: tuple(e.shape) for e in built.state}
        state = reference.state()
        process.load({k: t for k, t in state.items() if mine.get(k) == tuple(t.shape)}, reference.training)
        value = process.run(inputs, seed).value
    except CandidateFailure:
        return None
    return not is_wrong(value, expected) or (None if rounded(value) else False)


def _hangs_on_rounding(
    reference: Reference, instead: dict[int | str, Any], inputs: list[Any], seed: int, expected: Any, value: Any
) -> bool:
    """Whether few elements are wrong, each of which several times as much rounding turns over, too: what a top-k chooses, say."""
    wrong = _wrong_elements(value, expected)
    if not wrong or sum(int(w.sum()) for w in wrong) > _TURNED * sum(w.numel() for w in wrong):
        return False
    generator = torch.Generator(reference.device).manual_seed(NOISE_SEED + seed)
    for _ in range(_ROUNDINGS):
        with WideNoise(generator):
            other = _result_when_built(reference, instead, inputs, seed)
        turned = _wrong_elements(other, expected)
        wrong = [w & ~t for w, t in zip(wrong, turned, strict=True)] if turned else wrong
    return not any(w.any() for w in wrong)


def _wrong_elements(value: Any, expected: Any) -> list[torch.Tensor]:
    """Masks of what is off by more than rounding; none where the shapes are others."""
    if value is None or not same_shapes(value, expected):
        return []
    pairs = zip(nested.tensors(value), nested.tensors(expected), strict=True)
    off = partial(torch.isclose, rtol=_CLOSE, atol=_CLOSE, equal_nan=True)
    return [~off(a.double(), b.double()) if a.is_floating_point() else a != b for a, b in pairs]


def _name(reference: Reference, name: int | str) -> str:
    """The name of an argument."""
    if isinstance(name, str):
        return name
    with contextlib.suppress(TypeError, ValueError, ProblemError):
        named = [p.name for p in inspect.signature(type(reference.model)).parameters.values() if p.kind is not p.VAR_POSITIONAL]
        return named[name] if name < len(named) else f"argument {name + 1}"
    return f"argument {name + 1}"
