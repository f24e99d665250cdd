"""Leaves the work to torch.

Tracks: ``kernels-only`` (torch may allocate, view, copy, cast, pad and gather), ``hybrid`` (torch may do a part of the
work, not all of it). Without a track the rule is ``hybrid``'s, and what torch did is reported.
"""

from __future__ import annotations

import ast

from kernelllm.backends.base import Backend, open_backend
from kernelllm.core.errors import UnknownName
from kernelllm.core.types import Finding, Severity
from kernelllm.judge.checks.operators import HEAVY, computing, unknown
from kernelllm.judge.checks.syntax import analyse, starts
from kernelllm.judge.observation import Observation, WatchedOperators
from kernelllm.judge.settings import KERNELS_ONLY, TRACKS

_SOME = 0.1
"""Share of the heavy FLOPs below which the kernels did none of them worth the name."""
_COMPILERS = ("torch.compile", "torch.jit.script", "torch.jit.trace", "torch._inductor", "torch.export", "torch.fx.symbolic_trace",
              "torch._dynamo.optimize", "torch.jit.optimize_for_inference", "torch.jit.freeze")  # fmt: skip
_FROM_ARRAYS = ("torch.from_numpy", "torch.as_tensor", "torch.tensor", "torch.from_dlpack", "torch.asarray")
_TO_ARRAYS = ("numpy.asarray", "numpy.array", "numpy.from_dlpack", "numpy.ascontiguousarray", "numpy.asanyarray")
_SETTINGS = ("torch._inductor.config", "torch._inductor.runtime", "torch._inductor.codegen")



class TorchFallback:
    """See the module."""

    name = "torch_fallback"
    describe = "leaves the work to torch, cuBLAS or cuDNN, or to torch.compile"

    def source(self, tree: ast.Module, backend: Backend) -> list[Finding]:
        """Compilers write the kernels instead of the candidate; arrays that leave torch and come back hide work from it."""
        known = analyse(tree)
        found = [
            Finding(check=self.name, message=f"{use.path} writes kernels in the candidate's place.", line=use.line)
            for use in known.uses() if starts(use.path, *_COMPILERS) and not starts(use.path, *_SETTINGS)
        ]  # fmt: skip
        made = [call for call, path in known.calls() if path in _TO_ARRAYS and not _written_out(call)]
        returns = any(path in _FROM_ARRAYS and not _written_out(call) for call, path in known.calls())
        into = any(starts(path, "numpy") and any(k.arg == "out" for k in call.keywords) for call, path in known.calls())
        leaves = [node for node in known.attributes() if node.attr in ("numpy", "__array__", "__dlpack__") and not known.paths(node)]
        places: list[ast.expr] = [*leaves, *made]
        if places and (returns or into):
            message = "Tensors leave torch as arrays and come back: work that nothing watches."
            certain = leaves or into  # an array that was made of numbers may well become a tensor
            severity = Severity.FAIL if certain else Severity.WARN
            found.append(Finding(check=self.name, message=message, line=places[0].lineno, severity=severity))
        return found

    def observed(self, seen: Observation) -> list[Finding]:
        """Operators of the observed runs beside the reference's. Raises UnknownName for an unknown track."""
        if seen.track is not None and seen.track not in TRACKS:
            raise UnknownName(f"Unknown track {seen.track!r}.", fix=f"Known: {', '.join(TRACKS)}.")
        ours, theirs = computing(seen.aten_ops), computing(seen.reference_ops)
        for where, ops in (("", seen.aten_ops), *((f" {one.where}", one.ops) for one in seen.elsewhere)):
            if hidden := unknown(ops):
                message = f"Works inside an operator of its own{where} ({hidden[0]}): nothing is counted there, launch kernels directly."
                return [Finding(check=self.name, message=message)]
            if seen.track == KERNELS_ONLY and (done := computing(ops)):
                message = f"Torch computed{where}: {_named(done)}. On the track kernels-only it may not."
                return [Finding(check=self.name, message=message)]
        for one in seen.elsewhere:
            if _all_at(one):
                message = f"Torch did all that the reference asks of it {one.where}: {_named(computing(one.ops))}."
                return [Finding(check=self.name, message=message)]
        if not ours:
            return []
        named = _named(ours)
        if theirs and _all_of_it(ours, theirs, seen):
            return [Finding(check=self.name, message=f"Torch did all that the reference asks of it: {named}.")]
        bodies = [seen.kernel_bodies.get(kernel.name, "") for kernel in seen.kernels if kernel.launches]
        if theirs and bodies and all(bodies) and not any(open_backend(seen.candidate.backend).computes(body) for body in bodies):
            return [Finding(check=self.name, message=f"The kernels only move data; torch computed: {named}.")]
        return [Finding(check=self.name, message=f"Torch computed a part: {named}.", severity=Severity.WARN)]


def _written_out(call: ast.Call) -> bool:
    """``torch.tensor([1.0, 2.0])`` and the like: constants, no arrays."""
    return bool(call.args) and isinstance(call.args[0], ast.List | ast.Tuple | ast.Constant)


def _named(ops: dict[str, int]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in sorted(ops.items()))


def _all_at(one: WatchedOperators) -> bool:
    """Whether in this run torch did every family of the reference's, the heavy ones by whatever operators."""
    ours, theirs = computing(one.ops), computing(one.reference_ops)
    heavy_done = sum(one.flops.values()) > (1 - _SOME) * sum(one.reference_flops.values()) > 0
    return bool(theirs) and all(ours.get(name, 0) >= count or (name in HEAVY and heavy_done) for name, count in theirs.items())


def _all_of_it(ours: dict[str, int], theirs: dict[str, int], seen: Observation) -> bool:
    """Every family of the reference's, in most of the runs; the heavy ones also when torch did their FLOPs by other operators."""
    most = 0.5 * max(seen.observed_runs, 1)
    heavy_done = seen.coverage is not None and seen.coverage < _SOME

    def done(name: str, count: int) -> bool:
        return ours.get(name, 0) >= most * count or (name in HEAVY and heavy_done)

    return all(done(name, count) for name, count in theirs.items())
