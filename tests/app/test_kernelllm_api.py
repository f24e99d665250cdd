"""The published class with a tiny model: names, defaults, and the published defects that must not come back."""

from __future__ import annotations

import inspect
import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripted import PROBLEM, Scripted, ScriptedJudge, code, fenced
from tiny import save_tiny_llama

from kernelllm import KernelLLM
from kernelllm.core.errors import ModelError
from kernelllm.core.store import Store
from kernelllm.core.text import printable
from kernelllm.models.mock import Mock

pytest.importorskip("transformers")

PROMPT = "You write custom Triton kernels"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def model(folder: Path) -> KernelLLM:
    return KernelLLM(folder)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "runs.db") as opened:
        yield opened


def answering(*answers: str) -> KernelLLM:
    return KernelLLM.using(Mock(answer=lambda messages, sample: answers[sample % len(answers)]))


def defaults(function: object) -> list[tuple[str, object]]:
    parameters = list(inspect.signature(function).parameters.values())  # type: ignore[arg-type]
    return [(p.name, p.default) for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "self"]


def test_names_order_and_defaults_are_the_published_ones() -> None:
    assert defaults(KernelLLM.__init__) == [("model_name", "facebook/KernelLLM"), ("device", "auto")]
    assert defaults(KernelLLM.generate_triton) == [("code", inspect.Parameter.empty), ("max_new_tokens", 512)]
    assert defaults(KernelLLM.generate_raw) == [("prompt", inspect.Parameter.empty), ("temperature", 1.0), ("max_new_tokens", 2048)]
    assert defaults(KernelLLM.stream_raw) == [("prompt", inspect.Parameter.empty), ("max_new_tokens", 2048)]
    assert defaults(KernelLLM.run_repl) == []


def test_raw_text_never_echoes_the_prompt(model: KernelLLM) -> None:
    for prompt in (PROMPT, "<|begin_of_text|>" + PROMPT, "ü" * 30 + "\u00a0", " leading", "trailing \n\n"):
        text = model.generate_raw(prompt, 1.0, 12, seed=4)
        assert isinstance(text, str)
        assert not text.startswith(prompt.strip()[:8])
    # Cut by tokens: the same tokens after it, however many characters the prompt has.
    assert model.generate_raw("<|begin_of_text|>" + PROMPT, 1.0, 12, seed=4) == model.generate_raw(PROMPT, 1.0, 12, seed=4)


def test_extras(model: KernelLLM) -> None:
    texts = model.generate_raw(PROMPT, max_new_tokens=8, n=5, seed=1, top_p=0.9, top_k=20)
    assert len(texts) == 5
    assert texts == model.generate_raw(PROMPT, max_new_tokens=8, n=5, seed=1, top_p=0.9, top_k=20)
    assert len(model.generate_triton(PROBLEM.source, 8, n=3, seed=1, temperature=0.9)) == 3
    with pytest.raises(TypeError, match="flavour"):
        model.generate_raw(PROMPT, flavour="sweet")


def test_a_stream_is_printed_and_returned(model: KernelLLM, capsys: pytest.CaptureFixture[str]) -> None:
    text = model.stream_raw(PROMPT, 12, seed=3)
    assert capsys.readouterr().out == printable(text) + "\n"  # what reaches a terminal holds no control characters
    assert text == model.generate_raw(PROMPT, max_new_tokens=12, seed=3)
    out = io.StringIO()
    model.stream_raw(PROMPT, 4, file=out)
    assert capsys.readouterr().out == ""
    assert out.getvalue().endswith("\n")


def test_generated_triton_is_code() -> None:
    model = answering("Sure!\n" + fenced("a") + "Hope that helps.", "<think>hm</think>\n" + fenced("b"))
    assert model.generate_triton(PROBLEM.source) == code("a")
    assert model.generate_triton(PROBLEM.source, n=2) == [code("a"), code("b")]


