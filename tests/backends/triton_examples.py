"""Run with TRITON_INTERPRET=1: every example's kernel against its reference."""

from __future__ import annotations

import types

import torch

from kernelllm.backends.triton.prompt_rules import examples


def load(name: str) -> types.ModuleType:
    import importlib

    return importlib.import_module(f"kernelllm.backends.triton.examples.{name}")


for name in examples():
    reference, kernel = load(f"{name}_reference"), load(f"{name}_kernel")
    made = reference.get_init_inputs()
    torch.manual_seed(0)
    wanted = reference.Model(*made)
    mine = kernel.ModelNew(*made)
    mine.load_state_dict(wanted.state_dict())
    inputs = reference.get_inputs()
    with torch.no_grad():
        torch.testing.assert_close(mine(*inputs), wanted(*inputs), rtol=1e-4, atol=1e-5)
    print(name, "ok")  # noqa: T201
