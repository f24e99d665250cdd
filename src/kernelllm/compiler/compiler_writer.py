"""The compiler as a writer: one problem, several ways to compile it, each a candidate of its own."""

from __future__ import annotations

import ast
import logging
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import msgspec

from kernelllm.backends.base import open_backend
from kernelllm.compiler import write_time
from kernelllm.compiler.options import Options
from kernelllm.compiler.recurrences import operator_file
from kernelllm.compiler.subprocess_writer import SubprocessWriter
from kernelllm.core.errors import CaptureError, KernelLLMError, UsageError
from kernelllm.core.text import syntax_tree
from kernelllm.core.types import GRADIENTS, Attempt, Candidate, Problem, Status
from kernelllm.core.writer import Writer

if TYPE_CHECKING:
    from kernelllm.compiler.capture.captured import Captured
    from kernelllm.compiler.inductor.lower import Lowered

_CALLED = re.compile(r"torch\.(?:ops\.aten\.|nn\.functional\.)(\w+)|torch\.(mm|bmm|addmm|baddbmm|lstm|gru|rnn_tanh|rnn_relu)")
_FINDING = {"nonzero"}
_MOVING = {"view_as_complex", "view_as_real", "as_strided", "empty", "zeros", "full", "clone", "unbind", "_to_copy", "copy_", "fill_"}
"""Operators that compute nothing: they view or place elements, or find them."""
__all__ = ["left_to_torch", "refuse_idle"]
log = logging.getLogger(__name__)

PORTFOLIO: tuple[dict[str, Any], ...] = (
    {"fixed": True, "mixed": True},
    {"fixed": True, "autotune": True},
    {},
    {"fixed": True, "autotune": True, "attention": "cudnn"},
    {"extern": "allow"},
)
"""The candidates that may leave work to torch, ahead of the rest. The first has at the problem's sizes what is known to be the fastest,
the second what ``torch.compile`` has, both with all block sizes that it would try."""
VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"extern": "allow"},
    {"autotune": True},
    {"persistent": "never", "tile": "large"},
    {"tile": "small"},
    {"fusion": False},
    {"persistent": "always"},
    {"split_reductions": False},
    {"autotune": True, "extern": "allow"},
    {"tile": "large"},
    {"tile": "small", "persistent": "never"},
    {"fusion": False, "extern": "allow"},
)
"""What distinguishes the candidates of a problem, most promising first. Two that compile to the same text count once."""

UNROLLED: dict[str, Any] = {"extern": "allow", "symbolic": False, "unroll": True, "mixed": True}
"""A loop over a dimension as ``torch.compile`` has it, with templates where they are faster: comes next where the loop stayed launches,
and where it became a kernel that computes products, so that a GPU may tell which is faster."""

OWN_DTYPE: dict[str, Any] = {"any_dtype": False}
"""A file for the inputs' own dtypes: comes next where one was right with these, and wrong with others that it served."""

CAREFUL: tuple[dict[str, Any], ...] = ({"trace": "export"}, {"symbolic": False})
"""Other ways of capture, which come next where every candidate so far was judged wrong."""

WRONG = (Status.INCORRECT, Status.COMPILE_ERROR, Status.RUNTIME_ERROR)

GIVE_UP = 3
"""After this many ways that failed and none that worked, the rest would fail as well."""


