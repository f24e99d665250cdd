"""A whole stack with no network: a tiny Llama of random weights, by transformers and behind a real OpenAI-compatible server."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny import save_tiny_llama

from kernelllm.models import LanguageModel, Message, SamplingParams, open_model

for package in ("transformers", "openai", "fastapi", "uvicorn"):
    pytest.importorskip(package)

CHAT = [Message("user", "Write a kernel.")]
TEXT = [Message("text", "You write custom Triton kernels")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """``transformers serve`` in a process of its own; its address."""
    script = shutil.which("transformers", path=str(Path(sys.executable).parent)) or shutil.which("transformers")
    if script is None:
        pytest.skip("transformers has no command line here")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    command = [script, "serve", str(folder), "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2)
                break
            except (urllib.error.URLError, OSError):
                if process.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"The server did not start: {log.read_text()[-2000:]}")
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=30)


@pytest.fixture(params=["hf", "openai"])
def model(request: pytest.FixtureRequest, folder: Path) -> LanguageModel:
    if request.param == "hf":
        return open_model(f"hf/{folder}", device="cpu")
    # One request at a time: the server draws from one generator, so that only then a seed decides.
    return open_model(f"openai/{folder}", base_url=request.getfixturevalue("server"), concurrency=1)


def only(model: LanguageModel, messages: list[Message], params: SamplingParams, first: int = 0) -> str:
    return next(iter(model.sample(messages, params, 1, first))).text


def test_both_answer_and_count(model: LanguageModel) -> None:
    answers = sorted(model.sample(CHAT, SamplingParams(max_tokens=16, seed=3), 3), key=lambda a: a.sample)
    assert [a.sample for a in answers] == [0, 1, 2]
    assert len({a.text for a in answers}) == 3
    for a in answers:
        assert a.tokens_in is not None
        assert a.tokens_in > 10
        assert a.tokens_out is not None
        assert 0 < a.tokens_out <= 16
        assert a.finish in ("stop", "length")
        assert "Write a kernel" not in a.text


def test_both_count_the_prompt_alike(folder: Path, server: str) -> None:
    params = SamplingParams(max_tokens=2)
    for messages in (CHAT, TEXT):
        counts = [
            next(iter(m.sample(messages, params))).tokens_in
            for m in (open_model(f"hf/{folder}", device="cpu"), open_model(f"openai/{folder}", base_url=server))
        ]
        assert counts[0] == counts[1]


def test_both_obey_a_seed(model: LanguageModel) -> None:
    params = SamplingParams(max_tokens=16, seed=11)
    assert only(model, CHAT, params) == only(model, CHAT, params)
    assert only(model, CHAT, params) != only(model, CHAT, SamplingParams(max_tokens=16, seed=12))
    assert only(model, CHAT, params, first=1) == only(model, CHAT, SamplingParams(max_tokens=16, seed=12))


def test_both_obey_a_stop_text(model: LanguageModel) -> None:
    seed = next(s for s in range(60) if "n" in only(model, CHAT, SamplingParams(max_tokens=16, seed=s))[1:])
    whole = only(model, CHAT, SamplingParams(max_tokens=16, seed=seed))
    stopped = only(model, CHAT, SamplingParams(max_tokens=16, seed=seed, stop=("n",)))
    assert stopped == whole[: whole.index("n")]


@pytest.mark.parametrize("messages", [CHAT, TEXT], ids=["chat", "text"])
def test_both_stream(model: LanguageModel, messages: list[Message]) -> None:
    params = SamplingParams(max_tokens=16, seed=5)
    pieces = list(model.stream(messages, params))
    assert len(pieces) > 1
    assert "".join(pieces) == only(model, messages, params)
    last = model.last  # type: ignore[attr-defined]
    assert last.tokens_out is not None
    assert 0 < last.tokens_out <= 16
