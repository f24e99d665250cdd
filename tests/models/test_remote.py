"""Providers that speak over a network, against a stub of one: requests, retries, faults, keys."""

from __future__ import annotations

import json
import logging
import os
import re
from typing import Any

import pytest
from stub import Stub, chat

from kernelllm.app.progress import Console
from kernelllm.core.errors import ModelError, UsageError
from kernelllm.models import Message, SamplingParams, open_model
from kernelllm.models.extras import scrubbed

CHAT = [Message("system", "Be brief."), Message("user", "Write a kernel.")]
KEY = "sk-test-0123456789abcdef"

pytest.importorskip("openai")


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)


def test_openai_sends_what_was_set_and_no_more() -> None:
    with Stub(lambda path, body, number: (200, chat(f"{path} {body.get('seed')}"))) as stub:
        model = open_model("openai/m", base_url=stub.url + "/v1")
        params = SamplingParams(temperature=0.3, top_p=0.9, top_k=0, max_tokens=50, seed=5, stop=("END",), reasoning_effort="low")
        answers = sorted(model.sample(CHAT, params, 3, first=2), key=lambda c: c.sample)
        assert [a.text for a in answers] == [f"/v1/chat/completions {5 + i}" for i in (2, 3, 4)]
        assert [(a.tokens_in, a.tokens_out, a.finish) for a in answers] == [(7, 3, "stop")] * 3
        body = stub.requests[0]
        assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Write a kernel."}]
        assert (body["temperature"], body["top_p"], body["top_k"], body["max_tokens"], body["stop"]) == (0.3, 0.9, -1, 50, ["END"])
        assert body["reasoning_effort"] == "low"
        list(model.sample(CHAT, SamplingParams(max_tokens=9)))
        assert not {"top_p", "top_k", "seed", "stop", "reasoning_effort"} & set(stub.requests[-1])


def test_a_plain_prompt_is_a_completion() -> None:
    def reply(path: str, body: dict[str, Any], number: int) -> tuple[int, dict[str, Any]]:
        choice = {"index": 0, "finish_reason": "length", "text": " world"}
        return 200, {"id": "1", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}

    with Stub(reply) as stub:
        answer = next(iter(open_model("openai/m", base_url=stub.url).sample([Message("text", "hello")], SamplingParams())))
        assert stub.requests[0]["prompt"] == "hello"
        assert (answer.text, answer.finish, answer.tokens_out) == (" world", "length", None)


def test_thinking_is_set_apart() -> None:
    with Stub(lambda path, body, number: (200, chat("code", reasoning_content="hmm"))) as stub:
        answer = next(iter(open_model("openai/m", base_url=stub.url).sample(CHAT, SamplingParams())))
        assert (answer.text, answer.thinking) == ("code", "hmm")


@pytest.mark.parametrize("status", [429, 503])
def test_passing_faults_are_retried_and_told(status: int, capsys: pytest.CaptureFixture[str]) -> None:
    with Stub(lambda path, body, number: (200, chat("ok")) if number > 1 else (status, {"error": {"message": "later"}})) as stub, Console():
        answer = next(iter(open_model("openai/m", base_url=stub.url, retries=4).sample(CHAT, SamplingParams())))
        assert answer.text == "ok"
        assert len(stub.requests) == 2
    assert f"openai/m: HTTP {status}: later; retry 1 of 4 in 0." in capsys.readouterr().err


SPENT = {"error": {"message": "You exceeded your current quota.", "type": "insufficient_quota", "code": "insufficient_quota"}}


@pytest.mark.parametrize(("status", "reply", "says"), [
    (429, SPENT, "no credit left"),
    (401, {"error": {"message": "wrong"}}, "Check the key"),
    (404, "<html>not here</html>", "text/html: '<html>not here</html>'"),
])  # fmt: skip
def test_what_does_not_pass_is_told_at_once(status: int, reply: Any, says: str) -> None:
    with Stub(lambda path, body, number: (status, reply)) as stub:
        with pytest.raises(ModelError, match=says):
            list(open_model("openai/m", base_url=stub.url).sample(CHAT, SamplingParams()))
        assert len(stub.requests) == 1


