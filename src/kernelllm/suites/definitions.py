"""``flashinfer/PATH`` and ``sol-execbench/PATH``: definitions and workloads of FlashInfer-Bench and SOL-ExecBench as problems.

A definition (JSON) names axes (``const``, ``var`` or ``expr``), inputs and outputs by axes and dtype, and holds a reference with a function
``run``. A workload (a line of JSON) gives the ``var`` axes and says where each input comes from: ``random``, ``scalar``,
``safetensors`` or ``custom`` (a function in the reference). Each workload becomes one problem, whose axes are module-level constants.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelllm.core.errors import KernelLLMError, ProblemError, UsageError
from kernelllm.core.text import syntax_tree
from kernelllm.core.types import Problem
from kernelllm.problems import sizes, wrap
from kernelllm.suites import contract, file

FLOATS = {"float64", "float32", "float16", "bfloat16"}
SMALL_FLOATS = {"float8_e4m3fn", "float8_e5m2"}
INTEGERS = {"int64", "int32", "int16", "int8", "uint8"}
_AXIS_NODES = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.Name, ast.Load, ast.Constant, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv,
    ast.Mod, ast.Pow, ast.UAdd, ast.USub,
)  # fmt: skip


class DefinitionSuite(contract.Suite):
    """Definitions below a folder, one problem for each workload, as ``<definition>/<workload number>``.

    Workloads are found in any ``.jsonl`` below the folder, or beside a definition as ``workload.jsonl``. A definition without
    one is left out, as are those that use what PyTorch has no plain tensors for (4-bit floats); ``skipped`` says why.
    ``PATH?workloads=3`` takes the first three of each definition. Raises UsageError where there is no such folder.
    """

    name = "flashinfer"
    summary = "definitions and workloads of a flashinfer-trace or SOL-ExecBench data set: NAME/PATH"

    def __init__(self, spec: str = "") -> None:
        path, _, query = spec.partition("?")
        self.root = Path(path or ".").expanduser()
        self.skipped: dict[str, str] = {}
        key, _, value = query.partition("=")
        if query and (key != "workloads" or not value.isdigit() or value == "0"):
            raise UsageError(f"Unknown option {query!r}.", fix="Write PATH?workloads=3 for three workloads of each definition.")
        self.most = int(value) if value else None
        if not self.root.is_dir():
            raise UsageError(f"There is no folder {self.root}.", fix="Give the folder of a flashinfer-trace or SOL-ExecBench data set.")

    def problems(self) -> Iterator[Problem]:
        """Problems by definition and workload. Raises UsageError where there is none."""
        workloads = self._workloads()
        found = 0
        for name, definition in sorted(self._definitions().items(), key=lambda item: contract.natural(item[0])):
            own = workloads.get(name, [])[: self.most]
            if not own:
                self.skipped[name] = "It has no workload."
            for number, workload in enumerate(own):
                try:
                    source = problem_source(definition, workload, self.root)
                except KernelLLMError as error:
                    self.skipped[f"{name}/{number}"] = error.what
                    continue
                found += 1
                tags = tuple(str(t) for t in (definition.get("op_type"), *(definition.get("tags") or [])) if t)
                yield Problem(name=f"{name}/{number}", source=source, origin=f"flashinfer:{name}#{workload.get('uuid', number)}", tags=tags)
        if not found:
            why = next(iter(self.skipped.values()), "It holds no definition.")
            raise UsageError(f"There is no definition with a workload in {self.root}. {why}")

    def _definitions(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for path in sorted(self.root.rglob("*.json")):
            value = _json(file.read(path), path)
            if isinstance(value, dict) and {"name", "axes", "inputs", "outputs", "reference"} <= set(value):
                found[str(value["name"])] = value
        return found

    def _workloads(self) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {}
        for path in sorted(self.root.rglob("*.jsonl")):
            beside = path.with_name("definition.json")
            for line in file.read(path).split("\n"):
                value = _json(line, path) if line.strip() else None
                if not isinstance(value, dict) or value.get("solution"):
                    continue  # the trace of a solution
                workload = value.get("workload", value)
                if not isinstance(workload, dict) or "axes" not in workload:
                    continue
                name = value.get("definition") or (_json(file.read(beside), beside).get("name") if beside.is_file() else path.stem)
                found.setdefault(str(name), []).append(workload)
        return found


def problem_source(definition: dict[str, Any], workload: dict[str, Any], root: Path) -> str:
    """One definition at one workload, in KernelBench's format. Raises ProblemError for what cannot be expressed."""
    name = str(definition["name"])
    reference = str(definition["reference"])
    tree = sizes.parse(reference, name)
    bound = wrap.bound_names(tree) or frozenset()
    if "run" not in bound:
        raise ProblemError("The reference defines no run.", where=name)
    inputs = dict(definition["inputs"])
    entry = definition.get("custom_inputs_entrypoint")
    sources = {key: dict(workload.get("inputs", {}).get(key, {"type": "random"})) for key in inputs}
    custom = any(s.get("type") == "custom" for s in sources.values())
    if custom and (not entry or entry not in bound):
        raise ProblemError("Its workload has custom inputs and the reference no function that makes them.", where=name)
    axes = _axes(definition, workload, name)
    scalars = {key: s["value"] for key, s in sources.items() if s.get("type") == "scalar"}
    about = " ".join(str(definition.get("description") or "").split())
    head = [f"# {name}: {about}", "", reference.rstrip("\n"), "", ""]
    # The reference may define get_inputs itself, so it is kept under another name before ours replaces it.
    head += [f"_make_inputs = {entry}", ""] if custom else []
    lines = [*head, "import torch", "", *axes, "", "", "class Model(torch.nn.Module):"]
    lines += [f"    def forward(self, {', '.join(inputs)}):", f"        return run({', '.join(inputs)})", "", "", "def get_inputs():"]
    if custom:
        names = {k: k for k in definition["axes"]} | {k: repr(v) for k, v in scalars.items()}
        given = ", ".join(f"{k!r}: {v}" for k, v in names.items())
        lines += [f"    made = _make_inputs({{{given}}}, torch.empty(0).device)"]
        values = [f"made[{k!r}] if {k!r} in made else {scalars[k]!r}" if k in scalars else f"made[{k!r}]" for k in inputs]
    else:
        values = [_value(key, spec, sources[key], root, name) for key, spec in inputs.items()]
    lines += ["    return [", *(f"        {v}," for v in values), "    ]", "", "", "def get_init_inputs():", "    return []"]
    return "\n".join(lines) + "\n"


