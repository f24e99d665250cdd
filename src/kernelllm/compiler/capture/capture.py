"""The entry point of capture: a problem becomes an ATen graph with symbolic sizes, on fake tensors, with no GPU and no memory.

Ways that are tried in turn: ``make_fx`` with symbols for the problem's sizes, ``torch.export`` with dynamic input
shapes, ``make_fx`` at the problem's own sizes. The first that works is taken; :class:`Captured` says which.
"""

from __future__ import annotations

import logging
import math
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TypeVar

import torch
import torch.utils._pytree as pytree
from torch.autograd import forward_ad

from kernelllm.compiler import write_time
from kernelllm.compiler.capture import fx_trace, size_quotients, torch_export
from kernelllm.compiler.capture.captured import Captured
from kernelllm.compiler.capture.fake_module import describe
from kernelllm.compiler.capture.half_precision import any_dtype
from kernelllm.compiler.capture.untraceable import UnknownSize, Untraceable
from kernelllm.compiler.options import Options
from kernelllm.core.background import TORCH
from kernelllm.core.errors import CaptureError, KernelLLMError, ProblemError
from kernelllm.core.quiet import quiet_thread
from kernelllm.core.types import Problem
from kernelllm.problems import sizes
from kernelllm.problems.first_run import first_run
from kernelllm.problems.hidden_constants import hidden_constants
from kernelllm.problems.instance import Instance
from kernelllm.problems.relations import SMALL

log = logging.getLogger(__name__)
T = TypeVar("T")
LONG = 15.0
"""Seconds of tracing after which it is not tried whether the module computes the same in half precision: that takes a third of them."""


def capture(problem: Problem, options: Options) -> Captured:
    """Trace the problem's forward into an ATen graph, in the first way that works. Raises as :func:`captured_for`."""
    return captured_for(problem, options, lambda captured: captured)


@quiet_thread()
def captured_for(problem: Problem, options: Options, use: Callable[[Captured], T]) -> T:
    """``use`` of the graph, in the first way of tracing for which neither the tracing nor ``use`` fails.

    Raises ProblemError where the module cannot be built or its inputs drawn, CaptureError naming each cause once
    where no way works.
    """
    first_run(problem)
    failures: list[Exception] = []
    exported = () if options.backward else (torch_export.exported,)  # torch.export exports no gradients
    traced = (fx_trace.symbolic,) if options.trace == "make_fx" or options.backward else ()
    symbolic = (*traced, *exported, *((fx_trace.of_inputs,) if traced else ())) if options.symbolic else ()
    ways = [*symbolic, fx_trace.static]
    while ways:
        way = ways.pop(0)
        last = not ways
        try:
            with write_time.limited((1.0 if last else 0.5) * write_time.left()):
                write_time.check()
                before = write_time.left()
                with TORCH, warnings.catch_warnings(), _same_depth(), ExitStack() as stack:
                    warnings.simplefilter("ignore")  # torch's remarks about tracing are of no use to the reader
                    size_quotients.simplified(stack)
                    captured = way(problem, options)
                spent = before - write_time.left()
                if torch_export.exported in ways and _hides_sizes(captured):
                    ways.insert(ways.index(torch_export.exported) + 1, way)  # where there is no other way
                    continue
            with write_time.limited((1.0 if last else 0.8) * write_time.left()):
                captured.fixed = fixed_constants(captured)
                one = options.backward or options.library or options.short or not options.any_dtype or spent > LONG
                captured.any_dtype = None if one else any_dtype(problem, options)
                captured.notes += tuple(_cause(e, problem) for e in failures)
                return use(captured)
        except ProblemError:
            raise
        except Exception as error:  # tracing runs code of others and torch's compiler: they raise anything
            log.info("%s: %s failed: %s", problem.name, way.__name__, _cause(error, problem))
            log.debug("the traceback", exc_info=error)
            failures.append(error)
            if options.extern == "forbid" and isinstance(error, CaptureError) and not isinstance(error, write_time.OutOfTime):
                break  # the operator stays the same in every way
    raise _refusal(problem, failures) from failures[-1]


@contextmanager
def _same_depth() -> Iterator[None]:
    """What is still inside of ``torch.vmap`` or ``jvp`` at the end is left: an error in torch.export leaves it open, for all that the
    process does."""
    depth, dual = torch._C._functorch.get_dynamic_layer_stack_depth(), forward_ad._current_level >= 0
    try:
        yield
    finally:
        torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)
        if not dual:
            with suppress(RuntimeError):  # there is none to leave
                torch._C._exit_dual_level(level=0)
            forward_ad._current_level = -1


