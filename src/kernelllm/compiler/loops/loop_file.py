"""The file of a problem with a loop: the step and the code around the loop are compiled, and the loop moves into the step's kernel."""

from __future__ import annotations

import ast
import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from kernelllm.compiler import write_time
from kernelllm.compiler.loops.body import STEP
from kernelllm.compiler.loops.inlined_loops import with_inlined_loop, with_inlined_steps
from kernelllm.compiler.loops.inside_kernel import INSIDE
from kernelllm.compiler.loops.loop import Carry, CarryChanges, LoopStep, loop_step
from kernelllm.compiler.loops.rows_inside import ROWS
from kernelllm.core.errors import CaptureError
from kernelllm.core.text import syntax_tree
from kernelllm.core.types import Problem

if TYPE_CHECKING:
    from kernelllm.compiler.capture.captured import Captured

log = logging.getLogger(__name__)
Part = Callable[[Problem, "Callable[[Captured], None] | None"], str]
"""Writes the file for a part: the step, which is given with a check of its graph, or what stands around the loop."""


def written(problem: Problem, part: Part, instead: Callable[[], str], *, strict: bool) -> str:
    """The file; empty where there is no loop that can be taken apart. ``strict``: nothing of it may be left to torch. ``instead``: what
    to write where the loop would launch the kernels of its step again and again; empty where that does not work."""
    instead = cache(instead)
    for candidate in (problem, with_inlined_loop(problem)):
        if loop_step(candidate):
            forms = list(_forms(candidate))
            if not any(_File(one, part, strict, fission=fission).inside(loop) for one, fission, loop in forms) and (text := instead()):
                return text
            texts = (_File(one, part, strict, fission=fission).written(loop) for one, fission, loop in forms)
            text = next((text for text in texts if text), "")
            return (_loops_left(text) and instead()) or text
    return instead()


def _in_kernel(source: str) -> bool:
    return INSIDE in source or ROWS in source


def _loops_left(source: str) -> bool:
    """Whether the file's forward has a loop, beside one that went into a kernel."""
    if not _in_kernel(source):
        return False
    model = next(s for s in syntax_tree(source).body if isinstance(s, ast.ClassDef) and s.name == "ModelNew")
    methods = [s for s in model.body if isinstance(s, ast.FunctionDef) and s.name != "__init__"]
    return any(isinstance(n, ast.For) for m in methods for n in ast.walk(m))


def _forms(problem: Problem) -> Iterator[tuple[Problem, bool, LoopStep]]:
    """The problem's loop in the forms that are tried in turn: with products apart, those of what a step calls included, and as it is."""
    inlined = with_inlined_steps(problem)
    tries = [(problem, True), (problem, False)]
    if inlined is not problem and (apart := loop_step(inlined)):
        whole = loop_step(inlined, fission=False)
        if whole is None or apart.forward != whole.forward:
            tries.insert(0, (inlined, True))
    seen = set()
    for one, fission in tries:
        loop = loop_step(one, fission=fission)
        if loop and (loop.problem.source, loop.forward) not in seen:
            seen.add((loop.problem.source, loop.forward))
            yield one, fission, loop


class _File:
    def __init__(self, problem: Problem, part: Part, strict: bool, *, fission: bool = True) -> None:
        self.problem, self.part, self.strict, self.fission = problem, part, strict, fission

    def inside(self, loop: LoopStep) -> bool:
        """Whether the loop goes into the kernel of its step, as it is or with its matrices turned."""
        try:
            with write_time.limited(write_time.left() / 4):
                text, matrices = self._joined(loop, alone=True)
                if _in_kernel(text) or not matrices:
                    return _in_kernel(text)
                turned = loop_step(self.problem, matrices, fission=self.fission)
                return turned is not None and _in_kernel(self._joined(turned, matrices, alone=True)[0])
        except Exception as error:  # noqa: BLE001 - other ways come next
            log.info("%s: the step of its loop could not be compiled alone: %s", self.problem.name, error)
            return False

    def written(self, loop: LoopStep) -> str:
        try:
            with write_time.limited(write_time.left() / 2):
                text, matrices = self._joined(loop)
        except Exception as error:  # noqa: BLE001 - the unrolled loop may still be compiled
            log.info("%s: the step of its loop could not be compiled by itself: %s", self.problem.name, error)
            return ""
        turned = loop_step(self.problem, matrices, fission=self.fission) if matrices and INSIDE not in text else None
        try:
            with write_time.limited(write_time.left() / 2):
                other = self._joined(turned, matrices)[0] if turned else text
        except Exception as error:  # noqa: BLE001 - the first file is whole
            log.info("%s: its loop with matrices turned could not be compiled: %s", self.problem.name, error)
            other = text
        return other if INSIDE in other else text

    def _joined(
        self, loop: LoopStep, turned: Collection[str] = (), carry: Carry | None = None, *, alone: bool = False
    ) -> tuple[str, list[str]]:  # fmt: skip
        """The file, and the matrices that go from step to step. ``alone``: without what is around the loop."""
        matrices: list[str] = []
        shapes: dict[str, list[int]] = {}

        def look(captured: Captured) -> None:
            loop.check(captured)
            matrices.extend(loop.matrices(captured))
            shapes.update(loop.shapes(captured))

        try:
            step = self.part(loop.problem, look)
        except CarryChanges as found:
            again = loop_step(self.problem, turned, found.needed, fission=self.fission) if carry is None else None
            if again is None:
                raise
            return self._joined(again, turned, found.needed, alone=alone)
        if alone:
            with suppress(CaptureError):  # what is around the loop may be nothing that torch can do as it stands
                return loop.whole_file(step, {}, strict=False, shapes=shapes), matrices
        outside: dict[str, str] = {}
        for name, part in loop.outside.items():
            try:
                outside[name] = self._further(part) or self.part(part, None)
            except Exception as error:  # noqa: BLE001 - torch may do it
                log.info("%s: %s could not be compiled: %s", self.problem.name, name, error)
        return loop.whole_file(step, outside, strict=self.strict, shapes=shapes), matrices

    def _further(self, part: Problem) -> str:
        """The file for what comes behind the loop, where that is a loop again; empty where it is none that can be taken apart."""
        loop = loop_step(part)
        return _File(part, self.part, self.strict).written(loop) if loop else ""


def chosen(problem: Problem, looped: Callable[[], str], unrolled: Callable[[], str]) -> str:
    """The file with the problem's loop, or the unrolled one: that first where the other would have autograd compute gradients."""
    if not _leaves_gradients(problem):
        return looped() or unrolled()
    try:
        with write_time.limited(write_time.left() * 3 / 4):
            return unrolled()
    except Exception as error:
        log.info("%s: its loop could not be unrolled: %s", problem.name, error)
        if text := looped():
            return text
        raise


def _leaves_gradients(problem: Problem) -> bool:
    loop = next((loop for one in (problem, with_inlined_loop(problem)) if (loop := loop_step(one))), None)
    kept = [method.text for name, method in loop.methods.items() if name not in loop.outside] if loop else []
    return any("autograd.grad(" in text for text in kept)


def launches_in_a_loop(source: str) -> bool:
    """Whether the file's forward launches the kernels of a step again and again."""
    return f" = self.{STEP}(" in source and INSIDE not in source


__all__ = ["chosen", "launches_in_a_loop", "written"]
