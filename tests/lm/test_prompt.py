"""Prompts: golden files for every template, the examples they show, families, feedback, templates of one's own."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from scripted import PROBLEM, Scripted, ScriptedJudge, code, timing

from kernelllm.backends.base import FAMILIES, open_backend
from kernelllm.core.errors import UnknownName, UsageError
from kernelllm.core.types import (
    DEFAULT_BACKEND,
    Attempt,
    Candidate,
    Finding,
    Floor,
    KernelUse,
    Measured,
    Problem,
    Ratio,
    Severity,
    SizeSet,
    Status,
    Timing,
    Trial,
    Verdict,
    best,
)
from kernelllm.lm import feedback
from kernelllm.lm.lm_writer import lm_writer
from kernelllm.lm.prompts import Templates, example, family, first_prompt, next_prompt
from kernelllm.models.language_model import Message
from kernelllm.search import Search

LANGUAGE = open_backend(DEFAULT_BACKEND)

GOLDEN = Path(__file__).parent / "prompts"
FIRST = ("kernelllm", "kernelbench-zero-shot", "kernelbench-one-shot", "kernelbench-few-shot", "hardware", "category", "mini")


def as_file(messages: tuple[Message, ...]) -> str:
    return "\n".join(f"--- {m.role} ---\n{m.content.rstrip()}\n" for m in messages)


def check(name: str, text: str) -> None:
    """Compare with the golden file; UPDATE_GOLDEN=1 writes it."""
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def failed() -> Attempt:
    trials = (
        Trial(sizes="shrunk-1", seed=1),
        Trial(
            sizes="shrunk-2", seed=1, ok=False, margin=2.5e4, error=2.5, allowed=1e-4, message="at [0, 3]: got -1.5, expected 0.0"
        ),
    )  # fmt: skip
    shapes = (SizeSet(label="shrunk-1", inputs=("float32[8, 16]",)), SizeSet(label="shrunk-2", inputs=("float32[7, 33]",)))
    verdict = Verdict(
        status=Status.INCORRECT,
        message="The largest error is 2.5.",
        trials=trials,
        shapes=shapes,
        max_error=2.5,
        tolerance=1e-4,
        findings=(
            Finding(check="decoy", message="The kernel's result is not used.", line=9),
            Finding(check="style", message="not shown", severity=Severity.INFO),
        ),
    )
    return Attempt(problem="relu", candidate=Candidate(source=code("wrong")), verdict=verdict)


def succeeded() -> Attempt:
    def measured(ms: float) -> Measured:
        return Measured(median_ms=ms, low_ms=ms, high_ms=ms, runs=100)

    times = Timing(
        device="NVIDIA H200",
        candidate=measured(0.5),
        baselines={"eager": measured(1.0), "compile": measured(0.49)},
        speedups={"eager": Ratio(value=2.0, low=1.9, high=2.1), "compile": Ratio(value=0.98, low=0.95, high=1.01, tie=True)},
        floor_percent=40.0,
    )
    verdict = Verdict(
        status=Status.CORRECT,
        message="All trials agree.",
        trials=(Trial(sizes="original", seed=1),) * 6,
        timing=times,
        coverage=0.75,
        floor=Floor(ms=0.2, bytes=960_000_000),
        kernels=(KernelUse(name="kernel", launches=2, registers=255, shared_bytes=1024, spills=12, num_warps=8),),
    )
    return Attempt(problem="relu", candidate=Candidate(source=code("slow")), verdict=verdict)


@pytest.mark.parametrize("name", FIRST)
def test_first_prompts_are_golden(name: str) -> None:
    check(name, as_file(first_prompt(Templates(), name, PROBLEM)))


@pytest.mark.parametrize("opened_with", ["category", "kernelllm", "mini"])
def test_later_prompts_are_golden(opened_with: str) -> None:
    check(f"repair-after-{opened_with}", as_file(next_prompt(Templates(), opened_with, PROBLEM, [failed()])))
    check(f"improve-after-{opened_with}", as_file(next_prompt(Templates(), opened_with, PROBLEM, [succeeded()])))
    check(f"repair-with-best-after-{opened_with}", as_file(next_prompt(Templates(), opened_with, PROBLEM, [succeeded(), failed()])))


def test_every_template_has_a_version_a_kind_and_a_summary() -> None:
    templates = Templates()
    assert set(templates.names()) == {*FIRST, "repair", "improve", "mini-next"}
    for name in templates.names():
        info = templates.info(name)
        assert info.version.isdigit()
        assert info.kind in ("plain", "chat", "follow")
        assert info.summary
    with pytest.raises(UnknownName, match="category"):
        templates.info("nosuch")


def test_a_conversation_that_began_plain_stays_plain() -> None:
    assert [m.role for m in next_prompt(Templates(), "kernelllm", PROBLEM, [failed()])] == ["text"]
    assert [m.role for m in next_prompt(Templates(), "category", PROBLEM, [failed()])] == ["system", "user"]


def test_templates_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.jinja").write_text("{#- version: 7 | kind: plain | summary: mine -#}\nWrite {{ problem.name }} for {{ gpu.arch }}.\n")
    (tmp_path / "category.jinja").write_text("<<<system>>>\nS\n<<<user>>>\n{{ source }}")
    (tmp_path / "broken.jinja").write_text("{{ nosuch }}")
    templates = Templates(tmp_path)
    assert templates.info("mine").version == "7"
    assert first_prompt(templates, "mine", PROBLEM) == (Message("text", "Write relu for sm_90.\n"),)
    assert first_prompt(templates, "category", PROBLEM) == (Message("system", "S"), Message("user", PROBLEM.source.strip()))
    assert "kernelllm" in templates.names()
    with pytest.raises(UsageError, match="nosuch"):
        first_prompt(templates, "broken", PROBLEM)
    with pytest.raises(UsageError, match="folder"):
        Templates(tmp_path / "absent")


def test_a_module_that_looks_like_a_template_is_only_text() -> None:
    source = "# {{ gpu.name }} {% if %} <<<user>>> <|begin_of_text|>\nclass Model: pass\n"
    messages = first_prompt(Templates(), "category", Problem(name="x", source=source))
    assert source.strip() in messages[1].content
    assert len(messages) == 2


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("torch.relu(x) + 1", "elementwise"),
        ("x * torch.sigmoid(x)", "elementwise"),
        ("torch.softmax(x, dim=1)", "softmax"),
        ("F.scaled_dot_product_attention(x, x, x)", "softmax"),
        ("torch.matmul(x, x)", "matmul"),
        ("x @ x", "matmul"),
        ("torch.relu(x @ x)", "epilogue"),
        ("torch.sum(x, dim=1)", "reduction"),
        ("F.layer_norm(x, (8,))", "reduction"),
        ("F.max_pool2d(x, 2)", "reduction"),
    ],
)
def test_the_family_is_the_operators(body: str, expected: str) -> None:
    assert (
        family(f"import torch\nimport torch.nn.functional as F\nclass Model:\n    def forward(self, x):\n        return {body}\n")
        == expected
    )


def test_families_of_modules_and_of_nonsense() -> None:
    linear = (
        "class Model:\n    def __init__(self):\n        self.l = nn.Linear(3, 4)\n"
        "    def forward(self, x):\n        return torch.relu(self.l(x))\n"
    )
    assert family(linear) == "epilogue"
    assert family(linear.replace("nn.Linear(3, 4)", "nn.Conv2d(3, 4, 3)")) == "epilogue"
    assert family("def (") == "elementwise"


def test_the_target_device_is_in_the_prompt() -> None:
    (_, user) = first_prompt(Templates(), "hardware", PROBLEM, "sm_80")
    assert "A100" in user.content
    assert "108 SMs" in user.content
    assert "H200" not in user.content


def test_examples_are_shown_whole() -> None:
    assert set(LANGUAGE.examples()) == set(FAMILIES)
    for shown in LANGUAGE.examples().values():
        assert "class Model(" in shown.reference
        assert "class ModelNew(" in shown.kernel
        assert "@triton.jit" in shown.kernel
    with pytest.raises(UnknownName):
        example("nosuch", LANGUAGE)


# -- feedback --------------------------------------------------------------------------------------


def test_a_compile_error_comes_with_the_line_of_the_source() -> None:
    source = "import triton\n\nx = tl.laod(p)\n"
    told = feedback.of(Verdict(status=Status.COMPILE_ERROR, message="at line 3: module 'tl' has no attribute 'laod'"), source)
    assert "compile_error" in told
    assert "x = tl.laod(p)" in told
    kernel = KernelUse(name="k", error="out of resource: shared memory, Required: 300000, Hardware limit: 232448")
    told = feedback.of(Verdict(status=Status.COMPILE_ERROR, message="A kernel does not compile.", kernels=(kernel,)), source)
    assert "Required: 300000" in told


def test_long_errors_are_trimmed_to_their_ends_and_library_frames_left_out() -> None:
    frames = "".join(f'  File "/usr/lib/python3/site-packages/torch/a{i}.py", line {i}, in f\n    return g()\n' for i in range(50))
    error = (
        f'Traceback (most recent call last):\n{frames}  File "candidate.py", line 7, in forward\n    y = k[grid](x)\nValueError: bad grid\n'
    )
    told = feedback.trim(error)
    assert "site-packages" not in told
    assert "candidate.py" in told
    assert "ValueError: bad grid" in told
    long = feedback.trim("begin " + "x" * 50_000 + " end")
    assert len(long) <= feedback.MAX_CHARS + 10
    assert long.startswith("begin")
    assert long.endswith("end")


@pytest.mark.parametrize("status", [s for s in Status if s is not Status.CORRECT])
def test_every_status_has_words(status: Status) -> None:
    told = feedback.of(Verdict(status=status, message="because"), "x = 1\n")
    assert str(status) in told
    assert "because" in told


def test_headline_and_best() -> None:
    slow, fast = (
        msgspec.structs.replace(succeeded(), verdict=msgspec.structs.replace(succeeded().verdict, timing=timing(ms))) for ms in (4.0, 1.0)
    )
    assert best([failed(), slow, fast]) is fast
    assert best([failed()]) is None
    assert feedback.headline(fast.verdict) == "1 ms, 3.00x over eager"
    assert feedback.headline(failed().verdict) == "incorrect"


# -- secrets ---------------------------------------------------------------------------------------


def test_no_key_is_in_a_run_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelllm.core.store import Store

    key = "sk-secret-0123456789abcdef"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    path = tmp_path / "runs.db"
    with Store(path) as store:
        run = store.open_run("optimize", "x", {})
        writer = lm_writer(Scripted())
        writer.attach(store, run=run.id)
        list(Search(PROBLEM, writer, ScriptedJudge(), n=3, record=run))
    for file in tmp_path.iterdir():
        assert key.encode() not in file.read_bytes()
