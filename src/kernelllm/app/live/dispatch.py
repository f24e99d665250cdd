"""The module that ``optimize`` returns: verified kernels where a call fits them, and the original's forward everywhere else."""

from __future__ import annotations

import collections
import contextlib
import copy
import logging
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree

from kernelllm.app import in_process
from kernelllm.app.live.active_modes import StateTypes, active_mode, do_nothing
from kernelllm.app.live.call_arguments import BoundCalls, Flattened, flatten, form_of
from kernelllm.app.live.filled_arguments import called
from kernelllm.app.live.kept_tensors import kept_state
from kernelllm.app.live.program import PROVEN, UNPROVEN, LiveProgram, reason, refused, runs_on
from kernelllm.app.live.watched import Watched
from kernelllm.core.errors import UsageError
from kernelllm.judge.trials.comparison.compare import Expected, Rules, compare
from kernelllm.judge.trials.reference_runs.tf32_allowance import Tf32Convolutions

log = logging.getLogger(__name__)
_MOST_KEYS = 4096
_OWN = ("training", "kernelllm")
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_EVERYWHERE = [vars(torch.nn.modules.module)[f"_global{kind}"] for kind in HOOKS]
"""Hooks on all modules."""


class KernelsNotUsed(UserWarning):
    """A call went to the original module."""


