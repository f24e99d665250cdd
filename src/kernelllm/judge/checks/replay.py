"""Flags candidates that give the same output whatever the inputs are, or remember inputs by their address."""

from __future__ import annotations

import ast

from kernelllm.backends.base import Backend
from kernelllm.core.types import Finding, Severity
from kernelllm.judge.checks.string_values import Element
from kernelllm.judge.checks.syntax import Source, analyse, starts
from kernelllm.judge.observation import Observation, TrialRun

_LEAST_RUNS = 3
_KEPT = 0.5
"""Share of the arithmetic of other runs below which a run on inputs that came before did not compute."""
_OTHER_WORK = ("zeros", "constants")
"""Kinds of inputs on which there may be nothing to compute: all is masked, a flag is off."""

_DEPTH = 3
MOST_ALIGNED = 256
"""Bytes up to which an address is looked at for its alignment."""


class Replay:
    name = "replay"
    describe = "gives the same output whatever the inputs are: a constant, or an earlier call's result"

    def source(self, tree: ast.Module, backend: Backend) -> list[Finding]:
        """Dictionaries keyed by a tensor's address or identity. Reported: fresh inputs at old addresses decide. What is made of parameters
        may be kept: others are tried, and some change in place."""
        known = analyse(tree)
        built = _built(known)
        arguments = {n.arg for n in known.nodes if isinstance(n, ast.arg)}
        found = []
        for node in analyse(tree).nodes:
            keys: list[ast.AST] = []
            if isinstance(node, ast.Subscript):
                keys = [node.slice]
            elif isinstance(node, ast.Compare) and not _of_two(node, arguments):
                keys = [node.left, *node.comparators]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "setdefault", "pop"):
                keys = list(node.args[:1])
            elif isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and "key" in t.id for t in node.targets):
                keys = [node.value]
            for key in keys:
                aligned = {id(n.left) for n in ast.walk(key) if isinstance(n, ast.BinOp) and _keeps_few_bits(n)}
                if any(_address(n, known) and not _of_built(n, known, built) for n in ast.walk(key) if id(n) not in aligned):
                    line = getattr(node, "lineno", 0)
                    found.append(
                        Finding(check=self.name, message="Remembers something by a tensor's address.", severity=Severity.WARN, line=line)
                    )
        return found

    def observed(self, seen: Observation) -> list[Finding]:
        """Outputs equal bit for bit over runs whose inputs and reference outputs differ. Certain even within tolerances."""
        by_size: dict[str, list[TrialRun]] = {}
        other_before = set[int]()  # runs right after one with other parameters: what is made of those may be made anew
        for before, run in zip([None, *seen.runs], seen.runs, strict=False):
            if run.candidate and run.reference and not run.other_parameters and run.trial.kind not in _OTHER_WORK:
                by_size.setdefault(run.trial.sizes, []).append(run)
                if before is not None and before.other_parameters:
                    other_before.add(id(run))
        for size, runs in by_size.items():
            without = [run for run in runs if run.launches == 0]
            if without and runs[0].launches:
                number = runs.index(without[0]) + 1
                message = f"Call {number} is answered without launching a kernel (sizes {size}): an earlier result, or a CUDA graph."
                return [Finding(check=self.name, message=f"{message} Launch the kernels in every call.")]
            compared = [run for run in runs if run.trial.kind != "repeated" or id(run) not in other_before]
            for exact in (False, True):  # other kernels may serve then
                if kept := _less_when_repeated([run for run in compared if run.exact_products == exact]):
                    return [Finding(check=self.name, message=f"{kept} (sizes {size}). Compute in every call.")]
            runs = [run for run in runs if run.trial.kind != "repeated"]
            if len(runs) < _LEAST_RUNS:
                continue
            ours = {tuple(o.digest for o in run.candidate) for run in runs}
            theirs = {tuple(o.digest for o in run.reference) for run in runs}
            if len(ours) == 1 and len(theirs) == len(runs):
                what = "all zeros" if all(o.zeros == 1.0 for o in runs[0].candidate) else "the same bits"
                return [Finding(check=self.name, message=f"The output is {what} for {len(runs)} different inputs (sizes {size}).")]
        return []


