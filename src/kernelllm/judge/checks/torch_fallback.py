"""Flags candidates that leave the work to torch.

Tracks: ``kernels-only`` (torch may allocate, view, copy, cast, pad and gather), ``hybrid`` (torch may do a part of the
work, not all of it). Without a track the rule is ``hybrid``'s, and what torch did is reported.
"""

from __future__ import annotations

import ast
import math

from kernelllm.backends.base import Backend, open_backend
from kernelllm.core.errors import UnknownName
from kernelllm.core.types import Finding, Severity
from kernelllm.core.verdict_words import percent
from kernelllm.judge.checks.attribute_names import own_object
from kernelllm.judge.checks.operator_families import HEAVY, ON_THE_HOST, UNLISTED, computing, coverage, moving, number_by_number, unknown
from kernelllm.judge.checks.syntax import Source, analyse, starts
from kernelllm.judge.judge_settings import HYBRID, KERNELS_ONLY, TRACKS
from kernelllm.judge.observation import Observation, WatchedOperators

_SOME = 0.1
"""Share of the reference's work below which the kernels did none of it worth the name."""
_MANY = 32
"""Values of a run that are read on the host, from which on they are the work."""
_COMPILERS = (
    "torch.compile", "torch.jit", "torch._inductor", "torch.export", "torch.fx.symbolic_trace", "torch._dynamo.optimize",
    "torch._dynamo.export", "torch._C.CompilationUnit", "torch._C._te", "torch._C._create_function_from_trace", "torch.compiler.compile",
    "torch.onnx", "torch._higher_order_ops", "torch.ops.higher_order", "torch.nn.attention.flex_attention", "torch.cond",
    "torch.while_loop", "torch.nn.Module.compile", "functorch.compile", "torch._functorch",
    "torch._export", "torch._aoti",
)  # fmt: skip
_MARKS = tuple(f"torch.jit.{name}" for name in (
    "is_scripting", "is_tracing", "ignore", "unused", "export", "Final", "annotate", "Attribute", "isinstance",
))  # fmt: skip
"""Members of torch.jit that compile nothing."""
_FROM_ARRAYS = ("torch.from_numpy", "torch.as_tensor", "torch.tensor", "torch.from_dlpack", "torch.asarray", "torch.frombuffer",
                "torch.Tensor", "torch.FloatTensor", "torch.DoubleTensor", "torch.utils.dlpack.from_dlpack")  # fmt: skip
_TO_ARRAYS = ("numpy.asarray", "numpy.array", "numpy.from_dlpack", "numpy.ascontiguousarray", "numpy.asanyarray", "numpy.frombuffer",
              "builtins.memoryview", "torch.utils.dlpack.to_dlpack", "torch.to_dlpack")  # fmt: skip
_INTO_TENSORS = {"new_tensor", "fill_", "set_"}
_ELEMENTWISE = {"apply_", "map_", "map2_"}
"""Methods of tensors that call a Python function for every element: no operator runs."""
_NUMBERS = {"tolist"}
_BYTES = {"untyped_storage", "_typed_storage"}
_OF_MEMORY = {"data_ptr", "nbytes", "size", "resize_", "_cdata", "device"}
"""Members of a tensor's memory that read no values."""
_LOOPS = ast.For | ast.While | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_WHOLE = ("torch.int", "torch.long", "torch.short", "torch.uint8", "torch.bool")
_SETTINGS = ("torch._inductor.config", "torch._inductor.runtime", "torch._inductor.codegen")



