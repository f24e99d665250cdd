"""Fine-tuning on the CPU with toy sizes: rows, losses, resuming, what is written, and that it can be asked."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import torch
from safetensors.torch import load_file
from toy_training import SIZES, toy_recipe

from kernelllm.core.errors import UnknownName, UsageError
from kernelllm.core.types import Problem, from_json
from kernelllm.lm import prompts
from kernelllm.models import Message, SamplingParams, open_model, small_weights
from kernelllm.pairs.canonical import canonical
from kernelllm.train import card, config, prepare, weights
from kernelllm.train.card import TrainingRun
from kernelllm.train.examples import NO_LOSS, Collator, examples, packed, rows_of
from kernelllm.train.prepare import opened_tokenizer
from kernelllm.train.renaming import KernelFile, relayered, renamed, renamed_copies, resized
from kernelllm.train.sft import sft


@pytest.fixture(scope="module")
def trained(toy_set: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TrainingRun]:
    folder = tmp_path_factory.mktemp("run")
    return folder, sft(toy_recipe(toy_set), folder)


def test_loss_falls_and_what_is_written_tells_of_the_run(trained: tuple[Path, TrainingRun], toy_set: Path) -> None:
    folder, outcome = trained
    assert outcome.losses[-1][1] < 0.8 * outcome.losses[0][1]
    assert outcome.scores["perplexity"] < 400
    assert "test_perplexity" in outcome.scores
    card = (folder / "README.md").read_text()
    assert "builtin (700 problems); 3 rows" in card
    assert "split, whose families of operators training has not seen" in card
    assert "is judged" not in card, "nothing was"
    assert all(text in card for text in ("SHA-256", "perplexity", "begun" if outcome.folder == "" else "from scratch"))
    assert any((folder / "tensorboard").iterdir())
    assert all(p.stat().st_size < small_weights.SHARD_BYTES for p in (folder / "int8").glob("*.safetensors"))
    assert (folder / "model" / "config.json").exists()


def test_a_run_that_was_stopped_goes_on_to_the_same_losses(trained: tuple[Path, TrainingRun], toy_set: Path, tmp_path: Path) -> None:
    folder, outcome = trained
    stopped = tmp_path / "stopped"
    shutil.copytree(folder, stopped)
    assert sft(toy_recipe(toy_set), stopped) == outcome
    (stopped / "result.json").unlink()
    kept = (stopped / "examples.npz").stat().st_mtime_ns
    (stopped / "checkpoints" / "checkpoint-6").mkdir()  # it was stopped while it wrote
    again = sft(toy_recipe(toy_set), stopped)
    assert again.losses == outcome.losses
    assert (stopped / "examples.npz").stat().st_mtime_ns == kept, "tokens are not made again"
    assert again.scores == pytest.approx(outcome.scores)
    with pytest.raises(UsageError, match="another recipe"):
        sft(toy_recipe(toy_set, "training.learning_rate=0.1"), stopped)


def test_tokens_that_were_made_elsewhere_are_what_is_learnt(trained: tuple[Path, TrainingRun], toy_set: Path, tmp_path: Path) -> None:
    recipe = toy_recipe(toy_set)
    prepare.prepare(recipe, tmp_path / "here")
    shutil.copytree(toy_set, tmp_path / "pairs")
    moved = msgspec.structs.replace(recipe, data=msgspec.structs.replace(recipe.data, pairs=(str(tmp_path / "pairs"),)))
    made = (tmp_path / "here" / "examples.npz").stat().st_mtime_ns
    assert sft(moved, tmp_path / "here").losses == trained[1].losses
    assert (tmp_path / "here" / "examples.npz").stat().st_mtime_ns == made
    fewer = msgspec.structs.replace(moved, data=msgspec.structs.replace(moved.data, renamings=0))
    prepare.prepare(fewer, tmp_path / "here")
    assert (tmp_path / "here" / "examples.npz").stat().st_mtime_ns != made, "other data, other tokens"


def test_a_trained_folder_can_be_asked(trained: tuple[Path, TrainingRun]) -> None:
    model = open_model(f"mini/{trained[0] / 'int8'}", device="cpu", batch=3)
    asked = prompts.first_prompt(prompts.Templates(), "mini", Problem(name="a", source="x = 1"))
    params = SamplingParams(max_tokens=24, seed=5)
    found = {c.sample: c.text for c in model.sample(asked, params, 4)}
    assert sorted(found) == [0, 1, 2, 3]
    assert len(set(found.values())) > 1
    other = (Message("text", "<|module|>\nimport torch\n<|kernel|>\n"),)
    beside = {(p, c.sample): c.text for p, c in model.sample_prompts([other, asked], params, 2)}
    assert [beside[1, 0], beside[1, 1]] == [found[0], found[1]], "a sample depends on its seed, not on what is drawn beside it"


def test_examples_are_whole_and_learn_answers_alone(toy_set: Path, tmp_path: Path) -> None:
    recipe = toy_recipe(toy_set)
    rows = rows_of(recipe.data)
    words = opened_tokenizer(recipe, rows, tmp_path)
    found, too_long = examples(rows, recipe.data, words)
    assert too_long == 0
    rows_packed = packed(found, 384)
    assert sorted(map(id, (e for row in rows_packed for e in row))) == sorted(map(id, found))
    assert len(rows_packed) < len(found) / 2
    batch = Collator(words.pad_token_id, 384)(rows_packed[:2])
    learnt = batch["labels"] != NO_LOSS
    text = words.decode(batch["input_ids"][learnt])
    assert "ModelNew" in text
    assert "class Model(" not in text
    repair = next(r for r in rows if r.kind == "repair")
    shown = words.decode(examples([repair], recipe.data, words)[0][0].ids)
    assert "<|verdict|>\nincorrect: off by one\n<|kernel|>" in shown
    assert examples(rows, config.Data(max_length=20), words)[1] == len(rows)


def test_a_pair_at_other_sizes_keeps_what_its_kernel_was_written_for() -> None:
    module = "class Model:\n    def forward(self, x):\n        return x * 0.3\nModel(dim=64, groups=8)\nforward(x=torch.rand(16, 64, 128))"
    kernel = "if groups != 8:\n    raise ValueError('8')\ntl.store(p, x * 0.3, BLOCK=128)"
    texts = [resized(module, kernel, random.Random(seed)) for seed in range(20)]
    assert all("groups=8)" in new and ", 128))" in new and "128" in made for new, made in texts)
    assert all(made.partition("* ")[2].partition(",")[0] in new for new, made in texts)
    assert all((size := re.search(r"dim=(\d+)", new)) and f", {size[1]}, 128" in new for new, _ in texts)
    assert len({new for new, _ in texts}) > 10


def test_rows_are_held_out_by_family_or_by_chance(toy_set: Path) -> None:
    own, chance = (rows_of(toy_recipe(toy_set, f"data.by_family={value}").data) for value in ("true", "false"))
    assert {r.split for r in own} == {"train", "validation", "test"}
    assert sum(r.split == "train" for r in chance) > 20
    assert [r.uuid for r in chance] == [r.uuid for r in own]


def test_examples_of_a_row_do_not_see_each_other(toy_set: Path, tmp_path: Path) -> None:
    recipe = toy_recipe(toy_set)
    rows = rows_of(recipe.data)
    words = opened_tokenizer(recipe, rows, tmp_path)
    model = weights.opened(recipe, words).eval()
    (first, second), _ = examples(rows[:2], recipe.data, words)
    together, alone = Collator(0, 384)([[first, second]]), Collator(0)([[second]])
    at, length = len(first.ids), len(second.ids)
    with torch.inference_mode():
        torch.testing.assert_close(model(**together).logits[0, at : at + length], model(**alone).logits[0, :length])


def test_a_pair_under_other_names_stays_the_same_program() -> None:
    module = """rows = 4
