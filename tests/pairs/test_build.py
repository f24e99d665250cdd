"""The whole way of pairs: build, resume, look, export; what is dropped, and why."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from kernelllm.app.commands.pairs import pairs
from kernelllm.core.types import Attempt, Candidate, Problem, Status, Verdict, to_json
from kernelllm.pairs import pair_files
from kernelllm.pairs.canonical import canonical, fingerprint
from kernelllm.pairs.cleaning import CleaningReport, cleaned
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
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The arguments of a build of five modules: one is there three times, one is a benchmark's."""
    made = tmp_path_factory.mktemp("modules")
    (made / "a.py").write_text(MODULE.format(result="torch.tanh(x) * 3 - y", rows=12))
    for name, first, other in (("c_renamed", "first", "other"), ("d_renamed", "left", "right")):
        renamed = MODULE.replace("x, y", f"{first}, {other}").format(result=f"torch.tanh({first}) * 3 - {other}", rows=12)
        (made / f"{name}.py").write_text(renamed.replace("class Model(nn.Module):", f'class Model(nn.Module):\n    """By {first}."""\n'))
    builtin = next(iter(open_suite("builtin/activation/mish").problems()))
    (made / "b_benchmark.py").write_text(re.sub(r"\bx\b", "value", builtin.source))
    named = MODULE.format(result="(x * torch.sigmoid(y)).sum(1)", rows="batch").replace("import torch\n", "import torch\n\nbatch = 12\n", 1)
    (made / "e.py").write_text(named)
    folder = tmp_path_factory.mktemp("set")
    how = ("--db", str(folder / "store.db"), "--device", "cpu", "--workers", "1", "--against", "builtin/activation")
    arguments = ("build", str(made), "-o", str(folder / "whole"), *how)
    run(*arguments)
    return arguments


def data(folder: str | Path) -> list[bytes]:
    return [p.read_bytes() for p in sorted((Path(folder) / "data").iterdir())]


def test_build_drops_duplicates_and_benchmarks_and_resumes(built: tuple[str, ...]) -> None:
    made = built[3]
    report = json.loads((Path(made) / "report.json").read_text())
    assert (report["rows"], report["kept"]) == (5, 2)
    assert report["dropped"].pop("the same module") == 2
    (reason,) = report["dropped"]
    assert reason.startswith("in a benchmark")
    before = data(made)
    run(*built)
    assert data(made) == before
    lines = [json.loads(line) for line in run("export", made).splitlines()]
    assert len(lines) == 2
    assert all("class ModelNew" in line["messages"][-1]["content"] for line in lines)
    assert all("class Model(nn.Module)" in line["messages"][-2]["content"] for line in lines)
    assert all("= x.shape" in line["messages"][-1]["content"] and "batch" not in line["messages"][-1]["content"] for line in lines)
    assert "rows" in run("stats", made)
    assert "@triton.jit" in run("show", made, "1")


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


def test_families_stay_whole_and_held_out_splits_are_small() -> None:
    rows = []
    for number in range(400):  # one family of 100 rows, and 100 of three
        family = "large" if number < 100 else str(number // 3)
        told = {"name": str(number), "uuid": str(number), "origin": "", "model": "", "fingerprint": str(number), "family": family}
        rows.append(msgspec.convert({"python_code": f"a{number} = {'x' * (number % 7 + 1)}({family!r})", "triton_code": "", **told}, Pair))
    kept, report = cleaned(rows, None, per_form=400)
    splits = {family: {r.split for r in kept if r.family == family} for family in {r.family for r in kept}}
    assert all(len(found) == 1 for found in splits.values())
    assert splits["large"] == {"train"}
    assert all(0.03 < report.splits[name] / report.kept <= 0.05 for name in ("validation", "test"))


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


def test_parts_made_at_different_times_merge_to_one_set_in_any_order(built: tuple[str, ...], tmp_path: Path) -> None:
    rows = list(pair_files.read(Path(built[3])))
    renamed = rows[0].python_code.replace("(x", "(first").replace("x, y", "first, y")
    again = msgspec.structs.replace(rows[0], name="again", python_code=renamed)
    parts = [str(tmp_path / name) for name in ("one", "other")]
    for part, held in zip(parts, ([rows[0]], [again, rows[1]]), strict=True):
        pair_files.write(held, Path(part), CleaningReport(rows=len(held), kept=len(held)))
    merged = [tmp_path / name for name in ("merged", "turned")]
    run("merge", *parts, parts[0], "-o", str(merged[0]), "--against", "builtin/activation")
    run("merge", *reversed(parts), "-o", str(merged[1]), "--against", "builtin/activation")
    assert data(merged[0]) == data(merged[1])
    exported = [json.loads(line) for line in run("export", str(merged[0]), "--format", "kernelbook").splitlines()]
    assert len(exported) == 2
    assert len({r["python_code"] for r in exported}) == 2
    assert "InferenceOnly" not in "".join(r["triton_code"] for r in exported)


def test_wrong_kernels_of_a_model_become_repairs(built: tuple[str, ...], tmp_path: Path) -> None:
    rows = list(pair_files.read(Path(built[3])))
    told = ((Status.INCORRECT, "off by 2"), (Status.INCORRECT, "off by 3"), (Status.INVALID, "no code"), (Status.CORRECT, ""))
    wrong = [
        Attempt(problem=name, candidate=Candidate(source=f"# {text}"), verdict=Verdict(status=status, message=text))
        for name in (rows[0].name, rows[1].name, "another")
        for status, text in told
    ]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "000000.json").write_text(to_json(wrong))
    run("repairs", built[3], str(tmp_path / "run"), "-o", str(tmp_path / "all"), "--share", "0.5")
    found = list(pair_files.read(tmp_path / "all"))
    made = [row for row in found if row.kind == "repair"]
    assert len(found) == len(rows) + len(made)
    assert {(r.name, r.before_verdict) for r in made} == {(row.name, "incorrect: off by 2") for row in rows[:2]}  # one of each first
    assert all(r.triton_code == next(row.triton_code for row in rows if row.name == r.name) for r in made)
    run("repairs", str(tmp_path / "all"), str(tmp_path / "run"), "-o", str(tmp_path / "again"), "--share", "0.5")
    assert len(list(pair_files.read(tmp_path / "again"))) == len(found)


def test_networks_over_many_steps_are_told_apart_by_their_first_operators() -> None:
    text = MODULE.replace("return {result}", "for _ in range(3000):\n            x = torch.{first}(x) + y\n        return torch.{last}(x)")
    one, same, other = (
        Problem(name=first + last, source=text.format(first=first, last=last, rows=4))
        for first, last in (("tanh", "sin"), ("tanh", "cos"), ("sigmoid", "sin"))
    )
    assert graph_hash(one) == graph_hash(same)
    assert graph_hash(one)[0] != graph_hash(other)[0]
    assert len(graph_hash(one)[1]) == 2000