class Compiler(Writer):
    """Writes candidates with no language model. ``options`` are fields of :class:`Options`."""

    name = "compiler"
    summary = "torch.export and Inductor's code generation, turned into readable Triton; no model, no weights, no GPU"

    def __init__(self, **options: Any) -> None:
        try:
            self.options = msgspec.convert(options, Options, strict=False)  # on a command line they are text
        except msgspec.ValidationError as error:
            known = get_args(get_type_hints(Options).get(str(error).rpartition("$.")[2].strip("`")))
            fix = f"Known: {', '.join(known)}." if known else ""
            raise UsageError(f"An option of the compiler does not fit: {error}.", fix=fix) from error
        self._subprocess: SubprocessWriter | None = None

    @classmethod
    def takes(cls, rest: str) -> Collection[str]:
        """The fields of :class:`Options`."""
        return Options.__struct_fields__

    @classmethod
    def lacks(cls) -> str:
        """Triton, where it is not installed."""
        return "" if find_spec("triton") else "the package triton (Linux only)"

    def identity(self) -> dict[str, Any]:
        """The options that are not the default."""
        return {"model": self.name, "options": self.options.differences()}

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "_subprocess": None}

    def close(self) -> None:
        """End the process that it may have started."""
        if self._subprocess is not None:
            self._subprocess.close()

    def write(self, problem: Problem, n: int, feedback: Sequence[Attempt] = ()) -> Iterator[Candidate]:
        """At most ``n`` candidates with different text, the best guess first; what ``feedback`` holds is not written again.

        Where there is a GPU, which a judge may be using, it works in a process of its own.
        Raises CaptureError when the problem cannot be compiled in any way that the options allow, ProblemError when the reference fails.
        """
        import torch

        if not torch.cuda.is_available():
            yield from self.write_here(problem, n, feedback)
            return
        self._subprocess = self._subprocess or SubprocessWriter(self.write_here)
        yield from self._subprocess.candidates(problem, n, feedback)

    def write_here(self, problem: Problem, n: int, feedback: Sequence[Attempt] = ()) -> Iterator[Candidate]:
        """:meth:`write` in this process."""
        from kernelllm.compiler.loops import loop_file

        written = {attempt.candidate.digest for attempt in feedback}
        tried = [attempt.candidate.params for attempt in feedback]
        errors: list[CaptureError] = []
        known = Lowerings()
        count, spent, attends, pathless = 0, 0.0, bool(feedback), False
        allowed = self.options.write_time * (2 if self.options.extern == "auto" else 1)
        all_wrong = bool(feedback) and all(attempt.verdict.status in WRONG for attempt in feedback)
        served = any(finding.check == "silently_different" for attempt in feedback for finding in attempt.verdict.findings)
        ways = self._ways(next_ways=((OWN_DTYPE,) if served else ()) + CAREFUL if all_wrong else ())
        for at, options in enumerate(ways):
            if count == n or spent > allowed:
                break
            if GRADIENTS in problem.tags:
                options = msgspec.structs.replace(options, backward=True)
            if options.differences() in tried or (options.attention != "torch" and not attends):
                continue
            if options.fixed and (options.backward or pathless):
                continue
            if len(errors) >= GIVE_UP and count == 0:
                break
            start = time.thread_time()
            try:
                with write_time.limited(allowed - spent):
                    source = _in_one_way(problem, options, known)
                refuse_idle(source, problem.name)
            except CaptureError as error:
                log.info("%s with %s: %s", problem.name, options.differences(), error)
                errors.append(error)
                continue
            finally:
                spent += time.thread_time() - start
            attends |= "scaled_dot_product_attention(" in source
            # without templates there may be a path still; where there is none, no variant has one
            pathless |= options.fixed and not options.mixed and "forward_at_known_sizes" not in source
            left = f"Torch does {', '.join(names)}." if (names := left_to_torch(source)) else ""
            candidate = Candidate(source=source, model=self.name, sample=count, params=options.differences(), note=left)
            if candidate.digest in written:
                continue
            written.add(candidate.digest)
            count += 1
            yield candidate
            unsure = loop_file.launches_in_a_loop(source) or operator_file.multiplies(source)
            if self.options.extern == "auto" and unsure and not any(way.unroll for way in ways):
                ways.insert(at + 1, msgspec.structs.replace(self.options, **UNROLLED))
        if count == 0 and errors and not feedback:
            raise errors[0]

    def _ways(self, *, next_ways: Sequence[dict[str, Any]]) -> list[Options]:
        """Options to try in order, each once: the wanted ones, then the variants, which serve as fallbacks too. Those that leave heavy
        operators to torch are among them for ``extern="auto"`` alone: a judge may refuse them."""
        mixed = self.options.extern == "auto"
        wanted = msgspec.structs.replace(self.options, extern="avoid") if mixed else self.options
        first = [*(PORTFOLIO if mixed else ({},)), *next_ways]
        if self.options.steps:
            first = [*first, {"steps": False, "short": True}]
        elif self.options.short:
            first = [*first, {"short": False}]
        variants = [*first, *(change for change in VARIANTS if mixed or "extern" not in change)]
        ways: list[Options] = []
        for options in (msgspec.structs.replace(wanted, **change) for change in variants):
            if options not in ways:
                ways.append(options)
        return ways


_WRITTEN_LATER = ("fixed", "tile", "autotune", "attention", "write_time")
"""Options that matter only where a lowered graph is written."""