def _axes(definition: dict[str, Any], workload: dict[str, Any], where: str) -> list[str]:
    """Assignments of the axes: numbers first, then expressions of them."""
    numbers, expressions = [], []
    for axis, spec in definition["axes"].items():
        if not str(axis).isidentifier():
            raise ProblemError(f"The axis {axis!r} is no name.", where=where)
        kind = spec.get("type")
        if kind == "expr":
            text = str(spec["expression"])
            if not all(isinstance(node, _AXIS_NODES) for node in ast.walk(syntax_tree(text, mode="eval"))):
                raise ProblemError(f"The expression of axis {axis} is not arithmetic: {text}.", where=where)
            expressions.append(f"{axis} = int({text})")
            continue
        value = spec.get("value") if kind == "const" else workload["axes"].get(axis)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ProblemError(f"The workload gives no whole number for the axis {axis}.", where=where)
        numbers.append(f"{axis} = {value}")
    return numbers + expressions


def _value(key: str, spec: dict[str, Any], source: dict[str, Any], root: Path, where: str) -> str:
    """The expression that makes one input."""
    kind, dtype = source.get("type"), str(spec.get("dtype"))
    if kind == "scalar":
        return repr(source["value"])
    if kind == "safetensors":
        path = root / str(source["path"])
        return f'__import__("safetensors.torch", fromlist=["torch"]).load_file({str(path.resolve())!r})[{str(source["tensor_key"])!r}]'
    if kind != "random":
        raise ProblemError(f"The input {key} comes from {kind!r}, which is none of random, scalar, safetensors and custom.", where=where)
    if spec.get("shape") is None:
        return "1.0" if dtype in FLOATS else "1"
    shape = "(" + "".join(f"{axis}, " for axis in spec["shape"]).strip() + ")"
    if dtype in FLOATS:
        return f"torch.randn({shape}, dtype=torch.{dtype})"
    if dtype in SMALL_FLOATS:
        return f"torch.randn({shape}).to(torch.{dtype})"
    if dtype == "bool":
        return f"torch.rand({shape}) < 0.5"
    if dtype in INTEGERS:
        return f"torch.randint(0, 2, {shape}, dtype=torch.{dtype})"
    raise ProblemError(f"The input {key} has the dtype {dtype}, which is not supported.", where=where)


def _json(text: str, path: Path) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"The file is not JSON: {error.msg} on line {error.lineno}.", where=str(path)) from error