class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.axis = dim
    def forward(self, x, y):
        return torch.sum(x * rows, dim=1) + y
Model(dim=8)
forward(x=torch.rand(4, 8), y=torch.rand(4))
"""
    kernel = """import torch


def helper(v, w):
    return v * w


@triton.jit
def scale_kernel(x_ptr, n_rows):
    tl.store(x_ptr, tl.load(x_ptr) * n_rows)


class ModelNew(nn.Module):
    def __init__(self, dim):
        if dim != 8:
            raise ValueError(f'the kernels were written for dim=8; got {dim!r}')
        super().__init__()
        self.axis = dim
    def forward(self, x, y):
        rows, x_size1 = x.shape
        scale_kernel[(1,)](x, rows)
        return torch.sum(helper(x, rows), dim=1) + y
"""
    found: set[str] = set()
    for seed in range(8):
        file = KernelFile(kernel)
        new_module, _ = renamed(module, [file], random.Random(seed))
        new_kernel = file.text()
        assert canonical(new_module.rpartition("\nModel(")[0]) == canonical(module.rpartition("\nModel(")[0])
        told = re.search(r"written for (\w+)=8; got {(\w+)!r}", new_kernel)
        assert told is not None
        assert told[1] == told[2]
        assert canonical(new_kernel.replace(f"for {told[1]}=", "for dim=")) == canonical(kernel)
        assert f"Model({re.search(r'self.axis = .*', new_module)[0].partition(' = ')[2]}=8)" in new_module  # type: ignore[index]
        assert all(text in new_module for text in re.findall(r"def \w+\(.*\):|self.axis = .*", new_kernel.partition("class ModelNew")[2]))
        assert "def helper(v, w)" in new_kernel
        names = re.search(r"forward\(self, (\w+), (\w+)\)", new_module)
        assert names is not None
        assert names[0] in new_kernel
        assert f"forward({names[1]}=torch.rand(4, 8), {names[2]}=torch.rand(4))" in new_module
        found |= set(names.groups())
    assert len(found) > 6


def test_layers_have_other_names_in_module_and_kernel() -> None:
    constructor = "    def __init__(self):\n        self.bn = nn.BatchNorm1d(4)\n"
    module = f"class Model(nn.Module):\n{constructor}    def forward(self, x):\n        return self.bn(x)"
    kernel = """import torch