class Lowerings:
    """The graphs of one problem as Inductor lowered them, kept for candidates that differ in how they are written alone."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, Options], Lowered] = {}

    def get(self, part: Problem, options: Options) -> Lowered | None:
        """A copy to write from, for options that lead to the same kernels."""
        for (source, theirs), lowered in self._kept.items():
            if source == part.source and _same_kernels(lowered, _lowering(theirs), _lowering(options)):
                return lowered.copied(options)
        return None

    def keep(self, part: Problem, options: Options, lowered: Lowered) -> Lowered:
        """Keep what was lowered; returns a copy to write from, which changes it."""
        self._kept[part.source, options] = lowered
        return lowered.copied(options)


def _lowering(options: Options) -> Options:
    """The options that matter until a graph is lowered."""
    default, mixed = Options(), options.mixed and options.extern == "allow"
    return msgspec.structs.replace(options, mixed=mixed, **{name: getattr(default, name) for name in _WRITTEN_LATER})


def _same_kernels(lowered: Lowered, theirs: Options, ours: Options) -> bool:
    """Whether a graph would be lowered in the same way: there are no reductions to be done otherwise, nor kernels to be cut apart."""
    if not any(graph.wrapper.kernels for graph in lowered.graphs()):
        theirs, ours = (msgspec.structs.replace(options, fusion=True) for options in (theirs, ours))
    if not any(kernel.hints.keys() - {"x", "y", "z"} for graph in lowered.graphs() for kernel in graph.wrapper.kernels.values()):
        theirs, ours = (msgspec.structs.replace(options, persistent="auto", split_reductions=True) for options in (theirs, ours))
    return theirs == ours


def _fixed(problem: Problem, general: Captured, options: Options, known: Lowerings) -> Lowered | None:
    """The forward at the problem's own sizes, lowered as ``torch.compile`` does; None where that does not work, or leaves no kernel."""
    from kernelllm.compiler.capture.capture import captured_for
    from kernelllm.compiler.inductor.lower import lower

    as_torch = msgspec.structs.replace(options, extern="allow", symbolic=False, fixed=False)
    other = any(g.mutated and g.kind not in ("buffer", "input") for g in general.graph_inputs)
    if not as_torch.library or general.bound or other:
        return None
    with write_time.limited(write_time.left() * 2 / 3):  # without the path the file is still whole
        for way in dict.fromkeys((as_torch, msgspec.structs.replace(as_torch, mixed=False))):  # what is for speed alone may fail
            try:
                lower_it = lambda captured, way=way: known.keep(problem, way, lower(captured, way))
                lowered = known.get(problem, way) or captured_for(problem, way, lower_it)
                # how many elements a mask of the inputs has is no size that is known
                return lowered if lowered.wrapper.has_kernels() and not lowered.captured.sizes else None
            except CaptureError as error:
                log.info("%s: no path for its own sizes: %s", problem.name, error)
    return None


def _emitted(part: Problem, lowered: Lowered, options: Options) -> str:
    """The text of a file; one to learn from reads settings off its layers."""
    from kernelllm.compiler.emit import emit
    from kernelllm.compiler.emit.layer_settings import read_settings
    from kernelllm.problems.instance import Instance

    text = emit(part, lowered)
    return read_settings(text, Instance(part).model(0)) if options.short and not options.backward else text


def _in_one_way(problem: Problem, options: Options, known: Lowerings) -> str:
    """:func:`compiled`, with a fault of the compiler as CaptureError: the next way may have none. Raises what that raises."""
    try:
        return compiled(problem, options, known)
    except KernelLLMError:
        raise
    except SystemError as error:  # before Python 3.13, of threads that build syntax trees at the same time; see core.text.syntax_tree
        log.info("%s: once more after %s", problem.name, error)
        return compiled(problem, options, Lowerings())
    except Exception as error:
        log.warning("%s: a fault of the compiler, with %s", problem.name, options.differences() or "its defaults", exc_info=error)
        what = f"The compiler failed on {problem.name!r}: {type(error).__name__}: {error}. This is a fault in kernelllm."
        raise CaptureError(what, fix="Please report it with the module.") from error


def compiled(problem: Problem, options: Options, known: Lowerings | None = None) -> str:
    """The standalone file for a problem, written in the first way that works. Raises CaptureError or ProblemError.

    ``known``: graphs of the problem that were lowered for other candidates; new ones are added.
    """
    from kernelllm.compiler.emit import host_arithmetic
    from kernelllm.compiler.loops.substitution import with_systems
    from kernelllm.problems.instance import with_gradients

    problem = with_systems(msgspec.structs.replace(problem, source=with_gradients(problem.source)))
    if options.steps and not options.backward and (text := _in_steps(problem)):
        return text
    known = known or Lowerings()
    text = _in_chunks(problem, options.settled, known)
    text = text or operator_file.with_gradients(problem, options.settled, lambda part, way: _whole_file(part, way, known))
    text = text or _whole_file(problem, options.settled, known)
    # host arithmetic last: loops are put into kernels by how their grids are written
    return text if options.short or options.steps else host_arithmetic.plain(text)


