"""Builds and runs the reference model in the judge's process, and again in float64 and with TF32 convolutions."""

from __future__ import annotations

import contextlib
import copy
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import torch

from kernelllm.core.errors import ProblemError
from kernelllm.core.quiet import third_party_output
from kernelllm.core.types import Problem, SizeSet
from kernelllm.judge import gradient_outputs
from kernelllm.judge.call_traces import CallTraces
from kernelllm.judge.checks.operator_families import LIGHT
from kernelllm.judge.observation import WatchedOperators
from kernelllm.judge.operator_counter import OperatorCounter
from kernelllm.judge.transport import values
from kernelllm.judge.transport.protocol import Gradients
from kernelllm.judge.trials.comparison.compare import ROUNDINGS, Expected
from kernelllm.judge.trials.comparison.same_computation import agrees, finite, is_informative, rounding_explains, same_structure, to_float64
from kernelllm.judge.trials.reference_runs import rounding_noise
from kernelllm.judge.trials.reference_runs.device_asserts import keep_in_range
from kernelllm.judge.trials.reference_runs.duplicate_indices import with_nearest_writes
from kernelllm.judge.trials.reference_runs.failed_runs import failures_logged
from kernelllm.judge.trials.reference_runs.mutated_inputs import comparable_inputs, returning_inputs
from kernelllm.judge.trials.reference_runs.overflows import overflows
from kernelllm.judge.trials.reference_runs.reference_run import ReferenceRun
from kernelllm.judge.trials.reference_runs.rounded_buffers import RoundedBuffers
from kernelllm.judge.trials.reference_runs.rounding_noise import NOISE_SEED, EagerNoise
from kernelllm.judge.trials.reference_runs.tf32_allowance import ExactConvolutions, Tf32Convolutions
from kernelllm.judge.trials.reference_runs.tie_breaks import TieBreaks
from kernelllm.judge.trials.reference_runs.topk_ties import ForcedTies
from kernelllm.problems.float64 import in_float64
from kernelllm.problems.instance import Instance, explain
from kernelllm.problems.nested import mapped
from kernelllm.problems.seeds import own_generators, random_state, seed_all

EXACT_LIMIT = 2**28
"""Elements of inputs and parameters together beyond which the CPU makes no float64 run."""
EXACT_LIMIT_GPU = 2**29
"""The same on a GPU: beyond 2 GiB of fp32 the small size alone shows the precision."""
HEAVY_FLOPS = 1e9
"""FLOPs of one run beyond which the CPU makes fewer trials, and a float64 run only of the first trial."""
LIGHT_COSTS = 10
"""FLOPs that take the interpreter as long as one element that a light operator computes."""
HEAVIEST_FLOPS = 2e10
"""FLOPs beyond which the CPU makes no float64 run at all."""
_OF_DOUBLE = 2.0**-20
"""Rounding of a problem in double precision, as a share of float32's, with room for long sums."""
_FIRST, _OF_HALF, _MORE, _MORE_OF_HALF, _AT_TIES, _WIDE = (
    range(2), range(6), range(2, 10), range(6, 24), range(24, 40), range(40, 64),
)  # fmt: skip
"""Runs in which everything is moved by rounding. In half precision a single number may be off by far more than another."""