class TorchFallback:
    name = "torch_fallback"
    describe = "leaves the work to torch, cuBLAS or cuDNN, or to torch.compile"

    def source(self, tree: ast.Module, backend: Backend) -> list[Finding]:
        """Compilers write the kernels instead of the candidate; arrays that leave torch and come back hide work from it."""
        known = analyse(tree)
        found = [
            Finding(check=self.name, message=f"{use.path} writes kernels in the candidate's place.", line=use.line)
            for use in known.uses()
            if starts(use.path, *_COMPILERS) and not starts(use.path, *_SETTINGS, *_MARKS) and use.path != "torch.jit"
        ]  # fmt: skip
        for node in known.nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not known.paths(node.func):
                if node.func.attr == "compile" and not own_object(known, node.func.value):
                    message = "Calls compile of a module: torch writes kernels in the candidate's place."
                    found.append(Finding(check=self.name, message=message, line=node.lineno))
                elif node.func.attr in _ELEMENTWISE:
                    message = f"Computes by {node.func.attr}, element by element in Python: work that nothing watches."
                    found.append(Finding(check=self.name, message=message, line=node.lineno))
        return found + self._arrays(known)

    def _arrays(self, known: Source) -> list[Finding]:
        """Values that leave torch, as arrays or as numbers, and come back as tensors."""
        made: list[ast.expr] = [call for call, path in known.calls() if path in _TO_ARRAYS and not _written_out(call)]
        leaves = [node for node in known.attributes() if node.attr in ("numpy", "__array__", "__dlpack__") and not known.paths(node)]
        leaves += [node for node in known.attributes() if node.attr in _BYTES and not known.paths(node) and not _of_memory(known, node)]
        numbers = _numbers(known)
        into = any(starts(path, "numpy") and any(k.arg == "out" for k in call.keywords) for call, path in known.calls())
        stored = leaves and any(isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load) for node in known.nodes)
        found = []
        if (leaves or made) and (into or stored or _come_back(known, whole=True)):
            message = "Tensors leave torch as arrays and come back: work that nothing watches."
            certain = leaves or into  # an array that was made of numbers may well become a tensor
            severity = Severity.FAIL if certain else Severity.WARN
            found.append(Finding(check=self.name, message=message, line=[*leaves, *made][0].lineno, severity=severity))
        if numbers and _come_back(known, whole=False):
            message = "A tensor's values are read as Python numbers, and numbers become a tensor: work that nothing watches."
            found.append(Finding(check=self.name, message=message, line=numbers[0].lineno))
        return found

    def observed(self, seen: Observation) -> list[Finding]:
        """Operators of the observed runs beside the reference's. Raises UnknownName for an unknown track."""
        if seen.track is not None and seen.track not in TRACKS:
            raise UnknownName(f"Unknown track {seen.track!r}.", fix=f"Known: {', '.join(TRACKS)}.")
        ours, theirs = computing(seen.aten_ops), computing(seen.reference_ops)
        for where, ops in (("", seen.aten_ops), *((f" {one.where}", one.ops) for one in seen.elsewhere)):
            if hidden := unknown(ops):
                message = f"Works inside an operator of which nothing is counted{where} ({hidden[0]}): launch kernels directly."
                return [Finding(check=self.name, message=message)]
            if seen.track == KERNELS_ONLY and (done := computing(ops)):
                message = f"Torch computed{where}: {_named(done)}. On the track kernels-only it may not."
                return [Finding(check=self.name, message=message)]
        for one in seen.elsewhere:
            if one.launches == 0 and _as_many(one):
                message = f"Torch computed {one.where}, and no kernel was launched: {_named(computing(one.ops))}."
                return [Finding(check=self.name, message=message)]
            if _all_at(one):
                message = f"Torch did all that the reference asks of it {one.where}: {_named(computing(one.ops))}. Write kernels for it."
                return [Finding(check=self.name, message=message)]
        first = ("", seen.aten_ops, seen.observed_runs, seen.reference_ops)
        for where, ops, runs, reference in (first, *((f" {one.where}", one.ops, 1, one.reference_ops) for one in seen.elsewhere)):
            read = ops.get(ON_THE_HOST, 0) // max(runs, 1) - reference.get(ON_THE_HOST, 0)
            if read >= _MANY:
                message = f"{read} floating-point values of a run become numbers or arrays on the host{where}: work that nothing watches."
                return [Finding(check=self.name, message=message)]
            if (many := number_by_number(ops) // max(runs, 1)) >= _MANY:
                message = f"Reads and writes {many} values one by one as Python numbers{where}: work that nothing watches."
                return [Finding(check=self.name, message=message)]
        if seen.track != HYBRID and (little := _little(seen)):
            return [Finding(check=self.name, message=f"{little} Write kernels for it, or judge on the track hybrid.")]
        if not ours:
            return []
        named = _named(_of_a_run(ours, seen))
        if theirs and _all_of_it(ours, theirs, seen):
            return [Finding(check=self.name, message=f"Torch did all that the reference asks of it: {named}. Write kernels for it.")]
        bodies = [seen.kernel_bodies.get(kernel.name, "") for kernel in seen.kernels if kernel.launches]
        if theirs and bodies and all(bodies) and not any(open_backend(seen.candidate.backend).computes(body) for body in bodies):
            return [Finding(check=self.name, message=f"The kernels only move data; torch computed: {named}.")]
        return [Finding(check=self.name, message=f"Torch computed a part: {named}.", severity=Severity.WARN)]


def _little(seen: Observation) -> str:
    """A message where torch did nearly all of the reference's work in some run, with the kernels' share; empty where it did not."""
    shares = [("", seen.coverage, seen.heavy_flops, _of_a_run(seen.aten_ops, seen))]
    for one in seen.elsewhere:
        shares.append((f" {one.where}", coverage(one.ops, one.flops, one.reference_ops, one.reference_flops), one.flops, one.ops))
    for where, share, heavy, ops in shares:
        if share is not None and share < _SOME:
            unknown_work = (name.removeprefix(UNLISTED) for name in ops if name.startswith(UNLISTED))
            done = ", ".join(sorted({*heavy, *unknown_work})) or _named(computing(ops)) or _named(moving(ops))
            return f"The kernels do {percent(share)} of the reference's work{where}, torch the rest ({done})."
    return ""


def _of_a_run(ops: dict[str, int], seen: Observation) -> dict[str, int]:
    return {name: math.ceil(count / max(seen.observed_runs, 1)) for name, count in ops.items()}


def _numbers(known: Source) -> list[ast.Call]:
    """Calls that read many values of a tensor: ``tolist``, and ``item`` (or ``float(x[i])``) in a loop."""
    found = []
    for node in known.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not known.paths(node.func):
            if node.func.attr in _NUMBERS or (node.func.attr == "item" and _in_loop(known, node)):
                found.append(node)
        elif isinstance(node, ast.Call) and known.paths(node.func) & {"builtins.float", "builtins.complex"} and _in_loop(known, node):
            found += [node] if any(isinstance(argument, ast.Subscript) for argument in node.args) else []
    return found


def _in_loop(known: Source, node: ast.AST) -> bool:
    above = known.parents.get(node)
    while above is not None and not isinstance(above, ast.FunctionDef | ast.Lambda):
        if isinstance(above, _LOOPS):
            return True
        above = known.parents.get(above)
    return False


def _come_back(known: Source, *, whole: bool) -> bool:
    """Whether values of Python become a tensor; ``whole``: tensors of whole numbers (offsets, lengths) count too."""
    for call, path in known.calls():
        if path in _FROM_ARRAYS and not _written_out(call):
            kinds = {kind for keyword in call.keywords if keyword.arg == "dtype" for kind in known.paths(keyword.value)}
            if whole or not kinds or not all(kind.startswith(_WHOLE) for kind in kinds):
                return True
    methods = (node for node in known.nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute))
    return any(node.func.attr in _INTO_TENSORS and not _written_out(node) for node in methods if isinstance(node.func, ast.Attribute))