def _hides_sizes(captured: Captured) -> bool:
    """Whether inputs have sizes made of several of the problem's that cannot be told from them (``graphs * nodes``): those would be fixed.
    For torch.export such a size is one of its own, and those of parameters are numbers."""
    hidden = {size.symbol for size in captured.sizes if not (size.sources or size.expression)}
    placeholders = captured.graph.graph.find_nodes(op="placeholder")
    given = zip(captured.graph_inputs, placeholders, strict=True)
    noted = [node.meta.get("val") for graph_input, node in given if graph_input.kind == "input"]
    lengths: list[Any] = [n for value in noted if isinstance(value, torch.Tensor) for n in value.shape if isinstance(n, torch.SymInt)]
    symbols = {str(s) for n in lengths for s in n.node.expr.free_symbols}
    return bool(hidden & symbols)


def _cause(error: Exception, problem: Problem) -> str:
    if isinstance(error, KernelLLMError):
        return error.what
    return str(error) if isinstance(error, Untraceable) else describe(error, problem)


def _causes(failures: list[Exception], problem: Problem) -> list[str]:
    """Each cause once: under its way, or bare where several ways met the same."""
    told = [(e.cause if isinstance(e, Untraceable) else _cause(e, problem), _cause(e, problem)) for e in failures]
    bare = [cause for cause, _ in told]
    return list(dict.fromkeys(cause if bare.count(cause) > 1 else whole for cause, whole in told))


def _refusal(problem: Problem, failures: list[Exception]) -> CaptureError:
    """One error for all ways: what was refused as such, or each cause once."""
    unknown = [str(e) for e in failures if isinstance(e, UnknownSize)]
    causes = _causes(failures, problem)
    refused = [e for e in failures if isinstance(e, CaptureError)]
    if len(causes) == 1 and refused:
        return refused[0]
    if unknown:
        causes = [max(unknown, key=len)]  # torch.export knows the line
    causes = [c for c in causes if "not compiled with CUDA" not in c] or causes  # that there is no GPU is not why
    traced = all(isinstance(e, Untraceable) for e in failures)
    return CaptureError(
        f"The forward of {problem.name!r} could not be {'traced' if traced else 'compiled'}: " + " Then: ".join(causes),
        where=problem.path or problem.name,
        fix="Rewrite the named construct without a decision that depends on tensor values, or use a language model (-m)."
        if traced else "Try --extern allow, or use a language model (-m).",
    )


def fixed_constants(captured: Captured) -> dict[str, Any]:
    """Name to value. Kernel sizes and other small numbers, which nobody changes, are not among them, a small batch is."""
    unseen = hidden_constants(captured.problem)
    known = {n: v for n, v in sizes.constants(captured.problem).items() if n not in unseen}
    if captured.way == "make_fx":
        untold = (size.constant for size in captured.sizes if not size.told)
        pinned = {key.partition("[")[0] for key in (*captured.specialized, *_held_by_guards(captured), *untold)}
        fixed = {n: v for n, v in known.items() if n in pinned}
    elif captured.way == "static":
        fixed = known
    else:
        of_model = sizes.model_constants(captured.problem.source)
        fixed = {n: v for n, v in known.items() if n in of_model or not _stays_general(captured, n, v)}
    return {n: v for n, v in fixed.items() if _largest(n, v) > SMALL or _shapes_inputs(captured.problem, n, v)}


def _held_by_guards(captured: Captured) -> set[str]:
    """Constants of which a condition leaves little: an expression of theirs alone has to be a certain number, and is not for half of
    the size or for twice."""
    of = {size.symbol: size for size in captured.sizes if not size.expression}
    found: set[str] = set()
    for left, sign, right in captured.guards:
        named = set(re.findall(r"\bs\d+\b", f"{left} {right}"))
        if sign == "==" and len(named) == 1 and named <= of.keys() and (left.isdigit() or right.isdigit()):
            size = of[named.pop()]
            if not all(_holds(f"{left} == {right}", {size.symbol: n}) for n in (size.hint // 2, 2 * size.hint)):
                found.add(size.constant)
    return found


def _holds(condition: str, values: dict[str, int]) -> bool:
    """Whether it is known to hold for these sizes."""
    try:
        return bool(eval(condition, {"math": math, "torch": torch, "Min": min, "Max": max, "__builtins__": {}}, values))
    except (NameError, ArithmeticError, TypeError, SyntaxError):
        return False


def _shapes_inputs(problem: Problem, name: str, value: Any) -> bool:
    before, after = _shapes(problem, {}), _shapes(problem, {name: pytree.tree_map(lambda v: 2 * v, value)})
    return before is not None and after is not None and before != after


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
