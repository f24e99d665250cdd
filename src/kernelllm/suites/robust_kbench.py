"""``robust-kbench/PATH``: task folders of robust-kbench, one problem for each setting of initialisation and inputs.

A task is a folder with ``func_forward.py`` (``Model`` and ``get_inputs`` with keyword arguments) and ``config_forward.json``, whose
lists ``{single,multi}_{init,input,shared}_configs`` hold the keyword arguments; shared ones go to both and win. ``func_backward.py`` with
``config_backward.json`` likewise gives problems whose outputs are the gradients of the floating-point inputs and of the parameters.
"""

from __future__ import annotations

import ast
import itertools
import json
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelllm.core.errors import KernelLLMError, ProblemError, UsageError
from kernelllm.core.text import syntax_tree
from kernelllm.core.types import Problem
from kernelllm.problems import sizes, wrap
from kernelllm.suites import contract, file

_COMMON = '''

# Settings: {label}
{constants}


def _accepted(function, settings):
    import inspect

    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return settings
    return {{name: value for name, value in settings.items() if name in parameters}}


_task_inputs = get_inputs


def get_inputs():
    value = _task_inputs(**_accepted(_task_inputs, {inputs}))
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, (list, tuple)) else [value]


def get_init_inputs():
    return [[], _accepted(_TaskModel.__init__, {init})]
'''

_FORWARD = '''

_TaskModel = Model
'''

_BACKWARD = '''

class Model(_TaskModel):
    """The task's forward, and the gradients of its inputs and parameters for a fixed gradient of its output."""

    def forward(self, *inputs):
        import torch

        with torch.enable_grad():
            inputs = [x.detach().requires_grad_() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs]
            output = super().forward(*inputs)
            grad = torch.cos(torch.arange(output.numel(), device=output.device)).view_as(output).to(output.dtype)
            wanted = [x for x in inputs if isinstance(x, torch.Tensor) and x.requires_grad] + list(self.parameters())
            grads = torch.autograd.grad(output, wanted, grad, allow_unused=True)
        return tuple(g for g in grads if g is not None)
'''


class RobustKBench(contract.Suite):
    """The tasks below a folder, as ``<task>/forward``, or ``<task>/forward-2`` and on where it has several settings.

    ``PATH?settings=single`` takes the first setting of each alone. Tasks that are no problems are in ``skipped`` with the reason.
    Raises UsageError where there is no such folder.
    """

    name = "robust-kbench"
    summary = "tasks of a robust-kbench checkout, forward and backward: robust-kbench/PATH"

    def __init__(self, spec: str = "") -> None:
        path, _, query = spec.partition("?")
        self.root = Path(path or ".").expanduser()
        self.kind = "single" if query == "settings=single" else "multi"
        self.skipped: dict[str, str] = {}
        if query not in ("", "settings=single", "settings=multi"):
            raise UsageError(f"Unknown option {query!r}.", fix="Write robust-kbench/PATH?settings=single or ?settings=multi.")
        if not self.root.is_dir():
            raise UsageError(f"There is no folder {self.root}.", fix="Give a robust-kbench checkout or a folder of its tasks.")

    def problems(self) -> Iterator[Problem]:
        """Forward, then backward of each task, by name. Raises UsageError where no task is found."""
        found = 0
        for path in sorted(self.root.rglob("func_*.py"), key=lambda p: contract.natural(p.as_posix())):
            direction = path.stem.removeprefix("func_")
            config = path.with_name(f"config_{direction}.json")
            task = path.parent.relative_to(self.root).as_posix() if path.parent != self.root else path.parent.resolve().name
            if direction not in ("forward", "backward") or not config.is_file():
                continue
            try:
                for problem in self._task(path, config, task, direction):
                    found += 1
                    yield problem
            except KernelLLMError as error:
                self.skipped[f"{task}/{direction}"] = error.what
        if not found:
            why = next(iter(self.skipped.values()), "Tasks hold func_forward.py and config_forward.json.")
            raise UsageError(f"There is no robust-kbench task in {self.root}. {why}")

    def _task(self, path: Path, config: Path, task: str, direction: str) -> Iterator[Problem]:
        source = file.read(path)
        bound = wrap.bound_names(sizes.parse(source, str(path)))
        if bound is not None and not {"Model", "get_inputs"} <= bound:
            raise ProblemError("The task defines no Model or no get_inputs.", where=str(path))
        own_init, own_inputs = _defaults(source)
        for number, (given_init, given_inputs) in enumerate(_settings(config, self.kind)):
            init, inputs = {**own_init, **given_init}, {**own_inputs, **given_inputs}
            name = f"{task}/{direction}" + (f"-{number + 1}" if number else "")
            yield Problem(
                name=name,
                source=_source(source, init, inputs, direction == "backward"),
                origin=f"robust-kbench:{name}",
                path=str(path.resolve()),
                tags=("robust-kbench", task.partition("/")[0], *(["backward"] if direction == "backward" else [])),
            )


