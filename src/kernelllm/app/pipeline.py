"""The main path: a problem, a model that writes, the judge that decides, and the best candidate in a file."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

import kernelllm
from kernelllm.app import output
from kernelllm.app.judge_options import LEAVE_WORK, default_extern, extern_of, tracked
from kernelllm.app.progress import Progress, Silent, remembered_interrupt
from kernelllm.app.result import Result
from kernelllm.app.verdict_view import moment
from kernelllm.core import settings, verdict_words
from kernelllm.core.errors import CaptureError, ProblemError, UsageError
from kernelllm.core.types import Attempt, Candidate, Cost, Problem, Severity, Status, Verdict, best
from kernelllm.core.writer import find, open_writer, require
from kernelllm.judge.judge_settings import HYBRID

if TYPE_CHECKING:
    from kernelllm.app.session import LMOptions
    from kernelllm.core.writer import Writer
    from kernelllm.judge import Judge, JudgeSettings

log = logging.getLogger(__name__)

AUTO = 4
"""How many candidates are written unless said otherwise where the fastest of several ways is looked for."""
MORE = 2
"""How many further candidates are tried where none of the wanted number is correct."""


def optimize(
    problem: Problem | str | os.PathLike[str],
    *,
    model: str | None = None,
    n: int | None = None,
    out: str | os.PathLike[str] | None = None,
    keep: str | os.PathLike[str] | None = None,
    extern: str | None = None,
    judge: JudgeSettings | None = None,
    lm_options: LMOptions | None = None,
    progress: Progress | None = None,
    force: bool = False,
    cuda_graph: bool = False,
) -> Result:
    """Turn a PyTorch module into a verified Triton kernel.

    ``problem`` is a Problem, the path of a KernelBench-format file (``file.py`` or ``file.py:Class``) or the
    source of one. ``model`` writes ``n`` candidates (``compiler`` unless set otherwise); ``judge`` says how
    they are judged; ``extern`` is what the compiler may leave to torch (``avoid``, ``forbid``, ``allow``, ``auto``: the last two
    are judged on the track ``hybrid``). Unless set it is ``auto`` where a GPU times the candidates, with ``n`` 4. The best correct
    candidate is in ``Result.best`` and, when ``out`` is given, in that file; every
    candidate goes to the folder ``keep`` when that is given. With ``cuda_graph`` the file has a class CudaGraphs as well.

    Raises UsageError on wrong arguments, ProblemError when the reference is at fault, CaptureError or
    ModelError when the model could write nothing at all, OutputError when ``out`` cannot be written in the
    end. That no candidate is correct is not an error: ``Result.best`` is then None.
    """
    if n is not None and n < 1:
        raise UsageError(f"n is {n}, and one candidate is the least.")
    model = model or settings.load().model
    require(model)
    if out is not None:
        output.check_writable(Path(out), force=force)
    folder = make_folder(keep)
    work = _Work(as_problem(problem), model, n, extern, lm_options, judge, progress or Silent(), folder)
    result = work.run()
    return result if out is None else save(result, Path(out), cuda_graph=cuda_graph)


def check(
    candidate: str | os.PathLike[str], problem: Problem | str | os.PathLike[str], *, judge: JudgeSettings | None = None
) -> Result:
    """Judge a candidate, a path or its text. The result has one attempt. Raises UsageError, ProblemError."""
    from kernelllm.app.output import read_candidate
    from kernelllm.judge import JudgeSettings
    from kernelllm.judge import judge as judged

    text, how, opened = os.fspath(candidate), judge or JudgeSettings(), as_problem(problem)
    named = "" if "\n" in text else text
    written = Candidate(source=read_candidate(text, how.backend)[0] if named else text, backend=how.backend, note=named)
    verdict = judged(opened, written, how)
    if verdict.status is Status.PROBLEM_ERROR:
        raise ProblemError(verdict.message)
    attempt = Attempt(problem=opened.name, candidate=written, verdict=verdict, cost=Cost().judged(verdict))
    return Result(problem=opened, model="file", best=best([attempt]), attempts=(attempt,), seconds=verdict.seconds)


def check_writer(model: str, lm_options: LMOptions) -> None:
    """Raises what keeps a language model from being asked or its answers from being stored, before torch is imported.

    UsageError, MissingExtra, ModelError, StoreError.
    """
    from kernelllm.app.session import open_store, writer_options

    if not find(model)[0].asks_model:
        return
    open_store(lm_options.db).close()
    with closing(open_writer(model, **writer_options(model, lm_options, target=settings.load().target))) as writer:
        writer.ready()


def as_problem(problem: Problem | str | os.PathLike[str], **how: Any) -> Problem:
    """A Problem from what a person may hand in (a path, ``suite/name``, or source text); ``how`` goes to ``open_problem``."""
    if isinstance(problem, Problem):
        return problem
    if isinstance(problem, str) and "\n" in problem:
        return Problem(name="module", source=problem, origin="text")
    if not isinstance(problem, str | os.PathLike):
        what = f"No problem can be read from {type(problem).__name__} {problem!r:.40}."
        raise UsageError(what, fix="Give a torch.nn.Module with example inputs, or the path of a file.")
    from kernelllm.app.problem_specs import in_suite, single
    from kernelllm.suites.file import open_problem

    spec = os.fspath(problem)
    return single(spec) if in_suite(spec) else open_problem(spec, **how)


def file_name(name: str) -> str:
    """A problem's name as a safe file name: ``level1/19`` becomes ``level1_19``."""
    return re.sub(r"[^\w.-]+", "_", name).strip("._") or "problem"


