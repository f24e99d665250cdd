"""Rows of others judged anew; other writings of a module that compute the same; uploads."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kernelllm.app.commands.pairs import pairs
from kernelllm.core.types import Problem
from kernelllm.pairs import imported, pair_files
from kernelllm.pairs.augment import rewritten
from kernelllm.pairs.operator_graph import graph_hash
from kernelllm.suites import open_suite

MODULE = """
import torch
import torch.nn as nn


class Bent(nn.Module):
    def forward(self, x):
        return torch.tanh(x) * 2.0


def get_inputs():
    return [torch.rand([4, 4, 4, 4])]


def get_init_inputs():
    return [[], {}]
"""
KERNEL = """
import torch
import triton
import triton.language as tl
from torch._inductor.runtime.triton_heuristics import grid
from torch._C import _cuda_getCurrentRawStream as get_raw_stream
from torch._inductor.runtime.triton_helpers import libdevice
import torch.nn as nn
assert_size_stride = torch._C._dynamo.guards.assert_size_stride
empty_strided_cuda = torch._C._dynamo.guards._empty_strided_cuda


@triton.jit
def triton_poi_fused_mul_tanh_0(in_ptr0, out_ptr0, xnumel, XBLOCK: tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    tmp0 = tl.load(in_ptr0 + xindex, xmask)
    tmp1 = libdevice.tanh(tmp0)
    tl.store(out_ptr0 + xindex, tmp1 * 2.0, xmask)


def call(args):
    arg0_1, = args
    args.clear()
    assert_size_stride(arg0_1, (4, 4, 4, 4), (64, 16, 4, 1))
    with torch.cuda._DeviceGuard(0):
        torch.cuda.set_device(0)
        buf0 = empty_strided_cuda((4, 4, 4, 4), (64, 16, 4, 1), torch.float32)
        get_raw_stream(0)
        triton_poi_fused_mul_tanh_0[grid(256)](arg0_1, buf0, 256, XBLOCK=256, num_warps=4, num_stages=1)
    return buf0,


class BentNew(nn.Module):
    def forward(self, input_0):
        return call([input_0])[0]
"""


def run(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(pairs, list(arguments), catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.output


def test_rows_in_kernelbooks_form_are_judged_anew(tmp_path: Path) -> None:
    row = {"entry_point": "Bent", "python_code": MODULE, "triton_code": KERNEL, "licenses": ["MIT"], "repo_name": "someone/bent", "uuid": 7}
    wrong = row | {"triton_code": KERNEL.replace("tmp1 * 2.0", "tmp1 * 2.5"), "uuid": 8}
    none = row | {"python_code": "class Bent(:", "uuid": 9}
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps(r) for r in (row, wrong, none)))
    arguments = (str(tmp_path / "rows.jsonl"), "--db", str(tmp_path / "db"), "--device", "cpu", "--workers", "1", "--against", "builtin")
    out = run("import", *arguments, "-o", str(tmp_path / "set"))
    [kept] = pair_files.read(tmp_path / "set")
    assert kept.licenses == ("MIT",)
    assert kept.repo_name == "someone/bent"
    assert "_inductor" not in kept.triton_code
    assert "not verified: incorrect" in out
    assert "not a problem" in out


def test_a_fence_in_a_docstring_is_no_answer_in_a_fence() -> None:
    code = 'class ModelNew:\n    """As in:\n\n    ```python\n    ModelNew()\n    ```\n    """\n'
    for text in (code, f"Here:\n```python\n{code.replace('```', '')}```\n"):
        found = imported.candidate({"triton_code": text}, "rows")
        assert found is not None
        assert found.source.startswith("class ModelNew:\n")


def test_other_writings_compute_the_same() -> None:
    changed = 0
    for problem in open_suite("synth/11/25").problems():
        text = rewritten(problem.source, random.Random(problem.name))
        changed += text != problem.source
        assert sorted(graph_hash(problem)[1]) == sorted(graph_hash(Problem(name="other", source=text))[1]), text
    assert changed > 20


def test_lines_that_depend_on_each_other_keep_their_order() -> None:
    lines = ("a = x + 1", "b = x * 2", "c = a - b", "return c")
    source = MODULE.replace("        return torch.tanh(x) * 2.0", "\n".join(f"        {line}" for line in lines))
    swapped = set()
    for seed in range(40):
        lines = [line.split("=")[1].split()[1] for line in rewritten(source, random.Random(seed)).splitlines() if " = " in line]
        swapped.add("".join(lines))
    assert swapped == {"+*-", "*+-"}


def test_augmenting_leaves_other_splits_alone_and_pushing_names_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelllm.pairs.cleaning import CleaningReport
    from kernelllm.pairs.row import Pair

    plain = {"triton_code": "class ModelNew: ...", "fingerprint": "f", "name": "n", "origin": "o", "model": "m"}
    text = MODULE.replace("[4, 4, 4, 4]", "[batch_size, 4]") + "\nbatch_size = 4\n"
    ids = ("6f0f5b0e-6c34-4f0a-9a39-6d1d8f3f7c11", "6f0f5b0e-6c34-4f0a-9a39-6d1d8f3f7c12")
    rows = [Pair(python_code=text, uuid=u, split=s, **plain) for u, s in zip(ids, ("train", "test"), strict=True)]
    pair_files.write(rows, tmp_path / "set", CleaningReport(rows=2, kept=2))
    run("augment", str(tmp_path / "set"), "-o", str(tmp_path / "more"), "--times", "3")
    more = list(pair_files.read(tmp_path / "more"))
    assert len(more) > 2
    assert len({r.uuid for r in more}) == len(more)
    assert {r.split for r in more if r.augmented_from} == {"train"}
    done: list[Any] = []
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub.HfApi, "create_repo", lambda self, name, **how: f"datasets/{name}")
    monkeypatch.setattr(hub.HfApi, "upload_folder", lambda self, **how: done.append(how["folder_path"]))
    assert "datasets/me/pairs" in run("push", str(tmp_path / "more"), "me/pairs")
    assert done == [tmp_path / "more"]
    monkeypatch.setattr(hub.HfApi, "create_repo", lambda self, name, **how: (_ for _ in ()).throw(OSError("no network")))
    with pytest.raises(Exception, match="no network"):
        run("push", str(tmp_path / "more"), "me/pairs")