def _in_steps(problem: Problem) -> str:
    """The file step by step; empty where the module has more."""
    from kernelllm.compiler.stepwise import steps_writer
    from kernelllm.compiler.stepwise.step_values import Unsupported

    try:
        return steps_writer.written(problem)
    except Unsupported as error:
        log.info("%s is not written step by step: %s", problem.name, error)
        return ""


def _in_chunks(problem: Problem, options: Options, known: Lowerings) -> str:
    """The file with the states of a loop over chunks by one kernel; empty where there is no such loop, or that does not work."""
    from kernelllm.compiler.loops.chunk_states import with_chunk_states

    as_it_is = options.backward or options.unroll or options.trace == "export"  # what comes next where a file was wrong
    chunked = None if as_it_is else with_chunk_states(problem)
    if chunked is None:
        return ""
    try:
        with write_time.limited(write_time.left() / 2):
            return _whole_file(chunked, options, known)
    except Exception as error:  # noqa: BLE001 - the loop may be compiled as it is
        log.info("%s: its loop over chunks could not be compiled as such: %s", problem.name, error)
        return ""


def _whole_file(problem: Problem, options: Options, known: Lowerings) -> str:
    from kernelllm.compiler.capture.capture import capture, captured_for
    from kernelllm.compiler.capture.passes import sum_thin_products
    from kernelllm.compiler.inductor.lower import lower
    from kernelllm.compiler.loops import loop_file
    from kernelllm.compiler.recurrences import operator_file

    def written(part: Problem, lowered: Lowered) -> str:
        lowered.fixed = _fixed(part, lowered.captured, options, known) if options.fixed and part is problem else None
        if lowered.fixed is not None:  # other sizes vary: a GPU would choose anew for each
            tuned, lowered.options = lowered.options, msgspec.structs.replace(lowered.options, autotune=False)
            try:
                return _emitted(part, lowered, options)
            except (KernelLLMError, SystemError):
                raise
            except Exception as error:  # a fault of the compiler in what is for speed alone costs the speed, not the file
                log.warning("%s: no path for its own sizes", problem.name, exc_info=error)
                lowered.fixed, lowered.options = None, tuned
        return _emitted(part, lowered, options)

    def part_of_loop(part: Problem, check: Callable[[Captured], None] | None) -> str:
        lowered = known.get(part, options)
        if check and lowered:
            check(lowered.captured)
        if lowered is None:
            captured = capture(part, options)  # the first way alone: where it fails, the unrolled loop comes next
            captured.any_dtype = None  # the file is joined of several, which would have to agree
            if check:
                check(captured)
                sum_thin_products(captured.graph, options)  # of each step: another launch costs more than a library saves
            lowered = known.keep(part, options, lower(captured, options))
        return written(part, lowered)

    as_operator = lambda: operator_file.without_gradients(problem, options, lambda part, way: _whole_file(part, way, known))

    def unrolled() -> str:
        if lowered := known.get(problem, options):
            return written(problem, lowered)
        return captured_for(problem, options, lambda c: written(problem, known.keep(problem, options, lower(c, options))))

    def looped() -> str:
        return loop_file.written(problem, part_of_loop, as_operator, strict=options.extern == "forbid")

    return unrolled() if options.backward or options.unroll else loop_file.chosen(problem, looped, unrolled)


def left_to_torch(source: str, *, found_too: bool = False) -> list[str]:
    """The operators that the file's module has torch compute, each once. ``found_too``: and those that find elements."""
    found: dict[str, None] = {}
    classes = [s for s in syntax_tree(source).body if isinstance(s, ast.ClassDef)]  # the module, and its backward
    for node in (node for cls in classes for node in ast.walk(cls)):
        if isinstance(node, ast.Call) and (match := _CALLED.match(ast.unparse(node.func))):
            name = (match[1] or match[2]).removesuffix("_default")
            if name not in _MOVING and (found_too or name not in _FINDING):
                found[name] = None
    return list(found)


def refuse_idle(source: str, name: str) -> None:
    """Raises CaptureError where torch does all that there is to compute: such a file is not compiled."""
    tree = syntax_tree(source)
    kernels = [s for s in tree.body if isinstance(s, ast.FunctionDef) and any("jit" in ast.unparse(d) for d in s.decorator_list)]
    left = left_to_torch(source, found_too=True)
    if kernels and not left:
        return
    computes = open_backend("triton").computes
    if not any(computes(ast.unparse(kernel)) for kernel in kernels):
        does = f" Torch does {', '.join(left)}." if left else " Its forward hands tensors on as they are, or returns none or empty ones."
        fix = "Use a language model (-m)." if left else "Let the forward return what it computes, on tensors with elements."
        raise CaptureError(f"{name!r} is not compiled: nothing is left for a kernel.{does}", fix=fix)
