"""Weights on this machine, with a tiny model: batches, seeds, stops, streams, counts, and one beginning-of-text token."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
from tiny import save_tiny_llama

from kernelllm.core.errors import MissingExtra, ModelError, UsageError
from kernelllm.models import Message, SamplingParams, open_model
from kernelllm.models.hf import HF

pytest.importorskip("transformers")

CHAT = [Message("user", "Write a kernel.")]
TEXT = [Message("text", "You write custom Triton kernels")]
PARAMS = SamplingParams(max_tokens=24, seed=7)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def model(folder: Path) -> HF:
    opened = open_model(f"hf/{folder}", device="cpu")
    assert isinstance(opened, HF)
    return opened


def test_n_samples_are_one_batch(model: HF, monkeypatch: pytest.MonkeyPatch) -> None:
    network, _ = model.load()
    calls: list[int] = []
    plain = network.generate
    monkeypatch.setattr(network, "generate", lambda **k: calls.append(k["num_return_sequences"]) or plain(**k))
    answers = list(model.sample(CHAT, PARAMS, 6, first=3))
    assert calls == [6]
    assert [a.sample for a in answers] == [3, 4, 5, 6, 7, 8]
    assert len({a.text for a in answers}) > 1
    monkeypatch.setattr(model, "batch", 4)
    assert len(list(model.sample(CHAT, PARAMS, 6))) == 6
    assert calls == [6, 4, 2]


def test_a_seed_decides(model: HF) -> None:
    import torch

    before = torch.random.get_rng_state()
    one = [a.text for a in model.sample(CHAT, PARAMS, 4)]
    two = [a.text for a in model.sample(CHAT, PARAMS, 4)]
    other = [a.text for a in model.sample(CHAT, SamplingParams(max_tokens=24, seed=8), 4)]
    assert one == two != other
    assert torch.equal(before, torch.random.get_rng_state())  # the process's own randomness is left alone


def test_greedy_is_greedy(model: HF) -> None:
    answers = [a.text for a in model.sample(CHAT, SamplingParams(temperature=0, max_tokens=12), 2)]
    assert answers[0] == answers[1]


def test_top_k_of_one_is_greedy_and_zero_is_no_limit(model: HF) -> None:
    greedy = next(iter(model.sample(CHAT, SamplingParams(temperature=0, max_tokens=12)))).text
    assert next(iter(model.sample(CHAT, SamplingParams(top_k=1, max_tokens=12, seed=1)))).text == greedy
    assert model._generation(SamplingParams())["top_k"] == 0  # transformers' own default is 50


def test_tokens_are_counted_and_the_prompt_is_not_echoed(model: HF) -> None:
    answer = next(iter(model.sample(TEXT, PARAMS)))
    assert answer.tokens_in == len(model.encode(TEXT))
    assert answer.tokens_out is not None
    assert 0 < answer.tokens_out <= 24
    assert answer.finish == ("length" if answer.tokens_out == 24 else answer.finish)
    assert not answer.text.startswith("You write")


def test_the_beginning_of_text_token_is_there_once(model: HF) -> None:
    bos = 0
    for messages in (TEXT, CHAT, [Message("text", "<|begin_of_text|>You write")], [Message("system", "s"), Message("user", "u")]):
        ids = model.encode(messages)
        assert ids[0] == bos
        assert ids.count(bos) == 1


def test_a_tokenizer_with_no_chat_template_gets_plain_text(folder: Path) -> None:
    bare = HF(str(folder), device="cpu")
    _, tokenizer = bare.load()
    tokenizer.chat_template = None
    ids = bare.encode([Message("system", "Be brief."), Message("user", "Go.")])
    assert tokenizer.decode(ids, skip_special_tokens=True) == "Be brief.\n\nGo.\n"


def test_a_stop_text_ends_the_answer(model: HF) -> None:
    seed = next(s for s in range(50) if "n" in next(iter(model.sample(CHAT, SamplingParams(max_tokens=24, seed=s)))).text[1:])
    whole = next(iter(model.sample(CHAT, SamplingParams(max_tokens=24, seed=seed))))
    stopped = next(iter(model.sample(CHAT, SamplingParams(max_tokens=24, seed=seed, stop=("n",)))))
    assert stopped.text == whole.text[: whole.text.index("n")]
    assert stopped.finish == "stop"
    assert (stopped.tokens_out or 0) <= (whole.tokens_out or 0)
    assert "".join(model.stream(CHAT, SamplingParams(max_tokens=24, seed=seed, stop=("n",)))) == stopped.text


def test_a_stream_is_the_sample_in_pieces(model: HF) -> None:
    pieces = list(model.stream(CHAT, PARAMS))
    whole = next(iter(model.sample(CHAT, PARAMS)))
    assert "".join(pieces) == whole.text
    assert len(pieces) > 1
    assert model.last is not None
    assert (model.last.tokens_in, model.last.tokens_out, model.last.finish) == (whole.tokens_in, whole.tokens_out, whole.finish)


def test_a_stream_that_nobody_reads_on_ends(model: HF) -> None:
    stream = model.stream(CHAT, SamplingParams(max_tokens=4000, temperature=1.5))
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert next(iter(model.sample(CHAT, PARAMS))).finish != "cancelled"


def test_a_model_in_memory_can_be_wrapped(model: HF) -> None:
    network, tokenizer = model.load()
    wrapped = HF.wrapping(network, tokenizer, name="mine")
    assert wrapped.name == "hf/mine"
    assert [a.text for a in wrapped.sample(CHAT, PARAMS, 2)] == [a.text for a in model.sample(CHAT, PARAMS, 2)]


def test_a_batch_that_does_not_fit_is_halved(model: HF, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    network, _ = model.load()
    plain, sizes = network.generate, []

    def small(**arguments: Any) -> Any:
        sizes.append(arguments["num_return_sequences"])
        if sizes[-1] > 2:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        return plain(**arguments)

    monkeypatch.setattr(network, "generate", small)
    assert len(list(model.sample(CHAT, PARAMS, 8))) == 8
    assert sizes == [8, 4, 2, 2, 2, 2]
    monkeypatch.setattr(network, "generate", lambda **k: (_ for _ in ()).throw(torch.cuda.OutOfMemoryError("full")))
    with pytest.raises(ModelError, match="GPU memory"):
        list(model.sample(CHAT, PARAMS))


def test_no_weights_and_no_network_say_what_to_do_in_three_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    for name in ("facebook/KernelLLM", str(tmp_path / "nowhere")):
        with pytest.raises(ModelError) as caught:
            HF(name).load()
        lines = str(caught.value).splitlines()
        assert len(lines) == 3
        assert name in lines[0]
        assert "hf download" in lines[1]
        assert "folder" in lines[1]
        assert "--base-url" in lines[2]
        assert "-m compiler" in lines[2]


def test_options_are_checked_before_anything_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="quantization"):
        HF("x", quantization="3bit")
    with pytest.raises(UsageError, match="dtype"):
        HF("x", dtype="float8").load()
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(MissingExtra, match="bitsandbytes"):
        HF("x", quantization="4bit").load()


def test_an_adapter_changes_the_answers_and_the_identity(folder: Path, tmp_path: Path, model: HF) -> None:
    peft = pytest.importorskip("peft")
    import torch
    import transformers

    base = transformers.AutoModelForCausalLM.from_pretrained(folder)
    adapted = peft.get_peft_model(base, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False))
    for p in adapted.parameters():
        torch.nn.init.normal_(p, std=0.5) if p.requires_grad else None
    adapted.save_pretrained(tmp_path / "adapter")
    other = HF(str(folder), device="cpu", adapter=str(tmp_path / "adapter"))
    greedy = SamplingParams(temperature=0, max_tokens=12)
    assert next(iter(other.sample(CHAT, greedy))).text != next(iter(model.sample(CHAT, greedy))).text
    assert other.identity != model.identity


def test_vllm_asks_for_all_samples_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM itself needs a GPU: its offline interface, as documented, is stood in for."""
    seen: list[tuple[str, Any, dict[str, Any]]] = []

    class LLM:
        def __init__(self, **arguments: Any) -> None:
            seen.append(("init", arguments, {}))

        def _reply(self, kind: str, prompts: Any, sampling: Any) -> list[Any]:
            seen.append((kind, prompts, vars(sampling)))
            outs = [types.SimpleNamespace(text=f"t{i}", token_ids=[1, 2], finish_reason="length") for i in range(sampling.n)]
            return [types.SimpleNamespace(outputs=outs, prompt_token_ids=[1, 2, 3])]

        def generate(self, prompts: Any, sampling: Any, use_tqdm: bool = True) -> list[Any]:
            return self._reply("generate", prompts, sampling)

        def chat(self, prompts: Any, sampling: Any, use_tqdm: bool = True) -> list[Any]:
            return self._reply("chat", prompts, sampling)

    fake = types.ModuleType("vllm")
    fake.LLM = LLM  # type: ignore[attr-defined]
    fake.SamplingParams = lambda **k: types.SimpleNamespace(**k)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", fake)
    model = open_model("vllm/org/name", max_length=4096)
    answers = list(model.sample(TEXT, SamplingParams(seed=1, max_tokens=9, stop=("END",)), 20))
    assert [a.sample for a in answers] == list(range(20))
    assert (answers[0].tokens_in, answers[0].tokens_out, answers[0].finish) == (3, 2, "length")
    list(model.sample(CHAT, SamplingParams(), 2, first=5))
    assert [s[0] for s in seen] == ["init", "generate", "chat"]
    assert seen[0][1]["model"] == "org/name"
    assert seen[1][2] | {"n": 20, "seed": 1, "max_tokens": 9, "stop": ["END"], "top_k": -1} == seen[1][2]


@pytest.mark.parametrize("reachable", [True, False])
def test_a_repository_that_cannot_be_had_is_told_after_one_question(reachable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers would ask for each file, again and again."""
    import huggingface_hub
    import transformers
    from huggingface_hub import errors

    def asked(self: object, name: str, **options: object) -> None:
        error = errors.HTTPError("Name or service not known")
        if reachable:
            error = errors.RepositoryNotFoundError.__new__(errors.RepositoryNotFoundError)
            error.response = types.SimpleNamespace(status_code=404)  # type: ignore[attr-defined]
        raise error

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", asked)
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", None)
    with pytest.raises(ModelError, match="no such repository" if reachable else "the hub cannot be reached") as caught:
        open_model("hf/nobody/nothing").load()
    assert "hf download nobody/nothing" in str(caught.value)