@pytest.mark.parametrize("reply", ["<html>Welcome to nginx</html>", {"hello": 1}, [1, 2], {"choices": [{"message": None}]}])
def test_a_server_that_speaks_something_else(reply: Any) -> None:
    shown = reply if isinstance(reply, str) else json.dumps(reply)
    said = rf"127\.0\.0\.1 does not seem to speak OpenAI's protocol: .* status 200, (text/html|application/json): '{re.escape(shown)}'"
    with Stub(lambda path, body, number: (200, reply)) as stub:
        model = open_model("openai/m", base_url=stub.url)
        with pytest.raises(ModelError, match=said):
            list(model.sample(CHAT, SamplingParams()))
        with pytest.raises(ModelError, match=said):
            list(model.stream(CHAT, SamplingParams()))
        with pytest.raises(ModelError, match="Anthropic's protocol"):
            list(open_model("anthropic/m", base_url=stub.url).sample(CHAT, SamplingParams()))
        assert len(stub.requests) == 3


def test_an_address_is_checked_before_anything_is_asked() -> None:
    with pytest.raises(UsageError, match="http://HOST:PORT/v1"):
        open_model("openai/m", base_url="localhost:8000/v1")


def test_one_failing_request_does_not_lose_the_others() -> None:
    def reply(path: str, body: dict[str, Any], number: int) -> tuple[int, dict[str, Any]]:
        return (400, {"error": {"message": "bad seed"}}) if body["seed"] == 2 else (200, chat("ok"))

    with Stub(reply) as stub:
        got: list[int] = []
        answers = open_model("openai/m", base_url=stub.url).sample(CHAT, SamplingParams(seed=0), 4)
        with pytest.raises(ModelError, match="bad seed"):
            got.extend(a.sample for a in answers)
        assert sorted(got) == [0, 1, 3]


def test_concurrency_has_a_limit() -> None:
    import threading

    busy, most, lock = 0, 0, threading.Lock()
    together = threading.Barrier(3, timeout=5)

    def reply(path: str, body: dict[str, Any], number: int) -> tuple[int, dict[str, Any]]:
        nonlocal busy, most
        with lock:
            busy += 1
            most = max(most, busy)
        together.wait()
        with lock:
            busy -= 1
        return 200, chat("ok")

    with Stub(reply) as stub:
        assert len(list(open_model("openai/m", base_url=stub.url, concurrency=3).sample(CHAT, SamplingParams(), 9))) == 9
    assert most == 3


HANGING = """
import sys
from scripted import PROBLEM, ScriptedJudge
from kernelllm.lm.lm_writer import lm_writer
from kernelllm.models import open_model
from kernelllm.search import SearchBudget, Search
writer = lm_writer(open_model("openai/m", base_url=sys.argv[1]))
search = Search(PROBLEM, writer, ScriptedJudge(), n=4, budget=SearchBudget(max_seconds=1.0))
print(list(search), search.stopped)
"""


def test_a_server_that_hangs_holds_up_neither_a_time_budget_nor_the_end_of_the_process() -> None:
    import subprocess
    import sys
    import threading
    from pathlib import Path

    release = threading.Event()

    def reply(path: str, body: dict[str, Any], number: int) -> tuple[int, dict[str, Any]]:
        release.wait(120)
        return 200, chat("late")

    with Stub(reply) as stub:
        support = str(Path(__file__).parent.parent / "support")
        environment = {**os.environ, "PYTHONPATH": support}
        command = [sys.executable, "-c", HANGING, stub.url]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=True)
        release.set()
    assert done.stdout.strip() == "[] time"


def test_no_key_says_where_to_put_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(ModelError, match="Set OPENAI_API_KEY"):
        list(open_model("openai/gpt").sample(CHAT, SamplingParams()))
    # A server of one's own needs none.
    with Stub(lambda path, body, number: (200, chat("ok"))) as stub:
        assert next(iter(open_model("openai/m", base_url=stub.url).sample(CHAT, SamplingParams()))).text == "ok"