def save(result: Result, path: Path, *, cuda_graph: bool = False) -> Result:
    """Write the best candidate with its header. Raises OutputError; does nothing when there is no best one.

    ``cuda_graph``: the class that replays it as CUDA graphs stands behind it.
    """
    if result.best is None:
        return result
    top, source = header(result.problem, result.best), result.best.candidate.source
    if cuda_graph:
        from kernelllm.compiler import cuda_graphs

        top += "# CudaGraphs(ModelNew(...)) replays its launches as one CUDA graph. The judge ran ModelNew without it.\n"
        source = cuda_graphs.added(source)
    output.write_text(path, top + source)
    return msgspec.structs.replace(result, path=str(path))


def header(problem: Problem, attempt: Attempt) -> str:
    """The comment on top of a written file: where it came from and what the judge said."""
    verdict = attempt.verdict
    target = next((kernel.target for kernel in verdict.kernels if kernel.target), "")
    source = Path(problem.path).name if problem.path else problem.name
    lines = [
        f"{output.MARK} {kernelllm.__version__} (model: {attempt.candidate.model}) from {source}.",
        *_evidence(verdict),
        *([f"# {attempt.candidate.note}"] if attempt.candidate.note else []),
    ]
    if target:
        lines.append(f"# Compiled for {target}: {len(verdict.kernels)} kernel{'s' if len(verdict.kernels) != 1 else ''}.")
    lines.append("# Takes the reference's weights: ModelNew(...).load_state_dict(model.state_dict())")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _evidence(verdict: Verdict) -> list[str]:
    lines = [f"Verdict: {verdict.status}. {verdict.message}"]
    if sizes := ", ".join(" ".join(shape.inputs) or shape.label for shape in verdict.shapes):
        lines.append(f"Tried at {sizes}.")
    if error := verdict_words.error(verdict):
        lines.append(f"Error: {error}.")
    return [" ".join(f"# {line}".split()) for line in lines]


def make_folder(keep: str | os.PathLike[str] | None) -> Path | None:
    """The folder for all candidates, made and known to be writable. Raises UsageError when it cannot be."""
    if keep is None:
        return None
    folder = Path(keep)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"The folder {folder} cannot be made: {error.strerror}.", fix="Choose another --keep DIR.") from error
    output.check_writable(folder / "candidate.py", force=True, option="--keep")
    return folder


