"""What the source alone decides is told without torch, and is what the judge says as well."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernelllm.core.types import Candidate, Status
from kernelllm.judge import Judge, JudgeSettings, source_refusal
from kernelllm.suites.file import open_problem

SOURCES = {
    "def (": Status.INVALID,
    "": Status.INVALID,
    "x = 1": Status.INVALID,
    "import os\nclass ModelNew:\n    def forward(self):\n        os.system('true')\n": Status.CHEATING,
}


@pytest.mark.parametrize("source", SOURCES)
def test_the_judge_says_the_same(source: str, warm: Judge, examples: Path) -> None:
    early = source_refusal.refused(Candidate(source=source), JudgeSettings())
    assert early is not None
    assert early.status is SOURCES[source]
    late = warm.judge(open_problem(str(examples / "softmax.py")), Candidate(source=source))
    assert (late.status, late.message, late.findings) == (early.status, early.message, early.findings)


def test_what_nothing_speaks_against_is_to_be_run(root: Path) -> None:
    honest = (root / "tests/cheats/no_kernel/honest_helpers.py").read_text()
    assert source_refusal.refused(Candidate(source=honest), JudgeSettings()) is None


@pytest.mark.parametrize(("candidate", "problem"), [("def (", None), ("class ModelNew: pass", "x = 1"), ("class ModelNew: pass", "def (")])
def test_such_errors_import_no_torch(candidate: str, problem: str | None, tmp_path: Path, examples: Path) -> None:
    file = tmp_path / "candidate.py"
    file.write_text(candidate)
    against = examples / "softmax.py"
    if problem is not None:
        against = tmp_path / "problem.py"
        against.write_text(problem)
    code = (
        "import sys; from kernelllm.app.main import cli\n"
        f"try: cli.main(['check', {str(file)!r}, '--against', {str(against)!r}])\n"
        "except SystemExit as end: print('code', end.code, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] in ("code 1 False", "code 2 False"), done.stdout + done.stderr
