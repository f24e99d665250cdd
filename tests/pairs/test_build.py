"""The whole way of pairs: harvest, build, resume, look, export; what is dropped, and why."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernelllm.app.commands.pairs import pairs
from kernelllm.core.types import Problem
from kernelllm.pairs.canonical import canonical, fingerprint
from kernelllm.pairs.operator_graph import graph_hash
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "modules"
    made.mkdir()
    (made / "a.py").write_text(MODULE.format(result="torch.tanh(x) * 3 - y", rows=12))
    renamed = MODULE.replace("x, y", "first, other").format(result="torch.tanh(first) * 3 - other", rows=12)
    (made / "b_renamed.py").write_text(renamed.replace("class Model(nn.Module):", 'class Model(nn.Module):\n    """Other words."""\n'))
    builtin = next(iter(open_suite("builtin/activation/mish").problems()))
    (made / "c_benchmark.py").write_text(re.sub(r"\bx\b", "value", builtin.source))
    named = MODULE.format(result="(x * torch.sigmoid(y)).sum(1)", rows="batch").replace("import torch\n", "import torch\n\nbatch = 12\n", 1)
    (made / "d.py").write_text(named)
    return made


def test_build_drops_duplicates_and_benchmarks_and_resumes(folder: Path, tmp_path: Path) -> None:
    arguments = ("build", str(folder), "-o", str(tmp_path / "set"), "--db", str(tmp_path / "store.db"), "--device", "cpu", "--workers", "1")
    run(*arguments, "--against", "builtin")
    told = json.loads((tmp_path / "set" / "report.json").read_text())
    assert told["rows"] == 4
    assert told["kept"] == 2
    assert told["dropped"]["the same module"] == 1
    assert [r for r in told["dropped"] if r.startswith("in a benchmark")]
    before = [p.read_bytes() for p in sorted((tmp_path / "set" / "data").iterdir())]
    run(*arguments, "--against", "builtin")
    assert [p.read_bytes() for p in sorted((tmp_path / "set" / "data").iterdir())] == before
    lines = [json.loads(line) for line in run("export", str(tmp_path / "set")).splitlines()]
    assert len(lines) == 2
    assert all("class ModelNew" in line["messages"][-1]["content"] for line in lines)
    assert all("class Model(nn.Module)" in line["messages"][-2]["content"] for line in lines)
    assert all("= x.shape" in line["messages"][-1]["content"] and "batch" not in line["messages"][-1]["content"] for line in lines)
    assert "rows" in run("stats", str(tmp_path / "set"))
    assert "@triton.jit" in run("show", str(tmp_path / "set"), "1")


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


def test_parts_made_at_different_times_merge_to_one_set_in_any_order(folder: Path, tmp_path: Path) -> None:
    how = ("--db", str(tmp_path / "store.db"), "--device", "cpu", "--workers", "1", "--against", "builtin")
    parts = [str(tmp_path / f"part{i}") for i in (0, 1)]
    for number, part in enumerate(parts):
        CliRunner().invoke(pairs, ["build", str(folder), "-o", part, "--shard", f"{number}/2", *how], catch_exceptions=False)
    told = [json.loads((Path(part) / "report.json").read_text()) for part in parts]
    assert [t["rows"] for t in told] == [2, 2]
    merged = [tmp_path / name for name in ("merged", "turned")]
    run("merge", *parts, parts[0], "-o", str(merged[0]), "--against", "builtin")
    run("merge", *reversed(parts), "-o", str(merged[1]), "--against", "builtin")
    one, other = ([p.read_bytes() for p in sorted((m / "data").iterdir())] for m in merged)
    assert one == other
    rows = [json.loads(line) for line in run("export", str(merged[0]), "--format", "kernelbook").splitlines()]
    assert len(rows) == 2
    assert len({r["python_code"] for r in rows}) == 2
    assert "InferenceOnly" not in "".join(r["triton_code"] for r in rows)