@dataclass
class _Work:
    """One call of ``optimize``: writing and judging overlap, Ctrl-C keeps what is done."""

    problem: Problem
    model: str
    n: int | None
    extern: str | None
    lm_options: LMOptions | None
    how: JudgeSettings | None
    report: Progress
    folder: Path | None
    wanted: int = 1
    attempts: list[Attempt] = field(default_factory=list)
    check: Callable[[], None] = field(default=lambda: None)
    run_id: str = ""

    def run(self) -> Result:
        """All attempts, and the best of them."""
        start = time.monotonic()
        interrupted, message = False, ""
        try:
            with remembered_interrupt() as self.check:
                self.report.stage(f"Writing with {self.model}")
                message = self._all()
                self.check()
        except KeyboardInterrupt:
            interrupted = True
            message = "Interrupted; what was done until then is kept." if self.attempts else "Interrupted before a candidate was judged."
        return Result(
            problem=self.problem,
            model=self.model,
            best=best(self.attempts),
            attempts=tuple(self.attempts),
            interrupted=interrupted,
            run=self.run_id,
            message=message,
            kept=str(self.folder) if self.folder else None,
            seconds=time.monotonic() - start,
        )

    def _all(self) -> str:
        """Write and judge; why there are fewer attempts than were asked for, empty when there are not."""
        from kernelllm.app.judge_options import need_backend
        from kernelllm.app.session import LMOptions
        from kernelllm.judge import Judge, JudgeSettings

        how, lm_options = self.how or JudgeSettings(), self.lm_options or LMOptions()
        need_backend(how.backend)
        free = how.track in (None, HYBRID)
        self.extern = self.extern or lm_options.options.get("extern") or (default_extern(self.model, how) if free else None)
        self.wanted = self.n or (AUTO if self.extern == "auto" else 1)
        if self.extern in LEAVE_WORK and how.track is None:
            how = replace(how, track=HYBRID)
        self.extern = extern_of(self.extern, how.track)
        how = tracked(how, self.model)
        from kernelllm.app.session import refuse_unused_options

        refuse_unused_options(self.model, lm_options)
        asks_model = find(self.model)[0].asks_model
        if asks_model:
            _check_reference(self.problem)  # before anything is paid for
        with closing(Judge(how)) as judge:
            return self._stored(judge, how, lm_options) if asks_model else self._computed(judge, how, lm_options)

    def _stored(self, judge: Judge, how: JudgeSettings, lm_options: LMOptions) -> str:
        """With a writer that is paid for every draft: a run that is stored and goes on where it stopped."""
        from kernelllm.app.session import StoredSearch

        with StoredSearch(
            self.problem,
            self.model,
            judge,
            n=self.wanted,
            lm_options=lm_options,
            judge_identity=how,
            target=how.target,
            on_event=self._told,
        ) as session:
            self.run_id = session.run.id
            self._collect(iter(session))
            return session.message

    def _computed(self, judge: Judge, how: JudgeSettings, lm_options: LMOptions) -> str:
        """With a writer that does the same again for nothing: no store, and further ways where none of the first is correct."""
        from kernelllm.app.session import writer_options
        from kernelllm.search import Search

        options = writer_options(self.model, lm_options, target=how.target, extern=self.extern or "avoid", backward=how.backward)
        with closing(open_writer(self.model, **options)) as writer:
            search = Search(self.problem, writer, judge, n=self.wanted, on_event=self._told)
            try:
                self._collect(iter(search))
            except CaptureError:
                _check_reference(self.problem)  # the likelier cause, and the clearer message
                raise
            self._once_more(writer, judge)
            self._refuse_idle()
            return " ".join(str(error) for error in search.errors)

    def _refuse_idle(self) -> None:
        """Raises CaptureError where all that is wrong with every candidate is that torch does all the work: it is not compiled."""
        fallback = [_only_falls_back(attempt.verdict) for attempt in self.attempts]
        if fallback and all(fallback):
            what = f"{self.problem.name!r} is not compiled. {self.attempts[0].verdict.message}"
            raise CaptureError(what, fix="Use a language model (-m).")

    def _collect(self, found: Iterator[Attempt]) -> None:
        try:
            for attempt in found:
                self._add(attempt)
                self.check()
        finally:
            if isinstance(found, Generator):
                found.close()

    def _add(self, attempt: Attempt) -> None:
        """Take in an attempt. Raises ProblemError where it shows that the reference is at fault: no candidate will do better."""
        verdict = attempt.verdict
        if verdict.status is Status.PROBLEM_ERROR:
            raise ProblemError(verdict.message)
        self.attempts.append(attempt)
        idle = _only_falls_back(verdict) and not find(self.model)[0].asks_model
        self.report.note(f"{self._name(len(self.attempts))}: {f'not compiled: {verdict.message}' if idle else summary(verdict)}")
        if self.folder is not None:
            _keep(self.folder, len(self.attempts), self.problem, attempt)

    def _once_more(self, writer: Writer, judge: Judge) -> None:
        """Where no candidate was correct, further ones until one is, at most ``MORE``."""
        last = self.attempts[-1].verdict.status if self.attempts else Status.TIMEOUT
        if best(self.attempts) is not None or last is Status.TIMEOUT:
            return
        known = {attempt.candidate.digest for attempt in self.attempts}
        try:
            for candidate in writer.write(self.problem, MORE, tuple(self.attempts)):
                if candidate.digest in known:
                    continue
                self.report.stage(f"Judging {self._name(len(self.attempts) + 1)}")
                sample = msgspec.structs.replace(candidate, sample=len(self.attempts))
                verdict = judge.judge(self.problem, sample)
                self._add(Attempt(problem=self.problem.name, candidate=sample, verdict=verdict, cost=Cost().judged(verdict)))
                if verdict.correct:
                    return
        except CaptureError as error:
            log.info("%s has no further way to write %s: %s", self.model, self.problem.name, error)

    def _told(self, event: str, about: dict[str, Any]) -> None:
        if event == "drafted":
            self.report.stage(f"Judging {self._name(len(self.attempts) + 1)}")

    def _name(self, number: int) -> str:
        wanted = self.wanted * (self.lm_options.rounds if self.lm_options else 1)
        return f"candidate {number} of {wanted}" if number <= wanted else f"candidate {number}, as none was correct"