def conv(x, bn_weight):
    return x


@triton.jit
def scale_kernel(x_ptr, bn_weight_ptr):
    tl.store(x_ptr, tl.load(bn_weight_ptr))


class ModelNew(nn.Module):
    def __init__(self):
        self.bn = nn.BatchNorm1d(4)
    def forward(self, x):
        bn_out = conv(x, self.bn.weight)
        scale_kernel[1,](x, self.bn.weight)
        return bn_out
"""
    found = set()
    for seed in range(8):
        file = KernelFile(kernel)
        new_module, _ = relayered(module, [file], random.Random(seed))
        new_kernel = file.text()
        name = re.search(r"self\.(\w+) = ", new_module)
        assert name is not None
        found.add(name[1])
        assert new_module == module.replace("self.bn", f"self.{name[1]}")
        own = kernel.partition("@triton.jit")[2]
        assert new_kernel.partition("@triton.jit")[2] == re.sub(r"\bbn(?=_|\b)", name[1], own)
        assert "def conv(x, bn_weight)" in new_kernel
    assert len(found) > 3


def test_a_repair_has_one_name_for_a_thing_in_all_its_texts(toy_set: Path) -> None:
    row = next(r for r in rows_of(toy_recipe(toy_set).data) if r.kind == "pair")
    module = "class Model(nn.Module):\n    def forward(self, x):\n        return x * 2\nModel()\nforward(x=torch.rand(16, 64))"
    kernel = "@triton.jit\ndef k(x_ptr):\n    tl.store(x_ptr, 2)\n\n\n"
    kernel += "class ModelNew(nn.Module):\n    def forward(self, x):\n        k[1,](x)\n"
    told = "runtime_error: name 'x_size0' is not defined; x has float32[16, 64]"
    right = {"python_code": module, "triton_code": kernel, "kind": "repair", "before_verdict": told}
    repair = msgspec.structs.replace(row, **right, before_code=kernel.replace("k[1,](x)", "k[x_size0,](x)"))
    copies = renamed_copies([repair, msgspec.structs.replace(repair, before_code="class ModelNew(:")], 8)
    assert len(copies) > 3
    for made in copies:
        name = re.search(r"forward\(self, (\w+)\)", made.python_code)
        assert name is not None
        assert f"def forward(self, {name[1]}):\n        k[1,]({name[1]})" in made.triton_code
        assert f"k[{name[1]}_size0,]({name[1]})" in made.before_code
        assert f"{name[1]}_ptr" in made.before_code
        assert made.before_verdict == f"runtime_error: name '{name[1]}_size0' is not defined; {name[1]} has float32[16, 64]"
        assert made.python_code.endswith("torch.rand(16, 64))")


def test_a_kernels_own_mask_is_no_argument_of_the_module() -> None:
    module = "class Model(nn.Module):\n    def forward(self, x, mask):\n        return x * mask\nModel()\nforward(x=x, mask=y)"
    kernel = """import torch


