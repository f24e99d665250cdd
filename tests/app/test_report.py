"""The report for people: what it says of each part of a verdict, and that it fits 80 columns."""

from __future__ import annotations

import msgspec
import pytest

from kernelllm.app import verdict_view
from kernelllm.core import verdict_words
from kernelllm.core.types import Finding, Floor, KernelUse, Measured, Ratio, Severity, SizeSet, Status, Timing, Trial, Verdict

FLOOR = Floor(ms=0.559, bytes=2_684_354_560, flops={"fp32": 1e9}, bound="memory", device="NVIDIA H200")
VERDICT = Verdict(
    status=Status.CORRECT,
    message=verdict_words.right(6, ("shrunk-1", "shrunk-2"), 0.875, ("autotune",)),
    findings=(Finding(check="autotune", message="tuned at run time", severity=Severity.WARN, line=7),),
    max_error=2.4e-7,
    tolerance=1e-4,
    trials=tuple(
        Trial(sizes=s, seed=i, max_error=2.4e-7, margin=0.002, error=2e-7, allowed=1e-4) for s in ("shrunk-1", "shrunk-2") for i in range(3)
    ),
    shapes=(
        SizeSet(label="shrunk-1", changed={"N": (4096, 33)}, inputs=("float32[33, 64]", "float32[33]")),
        SizeSet(label="shrunk-2", changed={"N": (4096, 64)}, inputs=("float32[64, 64]", "float32[64]")),
    ),
    kernels=(
        KernelUse(name="a_kernel_with_a_name_that_goes_on_and_on_until_it_is_wide", launches=6, registers=40, shared_bytes=1536, spills=0,
                  target="sm_90"),
        KernelUse(name="broken", launches=6, error="no such instruction"),
    ),
    coverage=0.875,
    floor=FLOOR,
    environment={"device": "cpu", "sandbox": "full"},
    seconds=1.25,
)  # fmt: skip


def text_of(verdict: Verdict) -> dict[str, str]:
    merged: dict[str, str] = {}
    label = ""
    for name, text in verdict_view.verdict_rows(verdict):
        label = name or label
        merged[label] = (merged.get(label, "") + " " + text).strip()
    return merged


def test_without_a_gpu_it_says_so_and_estimates_the_floor() -> None:
    said = text_of(VERDICT)
    assert said["status"] == f"correct: {VERDICT.message}"
    assert said["speed"].startswith("not measured: no GPU")
    assert "0.559 ms" in said["speed"]
    small = msgspec.structs.replace(VERDICT, floor=msgspec.structs.replace(FLOOR, ms=6.8e-6, bytes=32_800, bound="memory"))
    assert text_of(small)["speed"].endswith("floor below 1 us for 32.8 kB: launching one kernel takes longer")
    assert "NVIDIA H200" in said["speed"]
    assert "estimate" in said["speed"]


def test_how_it_was_verified() -> None:
    said = text_of(VERDICT)
    assert said["error"] == "2.0e-07 at the worst element, where 1.0e-04 is allowed (under 1% of it)"
    assert "shrunk-1: float32[33, 64], float32[33]  (N 4096 to 33)" in said["sizes"]
    assert said["coverage"].startswith("88%")
    assert said["warn"] == "autotune: tuned at run time (line 7)"


def test_the_first_line_of_correct_says_what_a_reader_must_know() -> None:
    assert text_of(VERDICT)["status"] == (
        "correct: Right in 6 trials at 2 sizes; the original size was not tried; 88% of the work in its own kernels, the rest in "
        "torch; warning: autotune."
    )
    assert verdict_words.right(20, ("shrunk-1", "original"), 1.0, ()) == "Right in 20 trials at 2 sizes, the original one among them."
    small = ("shrunk-1",)
    grid = "Right in 9 trials at 1 size, and in a part of the launch grid at"
    assert verdict_words.right(9, small, 1.0, (), "original") == f"{grid} the original size."
    assert verdict_words.right(9, small, 1.0, (), "shrunk") == f"{grid} a larger size; the original size was not tried."
    assert verdict_words.right(5, ("original",), 0.004, ()).endswith("under 1% of the work in its own kernels, the rest in torch.")


@pytest.mark.parametrize(
    ("status", "ok", "said"),
    [
        (Status.INCORRECT, False, "5 of 6 outputs right (2 sizes, 3 seeds); it ended at the first wrong one"),
        (Status.CHEATING, True, "6 outputs right (2 sizes, 3 seeds), but not by honest work: see the status"),
        (Status.RUNTIME_ERROR, True, "6 outputs right (2 sizes, 3 seeds), then it failed: see the status"),
    ],
)
def test_right_outputs_of_a_failure_do_not_read_like_a_success(status: Status, ok: bool, said: str) -> None:
    last = msgspec.structs.replace(VERDICT.trials[-1], ok=ok)
    shown = text_of(msgspec.structs.replace(VERDICT, status=status, trials=(*VERDICT.trials[:-1], last)))
    assert shown["compared"] == said


