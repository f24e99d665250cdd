"""The packaged small model: weights in shards, its sampler, and what is said where there are none."""

from __future__ import annotations

import ast
import json
import shutil
from pathlib import Path

import pytest
import torch

from kernelllm.core.errors import ModelError
from kernelllm.core.types import Attempt, Candidate, Problem, Status, Verdict
from kernelllm.lm.lm_writer import LMWriter
from kernelllm.lm.prompts import Templates, first_prompt
from kernelllm.models import SamplingParams, decoding, open_model, small_weights
from kernelllm.models.constrained.python_prefix import PythonPrefix
from kernelllm.models.llama_steps import LlamaWeights, Steps

transformers = pytest.importorskip("transformers")
RELU = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(128, 4096)]


def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def llama() -> torch.nn.Module:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=128, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=600, tie_word_embeddings=True, pad_token_id=0, eos_token_id=1, bos_token_id=None, initializer_range=0.4,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


def drawn(
    model: torch.nn.Module, prompts: list[list[int]], most: int, check: decoding.Continuation | None = None, temperature: float = 0.0
) -> list[decoding.Drawn]:
    chooser, weights = decoding.Chooser(temperature, 1.0, 0, 256, check), LlamaWeights(model, torch.float32)
    return decoding.generate(weights, prompts, [0] * len(prompts), ends={1}, choose=chooser, most=most, stopped=lambda: False)


def test_greedy_answers_are_those_of_transformers(llama: torch.nn.Module) -> None:
    prompts = [[5, 6, 7, 8, 9], [9, 8], [9, 8, 7, 4]]
    for prompt, row in zip(prompts, drawn(llama, prompts, 300), strict=True):
        tokens = torch.tensor([prompt])
        wanted = llama.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=300, do_sample=False)[0, len(prompt) :]
        assert row.tokens == wanted[: len(row.tokens)].tolist()
        assert row.ended == (1 in wanted.tolist())


def test_weights_that_come_from_int8_are_multiplied_as_such_on_a_cpu(llama: torch.nn.Module, tmp_path: Path) -> None:
    from kernelllm.train.tokenizer import trained

    small_weights.save(llama, trained(["def f(x):\n    return x + 1\n"], 300), tmp_path)
    stored, _ = small_weights.load(tmp_path)
    prompts = [[5, 6, 7, 8, 9], [9, 8], [9, 8, 7, 4]]
    steps = {as_stored: Steps(LlamaWeights(stored, torch.float32, as_stored=as_stored), prompts) for as_stored in (True, False)}
    alone = Steps(LlamaWeights(stored, torch.float32, as_stored=True), prompts[:1])
    for token in (3, 17, 40):
        for one, rows in ((alone, 1), *((one, 3) for one in steps.values())):
            one.step([token] * rows)
    exact, logits = steps[False].logits, steps[True].logits
    assert 0 < (exact - logits).abs().max() < 0.02 * exact.abs().max()
    torch.testing.assert_close(alone.logits[0], logits[0], atol=1e-5, rtol=1e-5, msg="other rows of the batch change nothing")
    free = LlamaWeights(llama, torch.float32, as_stored=True)
    assert all(matrix.int8 is None for layer in free.layers for matrix in (layer.qkv, layer.out, layer.up, layer.down))


def test_tokens_after_which_no_python_can_follow_are_refused(llama: torch.nn.Module) -> None:
    pieces = [")", "", "(", "x", "\n", " + "] + ["]"] * 122
    free = "".join(pieces[t] for t in drawn(llama, [[5, 6]], 30)[0].tokens)
    assert "]" in free
    held = "".join(pieces[t] for t in drawn(llama, [[5, 6]], 30, decoding.Continuation(pieces, PythonPrefix(), 128))[0].tokens)
    assert "]" not in held


@pytest.mark.parametrize("hold_lines", [True, False])
def test_lines_that_read_unknown_names_are_drawn_again_where_lines_are_held(llama: torch.nn.Module, hold_lines: bool) -> None:
    pieces = ["\nx = 1", ""] + ["\ny = unknown" if token % 16 == 0 else "\ny = 2" for token in range(126)]
    check = decoding.Continuation(pieces, PythonPrefix(), 128, hold_lines=hold_lines)
    text = "".join(pieces[t] for t in drawn(llama, [[5, 6]], 40, check, temperature=20.0)[0].tokens)
    assert "y = 2" in text
    assert ("unknown" in text) is not hold_lines


def test_weights_come_back_from_int8(llama: torch.nn.Module, tmp_path: Path) -> None:
    from kernelllm.train.tokenizer import trained

    words = trained(["def f(x):\n    return x + 1\n"], 300)
    small_weights.save(llama, words, tmp_path)
    back, read = small_weights.load(tmp_path)
    tokens = torch.tensor([[5, 6, 7]])
    with torch.inference_mode():
        wanted, got = llama(tokens).logits, back(tokens).logits
    assert (wanted - got).abs().max() < 0.05 * wanted.abs().max()
    assert read("return")["input_ids"] == words("return")["input_ids"]
    (tmp_path / "int8-00000.safetensors").write_bytes(b"damaged")
    with pytest.raises(ModelError, match="cannot be read"):
        small_weights.load(tmp_path)


def test_the_weights_of_this_package_fit_and_write_python() -> None:
    folder = Path(small_weights.__file__).parent / "mini_weights"
    if not small_weights.present(folder):
        pytest.skip("this build has no weights")
    sizes = [file.stat().st_size for file in folder.iterdir()]
    assert sum(sizes) <= 40e6
    assert max(sizes) <= 15e6
    assert "held against" in (folder / "README.md").read_text(encoding="utf-8")
    asked = first_prompt(Templates(), "mini", Problem(name="relu", source=RELU))
    (made,) = open_model("mini", device="cpu").sample(asked, SamplingParams(temperature=0.0, max_tokens=300))
    assert made.finish == "stop"
    assert "class ModelNew" in ast.unparse(ast.parse(made.text))


def test_other_texts_of_tokens_are_another_model(tmp_path: Path) -> None:
    folder = shutil.copytree(small_weights.packaged(), tmp_path / "own")
    before = open_model(f"mini/{folder}").identity
    with (folder / "tokenizer.json").open("a", encoding="utf-8") as opened:
        opened.write("\n")
    assert open_model(f"mini/{folder}").identity != before


def test_a_build_without_weights_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELLLM_MINI_WEIGHTS", str(tmp_path))
    with pytest.raises(ModelError, match="without the weights of mini"):
        open_model("mini").ready()


def test_weights_that_saw_no_verdicts_are_asked_the_first_prompt_again(tmp_path: Path) -> None:
    problem = Problem(name="relu", source=RELU)
    candidate = Candidate(source="class ModelNew: pass")
    failed = Attempt(problem="relu", candidate=candidate, verdict=Verdict(status=Status.INCORRECT, message="off"))
    config = json.loads((small_weights.packaged() / "config.json").read_text())
    writers = {}
    for reads in (True, False):
        folder = shutil.copytree(small_weights.packaged(), tmp_path / str(reads), ignore=lambda *_: ["config.json"])
        (folder / "config.json").write_text(json.dumps(config | {"reads_verdicts": reads}))
        writers[reads] = LMWriter(open_model(f"mini/{folder}"))
    assert writers[False].messages(problem, [failed]) == writers[False].messages(problem)
    assert writers[True].messages(problem, [failed]) != writers[True].messages(problem)