def test_an_answer_with_no_usable_code_is_still_text(model: KernelLLM) -> None:
    assert answering("I would rather not.").generate_triton(PROBLEM.source) == "I would rather not."
    assert answering("```python\nx = 1\n```").generate_triton(PROBLEM.source) == "x = 1"
    assert isinstance(model.generate_triton(PROBLEM.source, 16), str)


def test_the_pasted_module_is_in_the_training_prompt_once() -> None:
    seen: list[str] = []

    def answer(messages: object, sample: int) -> str:
        seen.append(messages[0].content)  # type: ignore[index]
        assert [m.role for m in messages] == ["text"]  # type: ignore[attr-defined]
        return fenced("a")

    KernelLLM.using(Mock(answer=answer)).generate_triton(PROBLEM.source)
    (prompt,) = seen
    assert prompt.count(PROBLEM.source.strip()) == 1
    assert "<|begin_of_text|>" not in prompt  # the tokenizer puts it there, once


def test_which_weights_are_loaded(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert KernelLLM().model.name == "mini"  # the package's own weights
    monkeypatch.setenv("KERNELLLM_MINI_WEIGHTS", str(tmp_path / "none"))
    with pytest.raises(ModelError, match="facebook/KernelLLM"):
        KernelLLM()
    monkeypatch.setenv("KERNELLLM_KERNELLLM_WEIGHTS", str(folder))
    assert KernelLLM().model.name == f"hf/{folder}"
    with pytest.raises(ModelError, match="other/weights"):
        KernelLLM("other/weights")
    with pytest.raises(ModelError, match="facebook/KernelLLM"):
        KernelLLM("facebook/KernelLLM".replace("K", "K"))  # said by the caller: not the default


def test_optimize_samples_judges_and_estimates(store: Store) -> None:
    model = KernelLLM.using(Scripted(), judge=ScriptedJudge(), store=store)
    found = model.optimize(PROBLEM, n=20)
    assert (found.n, found.correct) == (20, 1)
    assert found.pass_at == {1: pytest.approx(0.05), 5: pytest.approx(0.25), 10: pytest.approx(0.5), 20: 1.0}
    assert found.code == code("slow")
    assert len(found.attempts) == 20
    assert found.message == ""


def test_who_gets_no_right_kernel_is_told_of_the_compiler(store: Store) -> None:
    found = KernelLLM.using(Scripted(), judge=ScriptedJudge(), store=store).optimize(PROBLEM, n=1)
    assert (found.correct, found.best) == (0, None)
    assert "let the compiler write it: kernelllm.optimize(code)" in found.message


def test_optimize_repairs_over_rounds_and_resumes(store: Store) -> None:
    first = Scripted()
    found = KernelLLM.using(first, judge=ScriptedJudge(), store=store).optimize(PROBLEM, n=2, rounds=2)
    assert found.code == code("fast")
    assert (found.n, found.correct) == (2, 1)  # pass@k is of first versions
    again = Scripted()
    same = KernelLLM.using(again, judge=ScriptedJudge(), store=store).optimize(PROBLEM, n=2, rounds=2)
    assert again.asked == []
    assert same.run == found.run
    key = lambda a: (a.round, a.candidate.sample)
    assert sorted(same.attempts, key=key) == sorted(found.attempts, key=key)


def test_optimize_stops_at_a_budget(store: Store) -> None:
    model = KernelLLM.using(Scripted(), judge=ScriptedJudge(), store=store)
    found = model.optimize(PROBLEM, n=50, max_new_tokens=100, max_tokens_total=3000)
    assert 0 < len(found.attempts) < 50
    assert "budget" in found.message
    assert "goes on from there" in found.message
    model = KernelLLM.using(Scripted(), judge=ScriptedJudge(), store=store)
    more = model.optimize(PROBLEM, n=50, max_new_tokens=100, max_tokens_total=6000)
    assert more.run == found.run
    assert len(more.attempts) > len(found.attempts)
