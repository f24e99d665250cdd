"""What are tokens of several lines."""

from __future__ import annotations

import pytest

from kernelllm.train import tokenizer

pytest.importorskip("transformers")
RELU = "@triton.jit\ndef relu(x):\n    return tl.maximum(x, 0.0)"
LOAD = "    x = tl.load(x_ptr + i, mask=mask, other=0.0).to(tl.float32)"


def file(step: str) -> str:
    kernel = f"@triton.jit\ndef steps_kernel(x_ptr, n):\n{LOAD}\n    x = {step}"
    model = f"class ModelNew(nn.Module):\n    def forward(self, x):\n        return steps(x, {len(step)})"
    return "\n\n\n".join(["import triton", RELU, kernel, model]) + "\n"


FILES = [file(step) for step in ("relu(x)", "relu(x) + 1", "x + 1", "x * x", "-x", "x - 1") for _ in range(10)]


def test_functions_that_all_files_have_alike_are_tokens_and_their_steps_are_not() -> None:
    assert tokenizer.shared_parts(FILES, 100) == ["\n\n\n" + RELU, "\n" + LOAD]
    assert tokenizer.shared_parts(FILES, 1) == ["\n\n\n" + RELU]


def test_a_function_that_files_write_in_their_own_way_is_no_token() -> None:
    other = [text.replace("tl.maximum(x, 0.0)", "tl.where(x > 0.0, x, 0.0)") for text in FILES[:20]]
    found = tokenizer.shared_parts([*FILES[20:], *other], 100)
    assert "\n" + LOAD in found
    assert not any("def relu" in part for part in found)


def test_what_is_written_in_such_tokens_comes_back() -> None:
    words = tokenizer.trained(FILES, 400, tokenizer.shared_parts(FILES, 100))
    ids = words(FILES[0], add_special_tokens=False)["input_ids"]
    assert words.decode(ids) == FILES[0]
    assert [words.decode([i]) for i in ids].count("\n\n\n" + RELU) == 1