@triton.jit
def scale_kernel(x_ptr, mask_ptr, n):
    mask = cols < n
    mask_ = tl.load(mask_ptr + cols, mask)
    tl.store(x_ptr + cols, mask_, mask)


class ModelNew(nn.Module):
    def forward(self, x, mask):
        scale_kernel[1,](x, mask, 3)
        return x
"""
    for seed in range(8):
        file = KernelFile(kernel)
        renamed(module, [file], random.Random(seed))
        lines = file.text().split("\n")
        loaded = next(line.split()[0] for line in lines if "tl.load" in line)
        assert "    mask = cols < n" in lines
        assert loaded != "mask"
        assert f"{loaded}, mask)" in next(line for line in lines if "tl.store" in line)


@pytest.mark.gpu
def test_packed_rows_are_kept_apart_by_flash_attention(toy_set: Path, tmp_path: Path) -> None:
    recipe = toy_recipe(toy_set, "architecture.width=128")
    rows = rows_of(recipe.data)
    words = opened_tokenizer(recipe, rows, tmp_path)
    model = weights.opened(recipe, words, packed=True).eval().to("cuda", torch.bfloat16)
    (first, second), _ = examples(rows[:2], recipe.data, words)
    packs = Collator(0, 384, count=2, starts=True)([[first, second]])
    at, length = len(first.ids), len(second.ids)
    with torch.inference_mode():
        found = model(**{k: v.cuda() for k, v in packs.items()}).logits[0, at : at + length]
        model.set_attn_implementation("sdpa")
        alone = model(**{k: v.cuda() for k, v in Collator(0)([[second]]).items()}).logits[0, :length]
    torch.testing.assert_close(found, alone, atol=0.05, rtol=0.05)


def test_digits_stand_alone_and_indentation_is_one_token(toy_set: Path, tmp_path: Path) -> None:
    recipe = toy_recipe(toy_set)
    words = opened_tokenizer(recipe, rows_of(recipe.data), tmp_path)
    text = "def forward(self):\n        return 1234  # naïve\n"
    ids = words(text)["input_ids"]
    pieces = [words.decode([i]) for i in ids]
    assert words.decode(ids) == text
    assert "\n        " in pieces
    assert [p for p in pieces if p.isdigit()] == ["1", "2", "3", "4"]


def test_the_published_recipe_runs_with_a_toy_llama(toy_set: Path, trained: tuple[Path, TrainingRun], tmp_path: Path) -> None:
    changes = ("data.max_length=4096", "lora.rank=2", "training.checkpointing=false", "training.max_steps=2", "validation.every=2")
    base = shutil.copytree(trained[0] / "model", tmp_path / "base")
    recipe = toy_recipe(toy_set, *changes, f"base={base}", base="kernelllm-8b")
    with pytest.raises(UsageError, match="has 384 positions"):
        sft(recipe, tmp_path / "short")
    config_file = base / "config.json"
    config_file.write_text(config_file.read_text().replace('"max_position_embeddings": 384', '"max_position_embeddings": 4096'))
    outcome = sft(recipe, tmp_path / "lora")
    assert outcome.steps == 2
    assert (tmp_path / "lora" / "adapter" / "adapter_config.json").exists()
    assert (tmp_path / "lora" / "model" / "model.safetensors").exists()
    published = config.load("kernelllm-8b")
    assert (published.training.epochs, published.training.batch) == (10, 32)


@pytest.mark.skipif(not small_weights.present(small_weights.packaged()), reason="this build came without the weights of mini")
def test_recipes_that_begin_from_the_packaged_model_fit_its_positions() -> None:
    positions = json.loads((small_weights.packaged() / "config.json").read_text())["max_position_embeddings"]
    begun = [recipe for recipe in map(config.load, config.recipes()) if recipe.base == "mini"]
    assert len(begun) == 5
    assert all(recipe.data.max_length <= positions for recipe in begun)


def test_recipes_refuse_what_they_do_not_know(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text('recipe = "mini"\n[training]\nbatch = 4\n')
    assert config.load(str(path)).training.batch == 4
    assert config.load(str(path)).architecture.width == config.load("mini").architecture.width
    assert config.load("kernelllm-8b", ["lora=none"]).lora is None
    with pytest.raises(UsageError, match="no_such_key"):
        config.load(str(path), ["training.no_such_key=1"])
    with pytest.raises(UnknownName, match="kernelllm-8b"):
        config.load("no-such-recipe")
    assert config.recipes() == ["kernelllm-8b", "mini", *(f"mini-{more}" for more in ("dpo", "more", "reject", "repair", "rl"))]


def test_kernelllm_falls_back_to_the_small_model(
    trained: tuple[Path, TrainingRun], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from kernelllm import KernelLLM

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("KERNELLLM_MINI_WEIGHTS", str(trained[0] / "int8"))
    model = KernelLLM(device="cpu")
    assert model.model.name == "mini"
    assert "mini" in caplog.text
    assert isinstance(model.generate_triton("x = 1", 8, seed=0), str)


def test_a_finished_run_is_pushed_without_its_checkpoints(
    trained: tuple[Path, TrainingRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: dict[str, object] = {}

    class Hub:
        def create_repo(self, name: str, **_: object) -> str:
            return f"https://hub/{name}"

        def upload_folder(self, **given: object) -> None:
            sent.update(given)

    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    assert card.push(trained[0], "me/mini") == "https://hub/me/mini"
    assert sent["repo_type"] == "model"
    assert "checkpoints/*" in str(sent["ignore_patterns"])
    with pytest.raises(UsageError, match="no finished run"):
        card.push(tmp_path, "me/mini")


@pytest.mark.slow
def test_sharded_weights_reach_the_losses_of_one_process(trained: tuple[Path, TrainingRun], toy_set: Path, tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("rehearsed on CPUs: there is a GPU")
    with pytest.raises(UsageError, match="there is one"):
        sft(toy_recipe(toy_set, "training.fsdp=true"), tmp_path / "alone")
    run = tmp_path / "run"
    words = [*SIZES, "training.fsdp=true", "validation.problems=2", "validation.samples=1", "validation.max_tokens=8"]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "kernelllm"]
    command += ["train", "sft", "mini", *(part for word in words for part in ("--set", word)), f"--pairs={toy_set}", f"--output={run}"]
    for _ in range(2):  # the second call goes on from the first checkpoint
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        outcome = from_json((run / "result.json").read_bytes(), TrainingRun)
        assert [loss for _, loss in outcome.losses] == pytest.approx([loss for _, loss in trained[1].losses], rel=1e-5)
        assert outcome.scores["loss"] == pytest.approx(trained[1].scores["loss"], rel=1e-5)
        assert {"pass@1", "copied wrongly", "copy errors mended"} <= outcome.scores.keys()
        assert all((folder / "pytorch_model_fsdp.bin").exists() for folder in (run / "checkpoints").glob("checkpoint-*"))
        one, two = (load_file(folder / "model" / "model.safetensors") for folder in (trained[0], run))
        assert one.keys() == two.keys()
        for name, tensor in one.items():
            torch.testing.assert_close(two[name], tensor, atol=1e-5, rtol=1e-5)
        assert list((run / "int8").glob("*.safetensors"))
        (run / "result.json").unlink()
        shutil.rmtree(run / "checkpoints" / "checkpoint-8")