class Dispatch:
    """Decides for each call of a :class:`KernelModule` who runs it, and counts. Its attributes are for reading."""

    def __init__(self, original: torch.nn.Module, programs: Sequence[LiveProgram]) -> None:
        self.original = original
        self.programs = list(programs)
        self.kernel_calls = 0
        self.original_calls: collections.Counter[str] = collections.Counter()
        """Calls that went to the original, by reason."""
        self._setup()

    def _setup(self) -> None:
        self._names = BoundCalls(self.original.forward)
        self._known: dict[Any, tuple[LiveProgram | None, str]] = {}
        modules = list(self.original.named_modules())
        state = ((vars(m)[kind], name) for kind in ("_parameters", "_buffers") for _, m in modules for name in vars(m)[kind])
        self._state: tuple[Any, str] = next(((o, n) for o, n in state if o[n] is not None and o[n].is_floating_point()), (None, ""))
        self._types = StateTypes(m for _, m in modules)
        held = [t for program in self.programs for t in program.constants.values()]
        self._watched = Watched([m for _, m in modules], held)
        self._modules = self._watched.modules
        self._attributes = list(map(vars, self._modules))
        self._hooks = [*_EVERYWHERE, *(vars(m)[kind] for m in self._modules if m is not self.original for kind in HOOKS)]
        self._code = self._code_now()
        self._modes = {p: [(self.original.get_submodule(path), mode) for path, mode in p.signature.modes] for p in self.programs}

    def __getstate__(self) -> dict[str, Any]:
        state = {name: vars(self)[name] for name in ("original", "programs", "kernel_calls", "original_calls")}
        return {**state, "programs": []} if self._changed() else state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._setup()

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        named = self._names.named(args, kwargs)
        tensors: list[torch.Tensor] = []
        why = self._never()
        form = None if why else form_of(named, tensors)
        if form is None or any(map(torch.Tensor.is_neg, tensors)):  # a view such as z.conj().imag, whose memory holds other signs
            return self._by_original(why or "an argument that is neither a plain tensor nor a plain value", args, kwargs)
        sample = self._sample()
        kinds = tuple([(t.shape, t.dtype, t.device, t.is_contiguous()) for t in tensors])
        key = (tuple(named), form, kinds, None if sample is None else (sample.dtype, sample.device))
        program, why = self._known.get(key) or self._first_time(key, named, tensors)
        if program is not None and (other := self._not_now(program, tensors)):
            return self._by_original(other, args, kwargs)
        if why is UNPROVEN and program is not None:
            program, why = self._known[key] = self._compared(program, tensors)
        if program is None:
            return self._by_original(why, args, kwargs)
        try:
            result = self.run(program, tensors)
        except Exception as error:  # guards of the file, and Triton's compiler: the original answers for all of them
            if type(error).__module__ == "torch.utils.checkpoint":
                raise  # a recomputation that has all that it needs ends so
            if (program.signature.written or program.signature.writes_state) and not refused(error):
                raise  # the file may have written already: the original would do so twice
            self._known[key] = None, reason(error)
            return self._by_original(reason(error), args, kwargs)
        self.kernel_calls += 1
        if program.fills is not None:
            result, further = result
            program.fills.into(named, tensors, further)
        return result

    def run(self, program: LiveProgram, tensors: Sequence[torch.Tensor]) -> Any:
        """The kernels' result for these tensors; with what fills arguments, a pair. Raises what the file raises."""
        model, written, grad = program.model(self.original), program.signature.written, torch.is_grad_enabled()
        given = [t if t.is_contiguous() or i in written else t.contiguous() for i, t in enumerate(tensors)]
        quiet = torch.no_grad() if grad and not program.differentiable else contextlib.nullcontext()
        with quiet, in_process.device_context(self._device(tensors)):
            results = model(*given)
        flat = [results] if isinstance(results, torch.Tensor) else [t for t in pytree.tree_leaves(results) if isinstance(t, torch.Tensor)]
        return program.output.build(flat if program.differentiable or not grad else self._without_backward(flat))

    def difference(self, program: LiveProgram, tensors: Sequence[torch.Tensor]) -> str:
        """What differs between kernels and original for these tensors; empty where nothing does. Raises what either raises."""

        def by_torch(module: torch.nn.Module, given: Sequence[torch.Tensor]) -> Any:
            return called(self._names, program.signature.nest, program.fills, given, module.forward)

        return difference(lambda given: self.run(program, given), by_torch, self.original, tensors)

    def _without_backward(self, results: list[torch.Tensor]) -> list[torch.Tensor]:
        """Where the original's results could be differentiated, asking these for gradients is an error."""
        source = next((p for p in self.original.parameters() if p.requires_grad), None)
        if source is None:
            return results
        apply: Any = _InferenceOnly.apply
        return [apply(t, source) if t.is_floating_point() or t.is_complex() else t for t in results]

    def _never(self) -> str:
        """Why no program may run now, whatever the arguments; empty where one may."""
        if any(self._hooks) and not do_nothing(self._hooks):
            return "hooks on a submodule, or on all modules"
        if self._changed():
            return "a submodule or a plain attribute was changed"
        return active_mode() or self._types.other()

    def _changed(self) -> bool:
        """Whether the original has other submodules or attributes than when its kernels were written."""
        return self._watched.changed() or self._code_now() != self._code

    def _code_now(self) -> tuple[list[Any], list[Any]]:
        """What each module runs: its class, and a forward of its own, as accelerate and parametrizations put it there."""
        return list(map(type, self._modules)), [attributes.get("forward") for attributes in self._attributes]

    def _not_now(self, program: LiveProgram, tensors: Sequence[torch.Tensor]) -> str:
        """Why a program that fits a call may not run in the present mode; empty where it may."""
        for module, mode in self._modes[program]:
            if module.training is not mode:
                return f"{'train' if module.training else 'eval'}() mode"
        if not program.differentiable and torch.is_grad_enabled():
            if any(t.requires_grad for t in tensors):
                return "an input requires gradients, and the kernels are for inference"
            if self.original.training and any(p.requires_grad for p in self.original.parameters()):
                return "training: the kernels are for inference (torch.no_grad() runs them, backward=True writes others)"
        return ""

    def _first_time(self, key: Any, named: dict[str, Any], tensors: list[torch.Tensor]) -> tuple[LiveProgram | None, str]:
        """The program for such calls, or None with the reason; kept for later ones."""
        if len(self._known) >= _MOST_KEYS:
            self._known.clear()
        nest = flatten(named, [], "An argument")
        fits = [self._fit(program, nest, tensors) for program in self.programs]
        found = next((fit for fit in fits if fit[0]), fits[0] if fits else (None, "no kernels were verified"))
        self._known[key] = found
        return found

    def _fit(self, program: LiveProgram, nest: Flattened, tensors: Sequence[torch.Tensor]) -> tuple[LiveProgram | None, str]:
        signature = program.signature
        half, sample = signature.half(tensors), self._sample()
        if program.differentiable or (sample is not None and sample.dtype is not half):
            half = None
        why = program.refused or signature.refusal(nest, tensors, half) or runs_on(self._device(tensors)) or self._state_fits(program)
        if not why and any(not tensors[i].is_contiguous() for i in signature.written):
            why = "an input that is written into is not contiguous"
        why = why or signature.sizes(tensors)
        if why is PROVEN and half is not None and half not in program.tried:
            why = UNPROVEN
        return (program if why in (PROVEN, UNPROVEN) else None), why

    def _state_fits(self, program: LiveProgram) -> str:
        """Why the module's tensors are others than those that were captured; empty where they are the same in kind."""
        try:
            program.model(self.original)
        except Exception as error:  # noqa: BLE001 - the file's own code: the original answers for it
            return reason(error)
        return ""

    def _device(self, tensors: Sequence[torch.Tensor]) -> torch.device:
        return tensors[0].device if tensors else next((t.device for t in self.original.parameters()), torch.device("cpu"))

    def _sample(self) -> torch.Tensor | None:
        """One of the module's tensors: its dtype and device stand for all."""
        owner, name = self._state
        return owner.get(name) if owner is not None else None

    def moved(self) -> None:
        """The module's tensors are elsewhere, or of another dtype: what a file holds besides follows, and nothing is known any more."""
        self._known.clear()
        device = self._device(())
        for program in self.programs:
            program.move(device)

    def _compared(self, program: LiveProgram, tensors: list[torch.Tensor]) -> tuple[LiveProgram | None, str]:
        """Sizes or types of which none was tried: the kernels' result beside the original's, once."""
        half = program.signature.half(tensors)
        new = "a size of 1" if half is None else str(half).removeprefix("torch.")
        if program.signature.written or any(mode for _, mode in program.signature.modes):
            return None, new
        try:
            wrong = self.difference(program, tensors)
        except Exception as error:  # noqa: BLE001 - guards of the file, and Triton's compiler
            wrong = reason(error)
        if half is not None and not wrong:
            program.tried.add(half)
        return (None, f"{new}: {wrong}") if wrong else (program, PROVEN)

    def _by_original(self, why: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self.original_calls:
            what = f"A call of {type(self.original).__name__} runs the original forward ({why})."
            text = f"{what} This is said once; module.kernelllm.original_calls counts."
            warnings.warn(text, KernelsNotUsed, stacklevel=6)
        self.original_calls[why] += 1
        return self.original.forward(*args, **kwargs)


class _InferenceOnly(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, result: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise RuntimeError("These kernels are for inference and compute no gradients: after module.train() torch does the work")


class KernelModule(torch.nn.Module):
    """The original module with kernels in its forward. Parameters, buffers and submodules are the original's own, under the same names.

    ``module.kernelllm`` is the :class:`Dispatch` that counts calls and holds the original.
    """

    kernelllm: Dispatch

    def __init__(self, original: torch.nn.Module, programs: Sequence[LiveProgram]) -> None:
        training = original.training
        vars(self)["kernelllm"] = Dispatch(original, programs)
        super().__init__()
        original.training = training
        vars(self).update({name: value for name, value in vars(original).items() if name in vars(self) and name not in _OWN})

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The original's result: by kernels where they were verified for such a call."""
        dispatch = vars(self)["kernelllm"]
        if torch.compiler.is_compiling():
            return dispatch.original.forward(*args, **kwargs)
        if isinstance(args, torch.fx.Proxy):
            raise UsageError("torch.fx cannot trace a module with kernels itself.", fix="Trace the original: module.kernelllm.original.")
        return dispatch(args, kwargs)

    @property
    def training(self) -> bool:
        """The original's mode."""
        return bool(vars(self)["kernelllm"].original.training)

    @training.setter
    def training(self, mode: bool) -> None:
        vars(self)["kernelllm"].original.training = mode

    def train(self, mode: bool = True) -> KernelModule:
        self.kernelllm.original.train(mode)
        return self

    def _apply(self, fn: Any, recurse: bool = True) -> KernelModule:
        dispatch = self.kernelllm
        dispatch.original._apply(fn, recurse)
        dispatch.moved()
        return self

    def __prepare_scriptable__(self) -> torch.nn.Module:
        return self.kernelllm.original

    def _replicate_for_data_parallel(self) -> Any:
        return self.kernelllm.original._replicate_for_data_parallel()

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.kernelllm.original.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.kernelllm.original.load_state_dict(*args, **kwargs)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self.kernelllm.original._load_from_state_dict(*args, **kwargs)

    def extra_repr(self) -> str:
        """Whose forward it is, and who ran how many calls."""
        known = self.kernelllm
        return f"{type(known.original).__name__} by kernels in {known.kernel_calls} calls, by torch in {known.original_calls.total()}"

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "__class__" and issubclass(value, KernelModule) and value.__name__.startswith("Parametrized"):
            raise UsageError("A module with kernels takes no parametrization itself.", fix="Give it to module.kernelllm.original.")
        if "kernelllm" in vars(self) and name != "__class__":  # which wrappers make one of their own
            setattr(self.kernelllm.original, name, value)
            if name in vars(self):  # nn.Module's own, such as what kind of hooks there are
                vars(self)[name] = value
        else:
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self.kernelllm.original, name)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__") or "kernelllm" not in vars(self):
                raise
            return getattr(vars(self)["kernelllm"].original, name)

    def __getitem__(self, place: Any) -> Any:
        return self.kernelllm.original[place]  # type: ignore[index]

    def __setitem__(self, place: Any, value: Any) -> None:
        owner: Any = self.kernelllm.original
        owner[place] = value

    def __delitem__(self, place: Any) -> None:
        owner: Any = self.kernelllm.original
        del owner[place]

    def __len__(self) -> int:
        return len(self.kernelllm.original)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        return True


def difference(
    kernels: Callable[[Sequence[torch.Tensor]], Any],
    torchs: Callable[[torch.nn.Module, Sequence[torch.Tensor]], Any],
    original: torch.nn.Module,
    tensors: Sequence[torch.Tensor],
) -> str:
    """Run both on copies of the same tensors. What differs in results or written inputs, empty where nothing does. Raises what they raise.

    ``torchs`` runs the original, or a copy of it in float64, which decides between the two where they differ. fp32 convolutions may round
    to TF32 where torch lets them.
    """
    rules = Rules(precise=False)
    mine, theirs = _copies(tensors), _copies(tensors)
    with torch.no_grad():
        with kept_state(original):
            results = [*_tensors(kernels(mine)), *mine]
        with kept_state(original):
            expected = [*_tensors(torchs(original, theirs)), *theirs]
        compared = compare(results, Expected(expected), rules)
        if not compared.ok:
            inputs = [t.double() if t.is_floating_point() else t for t in _copies(tensors)]
            try:
                in_float64 = copy.deepcopy(original).double()
                exact = [*_tensors(torchs(in_float64, inputs)), *inputs]
                rounded = _copies(tensors)
                convolved: Any = Tf32Convolutions if torch.backends.cudnn.allow_tf32 else contextlib.nullcontext
                with convolved(), kept_state(original):
                    as_right = ([*_tensors(torchs(original, rounded)), *rounded],)
            except Exception as error:  # noqa: BLE001 - code of others: what cannot run in float64 is compared as it is
                log.debug("no float64 result of %s: %s", type(original).__name__, error)
                return compared.message
            compared = compare(results, Expected(expected, exact, True, as_right), rules)
    return "" if compared.ok else compared.message


def _copies(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [t.detach().clone() for t in tensors]


def _tensors(result: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    flatten(result, found, "The result of the module")
    return found
