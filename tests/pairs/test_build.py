"""The whole way of pairs: harvest, build, resume, look, export; what is dropped, and why."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from kernelllm.app.commands.pairs import pairs
from kernelllm.core.types import Problem
from kernelllm.pairs.canonical import canonical, fingerprint
from kernelllm.pairs.cleaning import cleaned
from kernelllm.pairs.operator_graph import graph_hash
from kernelllm.pairs.row import Pair
from kernelllm.suites import open_suite

MODULE = '''
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return {result}


def get_inputs():
    return [torch.randn({rows}, 24), torch.randn({rows}, 24)]


def get_init_inputs():
    return []
'''


def run(*arguments: str) -> str:
    done = CliRunner().invoke(pairs, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, ...]]:
    """Two builds of five modules, which come in turns to one and the other: the arguments of each."""
    made = tmp_path_factory.mktemp("modules")
    (made / "a.py").write_text(MODULE.format(result="torch.tanh(x) * 3 - y", rows=12))
    for name, first, other in (("c_renamed", "first", "other"), ("d_renamed", "left", "right")):
        renamed = MODULE.replace("x, y", f"{first}, {other}").format(result=f"torch.tanh({first}) * 3 - {other}", rows=12)
        (made / f"{name}.py").write_text(renamed.replace("class Model(nn.Module):", f'class Model(nn.Module):\n    """By {first}."""\n'))
    builtin = next(iter(open_suite("builtin/activation/mish").problems()))
    (made / "b_benchmark.py").write_text(re.sub(r"\bx\b", "value", builtin.source))
    named = MODULE.format(result="(x * torch.sigmoid(y)).sum(1)", rows="batch").replace("import torch\n", "import torch\n\nbatch = 12\n", 1)
    (made / "e.py").write_text(named)
    folder = tmp_path_factory.mktemp("parts")
    how = ("--db", str(folder / "store.db"), "--device", "cpu", "--workers", "1", "--against", "builtin")
    found = [("build", str(made), "-o", str(folder / f"part{i}"), "--shard", f"{i}/2", *how) for i in (0, 1)]
    for arguments in found:
        run(*arguments)
    return found


def report(part: tuple[str, ...]) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((Path(part[3]) / "report.json").read_text())
    return told


def data(folder: str | Path) -> list[bytes]:
    return [p.read_bytes() for p in sorted((Path(folder) / "data").iterdir())]


def test_build_drops_duplicates_and_benchmarks_and_resumes(parts: list[tuple[str, ...]]) -> None:
    one, other = map(report, parts)
    assert [(t["rows"], t["kept"]) for t in (one, other)] == [(3, 2), (2, 1)]
    assert one["dropped"] == {"the same module": 1}
    assert [r for r in other["dropped"] if r.startswith("in a benchmark")]
    part = parts[0][3]
    before = data(part)
    run(*parts[0])
    assert data(part) == before
    lines = [json.loads(line) for line in run("export", part).splitlines()]
    assert len(lines) == 2
    assert all("class ModelNew" in line["messages"][-1]["content"] for line in lines)
    assert all("class Model(nn.Module)" in line["messages"][-2]["content"] for line in lines)
    assert all("= x.shape" in line["messages"][-1]["content"] and "batch" not in line["messages"][-1]["content"] for line in lines)
    assert "rows" in run("stats", part)
    assert "@triton.jit" in run("show", part, "1")


def test_harvest_writes_classes_that_stand_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "somelayers"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "parts.py").write_text("import torch\n\nSLOPE = 0.25\n\n\ndef bent(x):\n    return torch.where(x > 0, x, SLOPE * x)\n")
    (package / "block.py").write_text(
        "import json\nimport torch.nn as nn\nfrom .parts import bent\n\n\n"
        "class Block(nn.Module):\n    def __init__(self, dim, eps=1e-5, affine=True):\n        super().__init__()\n"
        "        self.norm = nn.LayerNorm(dim, eps=eps, elementwise_affine=affine)\n\n"
        "    def forward(self, x):\n        return bent(self.norm(x))\n\n\n"
        "class Needs(nn.Module):\n    def forward(self, x):\n        return json.dumps(x)\n"
    )
    info = tmp_path / "site" / "somelayers-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.4\nName: somelayers\nVersion: 1.2\nLicense-Expression: MIT\n")
    (info / "RECORD").write_text("somelayers/__init__.py,,\nsomelayers-1.2.dist-info/METADATA,,\n")
    (info / "top_level.txt").write_text("somelayers\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    out = run("harvest", "somelayers", "-o", str(tmp_path / "found"))
    sys.modules.pop("somelayers", None)
    assert "2 problems" in out
    assert "return [32, 1e-05, False]" in (tmp_path / "found" / "somelayers.block.Block.1.py").read_text()
    text = (tmp_path / "found" / "somelayers.block.Block.py").read_text()
    assert "SLOPE = 0.25" in text
    assert "class Model(nn.Module)" in text
    assert "somelayers" not in text
    told = json.loads((tmp_path / "found" / "provenance.json").read_text())["somelayers.block.Block"]
    assert told["licenses"] == ["MIT"]
    assert told["repo_name"] == "somelayers 1.2"


def test_modules_that_differ_in_numbers_alone_are_kept_as_often_as_asked() -> None:
    rows = []
    for number in range(5):
        source = MODULE.format(result=f"torch.tanh(x).roll({number + 3}, 1).abs() - y", rows=12)
        told = {"name": str(number), "uuid": str(number), "origin": "", "model": "", "fingerprint": fingerprint(source), "graph": "roll"}
        rows.append(msgspec.convert({"python_code": source, "triton_code": f"# {number}", "split": "train", **told}, Pair))
    for per_form in (1, 3):
        kept, report = cleaned(rows, None, per_form=per_form)
        assert len(kept) == per_form
        assert report.dropped == {"nearly the same module": 5 - per_form}


def test_names_and_docstrings_do_not_matter_and_operators_do() -> None:
    one = MODULE.format(result="torch.tanh(x) - y", rows=4)
    other = MODULE.replace("x, y", "a, b").format(result="torch.tanh(a) - b", rows=4)
    assert fingerprint(one) == fingerprint(other)
    assert fingerprint(one) != fingerprint(one.replace("tanh", "sin"))
    noted, plain = (one.replace("return torch.tanh", f"z{note} = 1\n        return torch.tanh") for note in (": int", ""))
    assert fingerprint(noted) == fingerprint(plain)
    assert fingerprint(one) != fingerprint(one.replace("4, 24", "8, 24"))
    assert canonical(one, numbers=False) == canonical(one.replace("4, 24", "8, 24"), numbers=False)


def test_the_same_graph_is_found_in_other_writing() -> None:
    one = Problem(name="a", source=MODULE.format(result="torch.tanh(x) - y", rows=4))
    method = Problem(name="b", source=MODULE.format(result="x.tanh().sub(y)", rows=8))
    turned = Problem(name="c", source=MODULE.format(result="y - torch.tanh(x)", rows=4))
    assert graph_hash(one) == graph_hash(method)
    assert graph_hash(one)[0] != graph_hash(turned)[0]


def test_parts_made_at_different_times_merge_to_one_set_in_any_order(parts: list[tuple[str, ...]], tmp_path: Path) -> None:
    folders = [part[3] for part in parts]
    merged = [tmp_path / name for name in ("merged", "turned")]
    run("merge", *folders, folders[0], "-o", str(merged[0]), "--against", "builtin")
    run("merge", *reversed(folders), "-o", str(merged[1]), "--against", "builtin")
    assert data(merged[0]) == data(merged[1])
    rows = [json.loads(line) for line in run("export", str(merged[0]), "--format", "kernelbook").splitlines()]
    assert len(rows) == 2
    assert len({r["python_code"] for r in rows}) == 2
    assert "InferenceOnly" not in "".join(r["triton_code"] for r in rows)
