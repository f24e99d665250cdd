"""Templates cut down to what a file uses: what goes, what stays, and that the rest computes the same."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from emitted import written

from kernelllm.compiler.emit.helpers import definitions_for
from kernelllm.compiler.emit.template_code.abstract import UNKNOWN, AbstractTensor, Const, Sequence, Unknown, const
from kernelllm.compiler.emit.template_code.specialise import Call, specialised


def run(text: str, name: str, *args: Any) -> Any:
    space: dict[str, Any] = {"torch": torch}
    exec(text, space)
    return space[name](*args)


def both(definitions: dict[str, str], calls: list[Call], name: str, *args: Any) -> tuple[str, Any]:
    """The text of the specialised functions, and what ``name`` returns; it is what it returned before."""
    gone = specialised(definitions, calls)
    names = gone.params[name]
    text = "\n".join(gone.texts)
    left = [a for n, a in zip(names, args, strict=False) if n not in gone.gone[name]]
    result = run(text, name, *left)
    assert result == run("\n".join(definitions.values()), name, *args)
    return text, result


def test_constants_are_put_in_and_branches_never_taken_go() -> None:
    body = "if mode == 'double':\n        y = x * 2\n    else:\n        y = x / 0\n    return y * 1 + 0"
    source = {"f": f"def f(x, mode, unused=0):\n    {body}"}
    text, _ = both(source, [Call("f", [UNKNOWN, const("double")])], "f", 3, "double")
    assert "mode" not in text
    assert "unused" not in text
    assert text.endswith("return x * 2")


def test_a_call_of_a_function_that_may_return_early_stays_for_what_it_does() -> None:
    definitions = {
        "put": "def put(into, n):\n    if n == 1:\n        return\n    into.append(n)",
        "f": "def f(x):\n    into = []\n    put(into, x)\n    return into",
    }
    _, result = both(definitions, [Call("f", [UNKNOWN])], "f", 3)
    assert result == [3]


def test_a_part_of_a_list_with_an_end_that_is_not_known_stays() -> None:
    body = "sizes = [x + i for i in range(3)]\n    return (x, *sizes[3 - rank:])"
    text, result = both({"f": f"def f(x, rank):\n    {body}"}, [Call("f", [UNKNOWN, UNKNOWN])], "f", 5, 2)
    assert "rank" in text
    assert result == (5, 6, 7)


def test_an_argument_that_differs_between_calls_stays_and_other_branches_still_go() -> None:
    body = "if mode == 'a':\n        return x\n    elif mode == 'b':\n        return -x\n    return x * 9"
    calls = [Call("f", [UNKNOWN, const(m)]) for m in ("a", "b")]
    text, _ = both({"f": f"def f(x, mode):\n    {body}"}, calls, "f", 3, "b")
    assert "mode" in text
    assert "9" not in text


def test_a_helper_that_is_called_once_is_put_in_its_caller_and_catches_none_of_its_names() -> None:
    source = {
        "helper": "def helper(x):\n    # twice\n    flat = x + x\n    total = flat * 3\n    return total",
        "f": "def f(flat, total):\n    result = helper(flat)\n    return result + total + flat",
    }
    text, _ = both(source, [Call("f", [UNKNOWN, UNKNOWN])], "f", 5, 7)
    assert "helper" not in text
    assert "# twice" in text


def test_loops_and_lists_keep_what_changes_in_them() -> None:
    first = "for i in range(2):\n        low[i] = max(low[i], pads[i])"
    body = f"low = [0, 0]\n    {first}\n    for _ in range(n):\n        low[0] += 1\n    return low"
    both({"f": f"def f(pads, n):\n    {body}"}, [Call("f", [Sequence((const(2), UNKNOWN), True), UNKNOWN])], "f", [2, 5], 3)


def tensor(*shape: int, dtype: torch.dtype = torch.float32) -> AbstractTensor:
    strides = torch.empty(shape, device="meta").stride()
    return AbstractTensor(Const((dtype,)), tuple(map(Unknown, shape)), tuple(map(Unknown, strides)))


def test_what_is_fast_is_decided_for_the_problems_sizes_and_where_they_disagree_at_run_time() -> None:
    definitions = {d.name: d.text for d in definitions_for({"matmul"})}
    small, other = (Call("matmul", [tensor(n, 512), tensor(512, n)]) for n in (1024, 64))  # too little work for halves
    one, two = ("\n".join(specialised(definitions, calls).texts) for calls in ([small], [small, other]))
    assert "while block_m" not in one
    assert "while block_m" in two
    assert '"sum"' not in two  # products of integers
    assert len(one.splitlines()) < 60


@pytest.mark.parametrize("name", ["linear_gelu", "rms_norm"])
def test_sixteen_sizes_compile_a_kernel_at_most_three_times(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton itself tells 1, multiples of 16 and other integers apart."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import make_backend
    from triton.runtime.jit import JITFunction, create_function_from_signature

    seen: dict[str, set[str]] = {}

    def launch(kernel: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> None:
        binder = create_function_from_signature(kernel.signature, kernel.params, make_backend(GPUTarget("cuda", 90, 32)))
        _, specialization, rest = binder(*args, **options, debug=False, instrumentation_mode="")
        seen.setdefault(kernel.fn.__name__, set()).add(f"{specialization} {rest}")

    monkeypatch.setattr(JITFunction, "run", launch)
    file = tmp_path / "candidate.py"
    file.write_text(written(name), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("candidate", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.ModelNew(64, 96) if name == "linear_gelu" else module.ModelNew(64, 1e-6)
    with torch.no_grad():
        for size in range(1, 17):
            model(torch.empty(size * 4, 64) if name == "linear_gelu" else torch.empty(2, size, 64))
            model(torch.empty(size, 64) if name == "linear_gelu" else torch.empty(size, 5, 64))
    assert seen
    assert max(map(len, seen.values())) <= 3