class Reference:
    """The problem's model at one size, on one device. Raises ProblemError where it cannot be built."""

    def __init__(self, problem: Problem, sizes: SizeSet, constants: Mapping[str, Any], device: str, seed: int, exact: bool,
                 backward: bool = False) -> None:
        self.problem, self.sizes, self.device, self.seed = problem, sizes, device, seed
        with own_generators():
            self.instance = Instance(problem, constants)
            self.init_args = self.instance.init_inputs(seed)
            self.model = self.built(seed)
        self._seeded, self.training = device == "cpu", self.model.training
        self._buffers = frozenset(name for name, _ in self.model.named_buffers(remove_duplicate=False))
        self.gradients: Gradients | None = gradient_outputs.of_reference(self.model) if backward else None
        """What its calls give gradients of, beside the output; None where they run no backward."""
        self.forward_ops, self.forward_flops = Counter[str](), Counter[str]()
        """Operators and FLOPs of the forward alone, where there is a backward."""
        self.ops, self.flops = Counter[str](), Counter[str]()
        """Operators of one run, by name, and FLOPs of the heavy ones among them."""
        self.changes_parameters = False  # whether a run so far wrote into parameters
        self.draws = False
        """Whether a run so far drew random numbers."""
        self.runs_on_a_cpu: bool | None = None  # None before :mod:`kernelllm.judge.trials.reference_runs.device_asserts` had to know
        self._exact = exact
        self._conversions = False  # whether a float64 run does the module's own: where it is another computation without them
        self._output_bytes: int | None = None
        self._mutates: bool | None = None  # whether it writes into its inputs; None before the first run
        self._models: dict[str, torch.nn.Module] = {}
        self.rounded_buffers = RoundedBuffers()
        self._gives_inputs: tuple[int, ...] = ()  # in copies of this object: whose runs give these inputs, as they are afterwards
        self.changeable: tuple[tuple[tuple[Any, ...], int], ...] | None = None
        """Constant inputs that may be changed; None until :mod:`kernelllm.judge.trials.inputs.varied_constants` has looked."""
        self.amplified: dict[str, torch.Tensor] | None = None  # what :mod:`kernelllm.judge.trials.state.amplified_terms` found
        self.small_constants: tuple[float, ...] | None = None  # what :mod:`kernelllm.judge.trials.inputs.small_constants` found
        self.forms: dict[str, str] = {}  # the form of a distribution's inputs that it gives finite numbers on
        self.state_buffers: frozenset[str] | None = None
        """Buffers that are state; None until :mod:`kernelllm.judge.trials.state.alternate_states` has looked."""

    @property
    def tf32_convolutions(self) -> bool:
        """Whether the last run convolved, and fp32 convolutions may use TF32 where candidates are meant to run."""
        convolves = "aten.convolution.default" in self.ops or "aten.convolution_backward.default" in self.ops
        return convolves and (self.device == "cpu" or torch.backends.cudnn.allow_tf32)

    @property
    def bytes(self) -> int:
        """Bytes of parameters, buffers and one set of inputs."""
        return sum(t.numel() * t.element_size() for t in self.state().values()) + values.described_bytes(self.sizes.inputs)

    def state(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers by name, detached."""
        found = {n: t.detach() for n, t in self.model.named_parameters(remove_duplicate=False)}
        return found | self.buffers()

    def buffers(self) -> dict[str, torch.Tensor]:
        """Buffers by name, detached, without those that a forward has registered to keep what it computed."""
        return {n: t.detach() for n, t in self.model.named_buffers(remove_duplicate=False) if n in self._buffers}

    @contextlib.contextmanager
    def buffers_restored(self) -> Iterator[None]:
        """Runs inside it leave the buffers as they were."""
        before = {n: t.clone() for n, t in self.buffers().items()}
        yield
        self.load(before)

    @contextlib.contextmanager
    def forward_alone(self) -> Iterator[None]:
        """Inside it calls run no backward, nor do those of candidates that are built then."""
        gradients, self.gradients = self.gradients, None
        try:
            yield
        finally:
            self.gradients = gradients

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """Copy values into parameters and buffers."""
        mine = self.state()
        with torch.no_grad():
            for name, value in state.items():
                mine[name].copy_(value)

    def built(self, seed: int) -> torch.nn.Module:
        """A model drawn under ``seed``. For a GPU it is built there where it can be: drawing large parameters takes a CPU seconds."""
        with own_generators():
            if self.device != "cpu":
                with failures_logged(f"{self.problem.name} is built on the CPU first", ProblemError):
                    return self.instance.model(seed, self.device, there=True).to(self.device)
            return self.instance.model(seed, self.device)

    def as_seeded(self) -> None:
        """Take the parameters that the seed gives on the CPU. A candidate that names its parameters otherwise draws the same ones."""
        if self._seeded:
            return
        with own_generators():
            model = self.instance.model(self.seed, self.device)
        named = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
        self.load({name: tensor.detach() for name, tensor in named.items()})
        self._seeded = True

    def inputs(self, seed: int) -> list[Any]:
        """Fresh inputs as the problem draws them."""
        with own_generators():
            return self.instance.inputs(seed, self.device)

    @property
    def heavy(self) -> bool:
        """Whether one run is so much work that a CPU makes fewer trials. False before the first run."""
        return self.device == "cpu" and sum(self.flops.values()) + LIGHT_COSTS * self.ops[LIGHT] > HEAVY_FLOPS

    def run(self, inputs: list[Any], seed: int, *, refinable: bool = True, first: bool = False) -> ReferenceRun:
        """One call; an error of the reference is in the result. ``refinable``: the result can be refined (see
        :meth:`ReferenceRun.refine`); ``first``: even where that is a lot of work."""
        tensors = values.flatten(inputs)
        refinable = refinable and self._exact
        private = mapped(inputs, torch.Tensor.clone) if refinable and self._mutates is not False else inputs
        before = {n: t.clone() for n, t in self.buffers().items()} if refinable else {}
        versions, parameters = [t._version for t in tensors], [(p, p._version) for p in self.model.parameters()]
        ops: Counter[str] = Counter()
        flops: Counter[str] = Counter()
        traces = CallTraces(self.model, inputs)
        try:
            with self.calling(seed), OperatorCounter(ops, flops, traces=traces):
                drawn = random_state(self.device)
                value = self.called(self.model, lambda: self._note_forward(ops, flops))(*inputs)
                self.draws = self.draws or random_state(self.device) != drawn
        except torch.OutOfMemoryError as error:
            return ReferenceRun(Expected(None), False, error=f"the reference runs out of GPU memory: {error}")
        except Exception as error:  # noqa: BLE001 (a problem's own code may raise anything)
            return ReferenceRun(Expected(None), False, error=str(explain(error, "forward", self.problem, self.instance._filename)))
        self.ops, self.flops = ops, flops
        self._output_bytes = sum(t.numel() * t.element_size() for t in values.flatten(value))
        mutated = tuple(i for i, t in enumerate(tensors) if t._version != versions[i])
        self._mutates = bool(mutated) or bool(self._mutates)
        self.changes_parameters |= any(p._version != version for p, version in parameters)
        tree = values.encode(value, outputs := list[torch.Tensor]())
        left = traces.left(tree, outputs, self.state().values()) if self.gradients is None else ()
        after = {n: t.clone() for n, t in self.buffers().items()}
        step = max((torch.finfo(t.dtype).eps for t in self._floating(inputs) if t.dtype.itemsize == 2), default=0.0)
        outcome = ReferenceRun(Expected(value), finite(value), mutated, after, left, before=before, step=step)
        if refinable:
            affordable = self._affordable(tensors, first)
            self._make_refinable(outcome, private, seed, before, affordable)
            given = values.flatten(private)
            once = len(given) == len(tensors)  # a tensor that is passed twice would count as two in the copies
            if self.gradients is None and private is not inputs and once and (written := comparable_inputs(tensors, mutated)):
                other = copy.copy(self)
                other._gives_inputs, other.rounded_buffers = written, RoundedBuffers()
                now = [tensors[i] for i in written]
                outcome.inputs = ReferenceRun(Expected(now), finite(now), before=before)
                outcome.inputs_before = {i: given[i] for i in written}
                other._make_refinable(outcome.inputs, private, seed, before, affordable)
        return outcome

    def _make_refinable(
        self, outcome: ReferenceRun, private: list[Any], seed: int, before: Mapping[str, torch.Tensor], affordable: bool
    ) -> None:
        value = outcome.expected.value
        outcome.perturbed = lambda roundings: self._perturbed(value, private, seed, before, roundings)
        outcome.decided_otherwise = decided = partial(self._perturbed, value, private, seed, before, numbers=_MORE)
        half = any(t.dtype.itemsize == 2 for t in self._floating([private, value]))
        under = partial(self._under, value=value, inputs=private, seed=seed, before=before, numbers=_MORE_OF_HALF if half else _MORE)
        outcome.more_roundings = partial(under, EagerNoise) if half else decided
        outcome.wide_roundings = partial(self._under, rounding_noise.WideNoise, value, private, seed, before, numbers=_WIDE)
        tf32 = partial(under, Tf32Convolutions) if self.tf32_convolutions else lambda: iter(())
        outcome.all_roundings = lambda: chain(() if half else decided(), under(rounding_noise.LastBitNoise), tf32())
        outcome.rerounded = lambda: self._under(EagerNoise, value, private, seed, before)
        outcome.ties_rerounded = partial(self._perturbed, value, private, seed, before, numbers=_AT_TIES, exactly=True)
        other = self._other_choices(value, private, seed, before)
        outcome.overflows, outcome.under, outcome.in_double_under = lambda: overflows(other.under), other.under, other.in_double_under
        outcome.choices, outcome.rotated_ties, outcome.other_ties = other.choices, other.rotated_ties, other.other_ties
        outcome.rewritten = lambda mine: with_nearest_writes(other.under, mine)
        outcome.refinements = self._refinements(value, private, seed, before, affordable)

    def called(self, model: torch.nn.Module, between: Callable[[], None] | None = None, owner: torch.nn.Module | None = None) -> Any:
        """How to call a copy of the model: as it is, or with its backward."""
        if self._gives_inputs:
            return returning_inputs(model, self._gives_inputs)
        if self.gradients is None:
            return lambda *inputs: mapped(model(*inputs), lambda tensor: tensor)
        made = gradient_outputs.Differentiated(model, self.gradients, owner)
        made.between = between or made.between
        return made

    def _note_forward(self, ops: Counter[str], flops: Counter[str]) -> None:
        self.forward_ops, self.forward_flops = Counter(ops), Counter(flops)

    def output_bytes(self) -> int:
        """Bytes of the outputs of a run. Makes one where there was none yet."""
        if self._output_bytes is None:
            with self.buffers_restored():
                self.run(self.inputs(self.seed), self.seed, refinable=False)
        return self._output_bytes or 0

    def watched_operators(self, where: str, ops: dict[str, int], flops: dict[str, float]) -> WatchedOperators:
        """The operators of a candidate's run, beside those of this reference's latest run."""
        return WatchedOperators(where, ops, flops, dict(self.ops), {name: float(amount) for name, amount in self.flops.items()})

    def expected_buffer(self, buffer: str, outcome: ReferenceRun) -> Expected:
        """What a buffer should be after ``outcome``, the latest run, as far as that was refined."""
        def of(kind: str, there: bool) -> list[torch.Tensor]:
            model = self._models.get(kind) if there else None
            return [] if model is None else [dict(model.named_buffers(remove_duplicate=False))[buffer].detach()]

        exact, others = of("float64", outcome.expected.has_exact), (*of("tf32", outcome.has_tf32), *self.rounded_buffers.of(buffer))
        return Expected(outcome.buffers[buffer], exact[0] if exact else None, bool(exact), others)

    def _affordable(self, tensors: list[torch.Tensor], first: bool) -> bool:
        elements = sum(t.numel() for t in tensors) + sum(t.numel() for t in self.model.parameters())
        if self.device == "cpu":
            return elements <= EXACT_LIMIT and sum(self.flops.values()) <= (HEAVIEST_FLOPS if first else HEAVY_FLOPS)
        free, _ = torch.cuda.mem_get_info()
        return elements <= EXACT_LIMIT_GPU and elements * 8 * 4 < 0.8 * free

    def _refinements(
        self, value: Any, inputs: list[Any], seed: int, before: Mapping[str, torch.Tensor], affordable: bool
    ) -> Iterator[tuple[Expected, bool]]:
        """The output in float64 where affordable. Then outputs that are as right as eager's: with convolutions in TF32 where they may
        use it, rounded as the device does and at random, and in float64 from inputs moved as far as rounding moves them."""
        self.rounded_buffers.clear()
        expected, half = Expected(value), any(t.dtype.itemsize < 4 for t in self._floating(inputs))
        for conversions in (False, True) if affordable else ():
            with failures_logged("no float64 run"), self.calling(seed, plainly=False), in_float64(conversions=conversions):
                found = self.called(self._model_copy("float64", before))(*to_float64(inputs))
                has_exact = agrees(value, found)
                if has_exact or expected.exact is None:
                    expected, self._conversions = Expected(value, found, has_exact), conversions
            if expected.has_exact:
                break
        yield expected, False
        far = expected.exact is not None and not expected.has_exact
        if far and self.device != "cpu" and self.tf32_convolutions:
            plain = [*self._under(ExactConvolutions, value, inputs, seed, before, stochastic=False)]
            if plain and agrees(plain[0], expected.exact):
                expected, far = Expected(plain[0], expected.exact, has_exact=True, tf32_is_noise=True), False
                yield expected, False
        if far and not self.draws and rounding_explains(value, expected.exact, [*self._under(EagerNoise, value, inputs, seed, before)]):
            expected = replace(expected, has_exact=True)
            yield expected, False
        for stochastic in (False, True) if self.tf32_convolutions and not expected.tf32_is_noise else ():
            found = [*self._under(Tf32Convolutions, value, inputs, seed, before, stochastic)]
            if self.device == "cpu" and expected.has_exact and not all(is_informative(one, expected.exact) for one in found):
                expected = replace(expected, tf32_is_noise=True, equally_right=())
                yield expected, False
                break
            if found:
                expected = replace(expected, equally_right=(*expected.equally_right, *found))
                yield expected, True
        if half and expected.exact is None and not self.draws:  # eager is all there is, and other roundings take it as far as this
            others = (*self._under(EagerNoise, value, inputs, seed, before),)
            yield replace(expected, exact=to_float64(value), has_exact=bool(others), equally_right=others), False
        if expected.has_exact and not far:
            others = (*self._perturbed(value, inputs, seed, before),)
            choices = self._other_choices(value, inputs, seed, before).choices() if half else []
            if half and not any(choice.saturated for choice in choices):  # which no rounding tells apart
                others += (*self._under(EagerNoise, value, inputs, seed, before, numbers=_OF_HALF),)
            yield replace(expected, equally_right=(*expected.equally_right, *others)), bool(expected.equally_right)

    def _other_choices(self, value: Any, inputs: list[Any], seed: int, before: Mapping[str, torch.Tensor]) -> TieBreaks:
        def run(mode: contextlib.AbstractContextManager[Any], double: bool) -> Any:
            found, precision = None, in_float64(conversions=self._conversions) if double else contextlib.nullcontext()
            with failures_logged("no run with other choices"), self.calling(seed), precision, mode:
                given = to_float64(inputs) if double else mapped(inputs, torch.Tensor.clone)
                found = self.called(self._model_copy("float64" if double else "tf32", before))(*given)
            return found if found is not None and (double or same_structure(value, found)) else None

        return TieBreaks(
            lambda mode: run(mode, False), lambda mode: run(mode, True),
            lambda positions: self._perturbed(value, inputs, seed, before, numbers=range(_MORE.stop), order=lambda: ForcedTies(positions)),
        )  # fmt: skip

    def _under(
        self, rounding: type[Tf32Convolutions | ExactConvolutions | EagerNoise], value: Any, inputs: list[Any], seed: int,
        before: Mapping[str, torch.Tensor], stochastic: bool = True, numbers: range = _FIRST,
    ) -> Iterator[Any]:  # fmt: skip
        """Outputs in working precision under other roundings. What one does to a mask (of a ReLU, in its gradient) is chance."""
        for number in numbers if stochastic else range(1):
            found, generator = None, torch.Generator(self.device).manual_seed(NOISE_SEED + seed + number) if stochastic else None
            with failures_logged(f"no run with {rounding.__name__}"), self.calling(seed, plainly=False), rounding(generator):
                found = self.called(self._model_copy("tf32", before))(*mapped(inputs, torch.Tensor.clone))
                self.rounded_buffers.keep(self._models["tf32"])
            if found is not None and same_structure(value, found):
                yield found

    def _perturbed(
        self, value: Any, inputs: list[Any], seed: int, before: Mapping[str, torch.Tensor], roundings: float = ROUNDINGS,
        numbers: range = _FIRST, order: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
        exactly: bool = False,
    ) -> Iterator[Any]:  # fmt: skip
        """Outputs in float64 with the last bits of inputs, state and all that is computed changed at random. They show what an
        ill-conditioned problem makes of rounding; a well-conditioned one hardly changes. ``exactly``: inputs, state and what working
        precision holds of the rest stay."""
        dtypes = {t.dtype for t in self._floating(inputs)}
        roundings *= _OF_DOUBLE if dtypes and dtypes <= {torch.float64, torch.complex128} else 1.0
        narrow = max((d for d in dtypes if d.itemsize == 2), key=lambda d: torch.finfo(d).eps, default=torch.float32)
        for number in numbers:
            perturbed = None
            with failures_logged("no perturbed run"), self.calling(seed, plainly=False), in_float64(conversions=self._conversions):
                model = self._model_copy("perturbed", before)
                generator = torch.Generator(self.device).manual_seed(NOISE_SEED + seed + number)
                rounding_noise.add_noise_to_state(model, generator, 0.0 if exactly else roundings)
                private = to_float64(inputs) if exactly else rounding_noise.add_rounding_noise(to_float64(inputs), generator, roundings)
                with rounding_noise.Float64Noise(generator, roundings, narrow if exactly else torch.float32), order():
                    perturbed = self.called(model)(*private)
                self.rounded_buffers.keep(model)
            if perturbed is not None and same_structure(value, perturbed):
                yield perturbed  # out here, for what is done with it is none of the run

    def _floating(self, inputs: list[Any]) -> list[torch.Tensor]:
        return [t for t in (*values.flatten(inputs), *self.state().values()) if t.is_floating_point() or t.is_complex()]

    def _model_copy(self, kind: str, buffers: Mapping[str, torch.Tensor]) -> torch.nn.Module:
        """A copy of the model with its present parameters and the buffers from before the run."""
        model = self._models.get(kind)
        if model is None:
            model = self._models[kind] = copy.deepcopy(self.model) if kind == "tf32" else copy.deepcopy(self.model).double()
        theirs = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers(remove_duplicate=False))}
        with torch.no_grad():
            for name, value in {**self.state(), **buffers}.items():
                theirs[name].copy_(value)
        return model

    @contextlib.contextmanager
    def calling(self, seed: int, *, plainly: bool = True) -> Iterator[None]:
        """A context manager for every call of the model. ``plainly``: under no other rounding."""
        with own_generators(), torch.no_grad(), third_party_output(), contextlib.nullcontext() if plainly else keep_in_range(self.device):
            seed_all(seed)
            yield


def prepare(
    problem: Problem, sizes: SizeSet, constants: Mapping[str, Any], device: str, seed: int, exact: bool, backward: bool = False
) -> Reference:
    """A Reference, with any failure of the problem's code as ProblemError."""
    try:
        return Reference(problem, sizes, constants, device, seed, exact, backward)
    except torch.OutOfMemoryError as error:
        text = f"The reference does not fit into the memory of {device}: {error}."
        raise ProblemError(text, where=problem.path or problem.name) from error