def test_an_error_stands_beside_what_is_allowed_at_the_same_element() -> None:
    wrong = Trial(sizes="shrunk-1", seed=1, ok=False, max_error=42.0, margin=30.0, error=3e-3, allowed=1e-4)
    verdict = msgspec.structs.replace(VERDICT, status=Status.INCORRECT, max_error=42.0, trials=(*VERDICT.trials, wrong))
    assert text_of(verdict)["error"] == "3.0e-03 at the worst element, where 1.0e-04 is allowed (it is 30 times that)"


def test_an_error_within_the_tolerance_does_not_read_like_a_success() -> None:
    inexact = Trial(sizes="shrunk-1", seed=1, ok=False, margin=0.04, error=4e-6, allowed=1e-4)
    verdict = msgspec.structs.replace(VERDICT, status=Status.INCORRECT, trials=(*VERDICT.trials, inexact))
    assert text_of(verdict)["error"].endswith("(4% of it): within the tolerance, it fails for another reason")


def test_what_only_float64_excuses_is_said() -> None:
    excused = Trial(sizes="shrunk-1", seed=1, max_error=3.7e-3, margin=0.9, error=3.7e-3, allowed=4.1e-3, within_eager_error=True)
    said = text_of(msgspec.structs.replace(VERDICT, trials=(*VERDICT.trials, excused)))["error"]
    assert said.startswith("3.7e-03 at the worst element, where 4.1e-03 is allowed (90% of it); 1 output is beyond the tolerance")
    assert "PyTorch itself is as far from float64" in said


def test_measured_times_have_their_spread_and_baselines() -> None:
    def ms(value: float) -> Measured:
        return Measured(median_ms=value, low_ms=value * 0.99, high_ms=value * 1.01, runs=100)

    ratios = {"eager": Ratio(value=8.42, low=8.3, high=8.5), "compile": Ratio(value=1.0, low=0.99, high=1.01, tie=True)}
    baselines = {"eager": ms(8.08), "compile": ms(0.96)}
    timing = Timing(device="NVIDIA H200", candidate=ms(0.96), baselines=baselines, speedups=ratios, floor_percent=58.2, sol_score=0.93)
    said = text_of(msgspec.structs.replace(VERDICT, timing=timing))["speed"]
    assert "0.96 ms (0.95 ms to 0.97 ms) on NVIDIA H200" in said
    assert "eager 8.08 ms: 8.42x (8.30 to 8.50)" in said
    assert "compile 0.96 ms: 1.00x (0.99 to 1.01, a tie)" in said
    assert "58% of it reached; SOL score 0.93" in said


def test_times_out_of_a_cache_say_so() -> None:
    when = "2026-01-02T03:04:05+00:00"
    one = Measured(median_ms=1.0, low_ms=1.0, high_ms=1.0, runs=9)
    timing = Timing(device="NVIDIA H200", candidate=one, recorded=when)
    said = text_of(msgspec.structs.replace(VERDICT, timing=timing, recorded=when))
    assert "measured at 2026-01-02 03:04 UTC, not now" in said["speed"]
    assert "2026-01-02 03:04 UTC" in said["recorded"]
    assert "--no-cache" in said["recorded"]


def test_a_failure_leads_with_its_message() -> None:
    wrong = Verdict(status=Status.INCORRECT, message="3 of 6 trials differ.", findings=(Finding(check="no_kernel", message="none ran"),))
    said = text_of(wrong)
    assert said["status"] == "incorrect: 3 of 6 trials differ."
    assert said["fail"] == "no_kernel: none ran"
    assert "speed" not in said


@pytest.mark.parametrize("width", [80, 100])
def test_it_fits(width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(verdict_view, "PLAIN_WIDTH", width)
    verdict_view.show_verdict("a candidate against a problem", VERDICT)
    shown = capsys.readouterr().out
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= width
    assert "\x1b" not in shown
    assert "1.5 KB" in shown


def test_limits_are_a_line_each_and_few() -> None:
    told = ["It refuses 16 bits.", "NaN gets lost. " * 20, "It cannot be copied.", "Attributes have no effect."]
    noted = [Finding(check="limits", message=text, severity=Severity.INFO) for text in told]
    verdict = msgspec.structs.replace(VERDICT, findings=(*VERDICT.findings, *noted))
    rows = verdict_view.limit_rows(verdict, 60)
    assert [label for label, _ in rows] == ["limits", "", "", ""]
    cut = f"{(told[1])[:57]}..."
    assert [text for _, text in rows] == [told[0], cut, told[2], "... 1 more with --json or -v"]
    assert verdict_view.limit_rows(verdict, 0) == [("limits", told[0]), *(("", text) for text in told[1:])]
    assert verdict_view.limit_rows(VERDICT, 60) == []