def _only_falls_back(verdict: Verdict) -> bool:
    failed = {finding.check for finding in verdict.findings if finding.severity is Severity.FAIL}
    return verdict.status is Status.CHEATING and failed == {"torch_fallback"}


def _check_reference(problem: Problem) -> None:
    """Run the reference at small sizes. Raises ProblemError where it fails."""
    from kernelllm.problems import shrink

    shrink.shrunk(problem, count=1)


def summary(verdict: Verdict) -> str:
    """A verdict in a few words: ``correct, 1.20 ms`` or ``incorrect: ...``."""
    if verdict.status is not Status.CORRECT:
        return f"{verdict.status}: {' '.join(verdict.message.split())[:160]}"
    text = str(verdict.status)
    if verdict.timing is not None:
        text += f", {verdict.timing.candidate.median_ms:.3g} ms"
    if verdict.coverage is not None and verdict.coverage < 1:
        text += f", {verdict_words.percent(verdict.coverage)} of the work in its own kernels"
    if warned := verdict_words.warnings(verdict):
        text += f", warnings: {', '.join(warned)}"
    return text + (f" (recorded at {moment(verdict.recorded)} UTC)" if verdict.recorded else f" (judged in {verdict.seconds:.1f} s)")


def _keep(folder: Path, number: int, problem: Problem, attempt: Attempt) -> None:
    from kernelllm.core.types import to_json

    stem = f"{file_name(problem.name)}_{number:02d}_{attempt.verdict.status}"
    output.write_text(folder / f"{stem}.py", header(problem, attempt) + attempt.candidate.source)
    output.write_text(folder / f"{stem}.json", to_json(attempt.verdict))