@pytest.mark.parametrize("provider", ["openai", "anthropic", "litellm/openai"])
def test_a_key_is_in_no_error_and_no_log(provider: str, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip(provider.partition("/")[0])
    caplog.set_level(logging.DEBUG)

    def reply(path: str, body: dict[str, Any], number: int) -> tuple[int, dict[str, Any]]:
        return 401, {"type": "error", "error": {"type": "authentication_error", "message": f"Incorrect API key provided: {KEY}."}}

    with Stub(reply) as stub, pytest.raises(ModelError) as caught:
        list(open_model(f"{provider}/m", base_url=stub.url, retries=0).sample(CHAT, SamplingParams()))
    error: BaseException | None = caught.value
    assert any(KEY in h.get("authorization", "") + h.get("x-api-key", "") for h in stub.headers)  # it was sent
    while error is not None:
        assert KEY not in str(error) + repr(error)
        error = error.__cause__
    assert "key" in str(caught.value).lower()
    assert not [r for r in caplog.records if r.name.startswith("kernelllm") and KEY in r.getMessage()]


def test_a_server_that_is_not_there_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ModelError, match=r"Connection refused \(127.0.0.1:9\)\. .*base-url"):
        list(open_model("openai/m", base_url="http://127.0.0.1:9/v1").sample(CHAT, SamplingParams()))
    assert "retry" not in caplog.text


def test_a_server_that_goes_away_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    with Stub(lambda path, body, number: (200, chat("ok"))) as stub:
        model = open_model("openai/m", base_url=stub.url, retries=1)
        list(model.sample(CHAT, SamplingParams()))
    with pytest.raises(ModelError, match="1 retry later"):
        list(model.sample(CHAT, SamplingParams()))
    assert "retry 1 of 1" in caplog.text


def anthropic_events(text: str, thinking: str = "") -> list[dict[str, Any]]:
    usage = {"input_tokens": 11, "output_tokens": 1}
    message = {"id": "1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None, "stop_sequence": None}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {**message, "usage": usage}}]
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if thinking:
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, [{"type": "thinking_delta", "thinking": thinking}]))
    blocks.append(({"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in (text[:3], text[3:])]))
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": d} for d in deltas]
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": {"stop_reason": "max_tokens", "stop_sequence": None}, "usage": {"output_tokens": 6}})
    events.append({"type": "message_stop"})
    return events


def test_anthropic() -> None:
    pytest.importorskip("anthropic")
    with Stub(lambda path, body, number: (200, {"events": anthropic_events("hello", "hmm")})) as stub:
        model = open_model("anthropic/m", base_url=stub.url)
        answer = next(iter(model.sample(CHAT, SamplingParams(max_tokens=77, stop=("END",), reasoning_effort="high"))))
        assert (answer.text, answer.thinking, answer.tokens_in, answer.tokens_out, answer.finish) == ("hello", "hmm", 11, 6, "length")
        body = stub.requests[0]
        assert body["system"] == "Be brief."
        assert body["messages"] == [{"role": "user", "content": "Write a kernel."}]
        assert (body["max_tokens"], body["stop_sequences"], body["output_config"]["effort"]) == (77, ["END"], "high")
        assert "temperature" not in body  # the newest protocol refuses it even at its default
        assert list(model.stream(CHAT, SamplingParams(temperature=0.5))) == ["hel", "lo"]
        assert stub.requests[1]["temperature"] == 0.5
        assert stub.headers[1]["anthropic-version"] == "2023-06-01"
        assert model.last.tokens_out == 6  # type: ignore[attr-defined]


def test_litellm() -> None:
    pytest.importorskip("litellm")
    with Stub(lambda path, body, number: (200, chat("hello", reasoning_content="hmm"))) as stub:
        model = open_model("litellm/openai/m", base_url=stub.url)
        answer = next(iter(model.sample(CHAT, SamplingParams(temperature=0.5, max_tokens=5, seed=3), 1, 2)))
        assert (answer.text, answer.tokens_in, answer.sample) == ("hello", 7, 2)
        assert stub.requests[0]["seed"] == 5


def test_what_looks_like_a_secret_is_scrubbed() -> None:
    text = "key sk-abcdefghijklmnop1234 and Bearer abc.def.ghi at http://me:pass@host/ and mine"
    assert scrubbed(text, "mine") == "key *** and Bearer *** at http://***@host/ and ***"
    assert os.environ["OPENAI_API_KEY"] == KEY