def _of_memory(known: Source, node: ast.AST) -> bool:
    """``x.untyped_storage().data_ptr()`` and the like."""
    call = known.parents.get(node)
    above = known.parents.get(call) if call is not None else None
    return isinstance(above, ast.Attribute) and above.attr in _OF_MEMORY


def _written_out(call: ast.Call) -> bool:
    """``torch.tensor([1.0, 2.0])`` and the like: constants, no arrays."""
    return bool(call.args) and isinstance(call.args[0], ast.List | ast.Tuple | ast.Constant)


def _named(ops: dict[str, int]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in sorted(ops.items()))


def _all_at(one: WatchedOperators) -> bool:
    """Whether in this run torch did every family of the reference's, the heavy ones by whatever operators."""
    ours, theirs = computing(one.ops), computing(one.reference_ops)
    share = coverage(one.ops, one.flops, one.reference_ops, one.reference_flops)
    heavy_done = share is not None and share < _SOME and sum(one.reference_flops.values()) > 0
    return bool(theirs) and all(ours.get(name, 0) >= count or (name in HEAVY and heavy_done) for name, count in theirs.items())


def _as_many(one: WatchedOperators) -> bool:
    """Whether torch ran as many operators that compute as the reference did."""
    return sum(computing(one.ops).values()) >= sum(computing(one.reference_ops).values()) > 0


def _all_of_it(ours: dict[str, int], theirs: dict[str, int], seen: Observation) -> bool:
    """Every family of the reference's, in most of the runs; the heavy ones also when torch did their FLOPs by other operators."""
    most = 0.5 * max(seen.observed_runs, 1)
    heavy_done = seen.coverage is not None and seen.coverage < _SOME

    def done(name: str, count: int) -> bool:
        return ours.get(name, 0) >= most * count or (name in HEAVY and heavy_done)

    return all(done(name, count) for name, count in theirs.items())