def _defaults(source: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Whole numbers that Model's constructor and get_inputs have for defaults: they set sizes as the settings do."""
    found: dict[str, dict[str, Any]] = {"__init__": {}, "get_inputs": {}}
    for node in (m for n in syntax_tree(source).body for m in (n.body if isinstance(n, ast.ClassDef) and n.name == "Model" else [n])):
        if isinstance(node, ast.FunctionDef) and node.name in found:
            pairs = zip(reversed(node.args.args), reversed(node.args.defaults), strict=False)
            values = {a.arg: d.value for a, d in pairs if isinstance(d, ast.Constant)}
            found[node.name] = {name: value for name, value in reversed(values.items()) if type(value) is int}
    return found["__init__"], found["get_inputs"]


def _settings(config: Path, kind: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Keyword arguments of the model and of get_inputs, for each combination, shared ones applied last."""
    try:
        found = json.loads(file.read(config))
    except json.JSONDecodeError as error:
        raise ProblemError(f"The task's settings are not JSON: {error.msg} on line {error.lineno}.", where=str(config)) from error

    def choices(what: str) -> list[dict[str, Any]]:
        values = found.get(f"{kind}_{what}_configs") or found.get(f"single_{what}_configs") or [{}]
        if not isinstance(values, list) or not all(isinstance(v, dict) and all(k.isidentifier() for k in v) for v in values):
            raise ProblemError(f"The task's {what} settings are no list of keyword arguments.", where=str(config))
        return values

    combined = itertools.product(choices("init"), choices("input"), choices("shared"))
    made = [({**init, **shared}, {**inputs, **shared}) for init, inputs, shared in combined]
    return [pair for index, pair in enumerate(made) if pair not in made[:index]]


def _source(source: str, init: dict[str, Any], inputs: dict[str, Any], backward: bool) -> str:
    """The task's file with its settings as module-level constants, so that they can be changed like any other sizes."""
    lines: list[str] = []

    def call(settings: dict[str, Any], prefix: str) -> str:
        parts = []
        for key, value in settings.items():
            same = init.get(key, inputs.get(key)) == inputs.get(key, init.get(key))
            name = f"setting_{key}" if same else f"{prefix}_setting_{key}"
            line = f"{name} = {value!r}"
            if line not in lines:
                lines.append(line)
            parts.append(f"{key!r}: {name}")
        return "{" + ", ".join(parts) + "}"

    init_call, inputs_call = call(init, "init"), call(inputs, "inputs")
    label = ", ".join(f"{k}={v}" for k, v in {**init, **inputs}.items()) or "none"
    added = _COMMON.format(label=label, constants="\n".join(lines), inputs=inputs_call, init=init_call)
    source = _renamed(source) if backward else source
    return source.rstrip("\n") + "\n" + added + (_BACKWARD if backward else _FORWARD)


def _renamed(source: str) -> str:
    """The task with its class under another name, wherever it says it: ``super(Model, self)`` must not mean the class derived from it."""
    lines = source.splitlines(keepends=True)
    for token in reversed(list(tokenize.generate_tokens(iter(lines).__next__))):
        if token.type == tokenize.NAME and token.string == "Model":
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column] + "_TaskModel" + lines[row - 1][column + len("Model") :]
    return "".join(lines)