def _less_when_repeated(runs: list[TrialRun]) -> str:
    """A message where less was done when the same inputs came again; empty where the same was done."""
    repeated = [run for run in runs if run.trial.kind == "repeated"]
    if len({run.did for run in repeated}) > 1:
        return "Other kernels or operators ran when the inputs of the call before came again: results are kept"
    others = {run.launches for run in runs[1:] if run.trial.kind not in ("repeated", "touched")}
    if repeated and len(others) == 1 and (least := min(run.launches for run in repeated)) < min(*others, runs[0].launches):
        return f"{runs[0].launches} kernels were launched at first and {least} when the same inputs came again: results are kept"
    again = [run.kernel_flops for run in repeated]
    new = [run.kernel_flops for run in runs[1:] if run.trial.kind != "repeated"]  # the first run may prepare parameters
    if again and new and min(again) < _KEPT * min(new):
        return f"Kernels did {min(new):.0f} operations on new inputs and {min(again):.0f} when the same ones came again: results are kept"
    return ""


def _keeps_few_bits(node: ast.BinOp) -> bool:
    """``address % 16`` and ``address & 15`` say how a tensor is aligned, and not which it is."""
    few = isinstance(node.right, ast.Constant) and isinstance(node.right.value, int) and node.right.value <= MOST_ALIGNED
    return few and isinstance(node.op, ast.Mod | ast.BitAnd)


def _of_two(node: ast.Compare, arguments: set[str]) -> bool:
    """Whether the addresses of a function's own arguments are compared with each other, as for two parts of one tensor."""
    sides = [node.left, *node.comparators]
    for number, side in enumerate(sides):
        while isinstance(side, ast.Call | ast.Attribute):
            side = side.func if isinstance(side, ast.Call) else side.value
        if not (_address(sides[number], None) and isinstance(side, ast.Name) and side.id in arguments - {"self"}):
            return False
    return True


def _built(known: Source) -> set[str]:
    """Attributes that get nothing but layers and parameters, in constructors alone."""
    layers, others = set[str](), set[str]()
    inside = {id(n) for f in known.nodes if isinstance(f, ast.FunctionDef) and f.name == "__init__" for n in ast.walk(f)}
    for node in known.nodes:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        for target in (t for t in targets if isinstance(t, ast.Attribute)):
            made = isinstance(value, ast.Call) and id(node) in inside and any(starts(p, "torch.nn") for p in known.paths(value.func))
            (layers if made else others).add(target.attr)
    return layers - others


def _of_built(node: ast.AST, known: Source, built: set[str], depth: int = 0) -> bool:
    """Whether an address is that of a parameter: of ``self.linear.weight``, or of a name that stands for such alone."""
    if isinstance(node, ast.Call):
        node = node.func.value if isinstance(node.func, ast.Attribute) else node.args[0] if node.args else node
    chain = list[str]()
    while isinstance(node, ast.Attribute):
        chain.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or depth > _DEPTH:
        return False
    if chain:
        return node.id == "self" and chain[-1] in built
    bound = known.bindings(node) or []
    values = [value.iterable if isinstance(value, Element) else value for value in bound]
    each = [part for value in values for part in (value.elts if isinstance(value, ast.Tuple | ast.List) else [value])]
    return bool(each) and all(isinstance(one, ast.expr) and _of_built(one, known, built, depth + 1) for one in each)


def _address(node: ast.AST, known: object) -> bool:
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute):
        return node.func.attr in ("data_ptr", "untyped_storage", "storage")
    return isinstance(node.func, ast.Name) and node.func.id == "id"
