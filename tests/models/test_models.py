"""Providers by name, mock and replay, the answer cache, and what an absent SDK or key says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kernelllm.core.errors import MissingExtra, ModelError, UnknownName, UsageError
from kernelllm.core.store import Store
from kernelllm.core.types import digest
from kernelllm.models import Message, SamplingParams, open_model, provider_class
from kernelllm.models.cached import Cached
from kernelllm.models.language_model import AGAIN, LanguageModel, StopCutter, cut_at_stop, request_key
from kernelllm.models.mock import Mock

CHAT = [Message("system", "Be brief."), Message("user", "Write a kernel.")]
ALL = ("anthropic", "hf", "litellm", "mock", "openai", "replay", "vllm")


def test_every_provider_says_what_it_is_and_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    found = {name: provider_class(name) for name in ALL}
    assert not found["mock"].lacks()
    assert not found["replay"].lacks()
    assert found["anthropic"].lacks()
    assert all(one.summary for one in found.values())


def test_looking_at_the_providers_imports_no_sdk() -> None:
    heavy = ("torch", "transformers", "openai", "anthropic", "litellm", "vllm", "sqlalchemy", "jinja2")
    code = f"import sys; from kernelllm.models import provider_class; [provider_class(n).lacks() for n in {ALL}]; "
    code += f"print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("provider", "package"),
    [("hf", "transformers"), ("openai", "openai"), ("anthropic", "anthropic"), ("litellm", "litellm"), ("vllm", "vllm")],
)
def test_an_absent_package_names_its_extra(provider: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with pytest.raises(MissingExtra, match=rf"kernelllm\[{provider}\]"):
        list(open_model(f"{provider}/name").sample(CHAT, SamplingParams()))


def test_names_and_options_are_checked() -> None:
    with pytest.raises(UnknownName, match=r"opnai.*Did you mean 'openai'"):
        open_model("opnai/gpt")
    with pytest.raises(UsageError, match=r"no option 'flavour'.*base_url"):
        open_model("openai/gpt", flavour="sweet")
    with pytest.raises(UnknownName, match="compiler"):
        open_model("compiler")
    for provider in ("hf", "openai", "anthropic", "litellm", "vllm", "replay"):
        with pytest.raises(UsageError, match=f"{provider} needs"):
            open_model(provider)
    model = open_model("hf/org/name/part")
    assert (model.name, model.model) == ("hf/org/name/part", "org/name/part")  # type: ignore[attr-defined]


def test_mock_is_deterministic_and_numbered() -> None:
    model = open_model("mock")
    answers = list(model.sample(CHAT, SamplingParams(), 3, first=4))
    assert [a.sample for a in answers] == [4, 5, 6]
    assert len({a.text for a in answers}) == 3
    assert [a.text for a in model.sample(CHAT, SamplingParams(), 1, first=4)] == [answers[0].text]
    assert "".join(model.stream(CHAT, SamplingParams())) == next(iter(model.sample(CHAT, SamplingParams()))).text
    short = next(iter(model.sample(CHAT, SamplingParams(max_tokens=5))))
    assert (short.finish, short.tokens_out) == ("length", 5)


def test_replay_finds_answers_by_prompt_words_and_order(tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    rows = [
        {"text": "first"},
        {"text": "second"},
        {"text": "repaired", "match": "It failed"},
        {"text": "exact", "prompt": digest("the prompt"), "sample": 1},
        {"text": "numbered", "sample": 7, "tokens_in": 3, "tokens_out": 2},
    ]
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    model = open_model(f"replay/{file}")

    def ask(prompt: str, sample: int) -> str:
        return next(iter(model.sample([Message("text", prompt)], SamplingParams(), 1, sample))).text

    assert ask("anything", 0) == "first"
    assert ask("anything", 1) == "second"
    assert ask("anything", 7) == "numbered"
    assert ask("It failed: x", 0) == "repaired"
    assert ask("the prompt", 1) == "exact"
    assert ask("the prompt", AGAIN + 1) == "exact"
    with pytest.raises(ModelError, match="none for sample 9"):
        ask("anything", 9)
    with pytest.raises(UsageError, match="no file"):
        list(open_model("replay/nowhere.jsonl").sample(CHAT, SamplingParams()))
    file.write_text('{"text": 3}\n')
    with pytest.raises(UsageError, match="does not parse"):
        list(open_model(f"replay/{file}").sample(CHAT, SamplingParams()))


def test_answers_are_cached_by_everything_that_makes_them(tmp_path: Path) -> None:
    asked: list[int] = []

    def answer(messages: object, sample: int) -> str:
        asked.append(sample)
        return f"answer {sample}"

    with Store(tmp_path / "runs.db") as store:
        model = Cached(Mock(answer=answer), store, run="r1")
        params = SamplingParams(temperature=0.5, seed=1)
        assert [c.text for c in model.sample(CHAT, params, 2)] == ["answer 0", "answer 1"]
        assert sorted(c.text for c in model.sample(CHAT, params, 4)) == ["answer 0", "answer 1", "answer 2", "answer 3"]
        assert asked == [0, 1, 2, 3]
        # Its own run's answers cost what they cost; another run has them for nothing.
        assert [c.cached for c in model.sample(CHAT, params, 1)] == [False]
        assert [c.cached for c in Cached(Mock(answer=answer), store, run="r2").sample(CHAT, params, 1)] == [True]
        assert asked == [0, 1, 2, 3]
        for other in (
            lambda: list(model.sample(CHAT[:1], params)),
            lambda: list(model.sample(CHAT, SamplingParams(temperature=0.6, seed=1))),
            lambda: list(model.sample(CHAT, params, 1, first=9)),
            lambda: list(Cached(Mock("named", answer=answer), store).sample(CHAT, params)),
            lambda: list(Cached(Mock(answer=answer), store, salt="r3").sample(CHAT, params)),
        ):
            before = len(asked)
            other()
            assert len(asked) == before + 1


def test_a_key_tells_servers_apart_and_holds_no_secret() -> None:
    a = open_model("openai/m", base_url="http://user:hunter2@host:1/v1")
    b = open_model("openai/m", base_url="http://host:2/v1")
    assert request_key(a, CHAT, SamplingParams(), 0) != request_key(b, CHAT, SamplingParams(), 0)
    assert "hunter2" not in a.identity  # type: ignore[attr-defined]


def test_stop_texts_cut_also_across_pieces() -> None:
    assert cut_at_stop("abcENDdef", ("END", "de")) == ("abc", True)
    assert cut_at_stop("abc", ("END",)) == ("abc", False)
    cutter = StopCutter(("END",))
    assert "".join(cutter.feed(p) for p in ("ab", "cE", "N", "Dde")) == "abc"
    assert cutter.stopped
    cutter = StopCutter(("END",))
    assert "".join(cutter.feed(p) for p in ("abE", "N")) + cutter.rest() == "abEN"


def test_every_provider_class_says_what_it_is() -> None:
    for name in ALL:
        cls = provider_class(name)
        assert issubclass(cls, LanguageModel)
        assert cls.provider == name
