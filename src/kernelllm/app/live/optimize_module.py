"""``kernelllm.optimize(module, inputs)`` and ``kernelllm.check(candidate, module, inputs)``: from a live module to one with kernels."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import torch

from kernelllm.app import pipeline
from kernelllm.app.judge_options import default_extern
from kernelllm.app.live.active_modes import do_nothing
from kernelllm.app.live.call_arguments import BoundCalls, Call, flatten, input_sets
from kernelllm.app.live.dispatch import HOOKS, KernelModule
from kernelllm.app.live.expert_loops import compare_without_rows
from kernelllm.app.live.freed_sizes import freed
from kernelllm.app.live.module_capture import LiveGraph, captured, in_mode, problem_of
from kernelllm.app.live.program import LiveProgram, reason, runs_on
from kernelllm.app.result import LiveResult, Result
from kernelllm.compiler.cuda_graphs import CudaGraphs
from kernelllm.core import settings
from kernelllm.core.errors import KernelLLMError, UsageError
from kernelllm.core.types import Problem
from kernelllm.judge.judge_settings import HYBRID, JudgeSettings


def optimize(
    module: torch.nn.Module,
    example_inputs: Any = None,
    *,
    train: bool = False,
    backward: bool | None = None,
    judge: JudgeSettings | None = None,
    out: str | os.PathLike[str] | None = None,
    **options: Any,
) -> LiveResult:
    """Verified kernels for a live module: :func:`kernelllm.optimize` with a module. ``options``: those of a problem.

    ``example_inputs``: a tensor, a tuple of arguments, a dictionary of keyword arguments, ``(args, kwargs)``, or a list of such sets.
    ``train``: write what the module does in train() mode; otherwise in eval() mode. ``backward``: write gradients as well; None does so
    for train() mode where something requires gradients. With ``cuda_graph=True`` the module's launches are replayed as CUDA graphs,
    below ``torch.no_grad()``. Judged on the track ``hybrid`` where ``judge`` names
    none. Raises UsageError for a module or inputs that cannot be taken, ProblemError where the module fails on them, CaptureError.
    """

    how = on_hybrid(judge)
    wanted = backward if backward is not None else train and any(p.requires_grad for p in module.parameters())
    how = replace(how, backward=how.backward or wanted)

    if default_extern(str(options.get("model") or settings.load().model), how) is None:
        options.setdefault("extern", "avoid")  # nothing is timed, so that torch's own work would win by its place alone

    def found(problem: Problem, first: bool) -> Result:
        return pipeline.optimize(problem, judge=how, out=out if first else None, **options)

    result = _worked(module, example_inputs, train, how, found)
    return msgspec.structs.replace(result, module=CudaGraphs(result.module)) if options.get("cuda_graph") else result


def check(
    candidate: str | os.PathLike[str],
    module: torch.nn.Module,
    inputs: Any = None,
    *,
    train: bool = False,
    judge: JudgeSettings | None = None,
) -> LiveResult:
    """Judge a file, or its text, against a live module: :func:`kernelllm.check` with a module."""

    how = on_hybrid(judge)

    def found(problem: Problem, first: bool) -> Result:
        return pipeline.check(candidate, problem, judge=how)

    return _worked(module, inputs, train, how, found)


def on_hybrid(judge: JudgeSettings | None) -> JudgeSettings:
    """The settings, on the track ``hybrid`` where they name none."""
    return judge if judge is not None and judge.track else replace(judge or JudgeSettings(), track=HYBRID)


def _worked(
    module: torch.nn.Module, inputs: Any, train: bool, how: JudgeSettings, work: Callable[[Problem, bool], Result]
) -> LiveResult:
    """One problem for each set of inputs that no earlier one serves, the work on them, and the module with what is right of it."""
    start = time.monotonic()
    original = module.kernelllm.original if isinstance(module, KernelModule) else module
    check_module(original)
    given = input_sets(original, inputs)
    materialize(original, given[0])
    results: list[Result] = []
    programs: list[LiveProgram] = []
    graphs: list[LiveGraph] = []
    notes: list[str] = []
    with in_mode(original, train):
        for number, call in enumerate(given, 1):
            if any(not graph.signature.unfit(original, call) for graph in graphs):
                continue
            try:
                graph = captured(original, call)
                name = type(original).__name__ + (f"_{number}" if number > 1 else "")
                graph, problem = freed(original, graph, problem_of(original, graph, name))
                compare_without_rows(original, graph, problem)
                result = work(problem, number == 1)
            except KernelLLMError as error:
                if number == 1:
                    raise
                notes.append(f"Input set {number}: {error}")
                continue
            graphs.append(graph)
            results.append(result)
            if result.best is not None:
                source = result.best.candidate.source
                made_of = (source, graph.signature, graph.output, graph.constants)
                programs.append(LiveProgram(*made_of, differentiable=how.backward, fills=graph.fills))
            if result.interrupted:
                break
        made = KernelModule(original, programs)
        notes += [*_notes(graphs, train), *_compare(made, given)]
    whole = {name: getattr(results[0], name) for name in results[0].__struct_fields__}
    whole["message"] = " ".join([*(r.message for r in results if r.message), *notes])
    whole["seconds"] = time.monotonic() - start
    return LiveResult(**whole, module=made, others=tuple(results[1:]))


def check_module(module: torch.nn.Module) -> None:
    """Raises UsageError for a module that cannot be taken as it is."""
    if isinstance(module, torch.jit.ScriptModule):
        raise UsageError("The module is TorchScript.", fix="Give the nn.Module that it was made of.")
    inside = [(path, [vars(m)[kind] for kind in HOOKS]) for path, m in module.named_modules() if path and not _is_lazy(m)]
    hooked = [path for path, hooks in inside if not do_nothing(hooks)]
    if hooked:
        raise UsageError(
            f"The submodule {hooked[0]} has hooks, which kernels would not run.", fix="Remove them: handle.remove()."
        )
    absent = next((n for n, t in (*module.named_parameters(), *module.named_buffers()) if t.is_meta), None)
    if absent:
        raise UsageError(f"The module has no values: {absent} is on the device meta.", fix="Load its weights first.")


def _is_lazy(module: torch.nn.Module) -> bool:
    return isinstance(module, torch.nn.modules.lazy.LazyModuleMixin)


def materialize(module: torch.nn.Module, call: Call) -> None:
    """Run a module with lazy layers once, which gives them their sizes."""
    if any(_is_lazy(m) and m.has_uninitialized_params() for m in module.modules()):  # type: ignore[operator]
        with torch.no_grad():
            module(*call[0], **call[1])


def _notes(graphs: list[LiveGraph], train: bool) -> list[str]:
    """What is fixed and a person may not expect: eval() mode where that makes a difference, a batch of one."""
    notes = []
    if not train and any(g.signature.modes for g in graphs):
        notes.append("Written for eval() mode, on which some layers depend; train=True is for the other.")
    left = list(dict.fromkeys(name for g in graphs for name in g.left))
    if left:
        notes.append(f"The forward sets {', '.join(left)} for others to read, which kernels do not.")
    single = [g.signature.names[0] for g in graphs if g.inputs and g.inputs[0].shape[:1] == (1,)]
    if single and len(single) == len(graphs):
        notes.append(f"{single[0]} has a first dimension of 1, which is fixed now; example inputs of at least 2 let it vary.")
    return notes


def _compare(made: KernelModule, given: list[Call]) -> list[str]:
    """Original and result side by side on the person's own inputs; a program that differs is not used."""
    dispatch, notes = made.kernelllm, []
    for call in given:
        tensors: list[torch.Tensor] = []
        flatten(BoundCalls(dispatch.original.forward).named(*call), tensors, "An argument of the module")
        program = next((p for p in dispatch.programs if not p.signature.unfit(dispatch.original, call)), None)
        why = runs_on(tensors[0].device) if tensors and program else ""
        if program is None or why:
            notes += [f"Not compared on the example inputs, and .module runs the original: {why}."] if why else []
            continue
        try:
            wrong = dispatch.difference(program, tensors)
            wrong = wrong and f"On the example inputs the kernels differ from the original: {wrong}"
        except Exception as error:  # noqa: BLE001 - guards of the file, and Triton's compiler: the original answers for it
            wrong = f"The kernels fail in this process: {reason(error)}."
        if wrong:
            program.refused = wrong.rstrip(".")
            notes.append(f"{wrong} .module runs the original.")
    return list(dict.fromkeys(notes))
