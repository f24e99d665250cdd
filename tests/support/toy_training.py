"""Toy pairs and recipes for tests of training: short texts in the form of real ones; nothing here is judged."""

from __future__ import annotations

from pathlib import Path

from kernelllm.pairs.row import Pair
from kernelllm.train import config

MODULE = """import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x {op} {number}
"""
KERNEL = """import torch.nn as nn
from triton import launch


class ModelNew(nn.Module):
    def forward(self, x):
        return launch(x, "{op}", {number})
"""


def toy_pair(index: int, split: str, **more: object) -> Pair:
    op = "+-*/"[index % 4]
    made = {"python_code": MODULE.format(op=op, number=index), "triton_code": KERNEL.format(op=op, number=index)}
    named = {"name": f"toy/{index}", "origin": "toy", "model": "compiler", "fingerprint": str(index), "uuid": f"u{index}"}
    return Pair(**{**made, **named, "split": split, **more})  # type: ignore[arg-type]


SIZES = (
    "tokenizer.vocabulary=400", "tokenizer.blocks=20", "architecture.width=32", "architecture.layers=2", "architecture.heads=2",
    "architecture.kv_heads=1", "architecture.mlp=64", "data.max_length=384", "training.batch=2", "training.micro_batch=1",
    "training.learning_rate=0.01", "training.log_every=1", "training.max_steps=8", "validation.every=4", "validation.problems=0",
    "data.renamings=1",
)  # fmt: skip


def toy_recipe(toy_set: Path, *changes: str, base: str = "mini") -> config.Recipe:
    return config.load(base, (*SIZES, f'data.pairs=["{toy_set}"]', *changes))
