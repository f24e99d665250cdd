"""The backward of a file: a ``torch.autograd.Function`` that keeps what the forward computed and launches the gradients' kernels."""

from __future__ import annotations

import ast
import re
from functools import cached_property
from typing import TYPE_CHECKING

from kernelllm.compiler.emit import formatting
from kernelllm.compiler.emit.graph_code import GraphCode, attribute, merged_dels
from kernelllm.compiler.emit.host_steps import is_contiguous
from kernelllm.compiler.emit.kernels.readable_names import fresh_name
from kernelllm.compiler.inductor.wrapper_lines import Allocate, Assign, HostStep, Launch, expressions

if TYPE_CHECKING:
    from kernelllm.compiler.emit.main_graph import MainGraph
    from kernelllm.compiler.inductor.lower import Lowered

_TEXT = '''
class {name}(torch.autograd.Function):
    """Gives the results of the forward's kernels their backward."""

    @staticmethod
    def forward(ctx, results, {given}*sources):
        ctx.save_for_backward(*saved){sizes}
        return results

    @staticmethod
    def backward(ctx, {tangents}):
        if torch.is_grad_enabled():
            raise RuntimeError("These kernels have no second derivative: compute the gradients without create_graph=True")
{body}
'''


class GradientCode(GraphCode):
    """The statements of the backward, and how the forward's results get it."""

    def __init__(self, file: MainGraph, lowered: Lowered) -> None:
        super().__init__(lowered)
        assert file.captured.backward is not None
        self.file, self.backward = file, file.captured.backward
        file.top |= {p.name for p in self.definitions}
        self.function_name = fresh_name("Gradients", file.top)
        self.lost: list[str] = []
        """Symbols of sizes that no tensor of the backward shows: the forward hands them over as numbers."""
        self.tangents: list[str] = []
        self.statements: list[str] = []

    def write(self) -> None:
        """The kernels and statements of the backward, once the forward's have their names."""
        local = self.file.top | {"ctx", "grid"}
        results = [self.file.host.text(e) for e in self.file.program.result]
        self.name(local, self._paths(results, local))
        self._name_gradients(local)
        self.kernels.write(self.file.top, local)
        gradients = [self.host.text(e) for e in self.program.result]
        names = self._optional(gradients)
        steps = [f"{name} = None" for name in names] + self.steps()
        top = self._reading(" ".join([*steps, *gradients]))
        nothing = ["None"] * (3 if self.lost else 2)  # for results, saved and sizes
        steps = [re.sub(r"_POSITION_(\d+)", lambda m: str(int(m[1]) + len(nothing)), line) for line in steps]
        self.statements = [*top, "", *merged_dels([*steps, f"return {', '.join([*nothing, *gradients])}"])]

    def _optional(self, gradients: list[str]) -> list[str]:
        """Gradients with a heavy operator that nothing else needs: that is done where the gradient is asked for. Returns their names."""
        needed = [self._needed(e) for e in self.program.result]
        names = []
        for i, (name, steps) in enumerate(zip(gradients, needed, strict=True)):
            alone = steps.keys() - {id for other in (*needed[:i], *needed[i + 1 :]) for id in other}
            heavy = any(isinstance(step := steps[s], Assign) and "kernelllm" in ast.unparse(step.value) for s in alone)
            if heavy and name.isidentifier():
                self.optional |= dict.fromkeys(alone, f"ctx.needs_input_grad[_POSITION_{i}]")
                names.append(name)
        return names

    def _needed(self, result: ast.expr) -> dict[int, HostStep]:
        """The steps that a result needs, by identity."""
        buffers = self._names(result)
        steps: dict[int, HostStep] = {}
        for step in reversed(self.program.items):
            if isinstance(step, Launch):
                written = {n for p, v in step.arguments.items() if p.startswith(("out_ptr", "in_out_ptr")) for n in self._names(v)}
            elif isinstance(step, Assign) and not step.target:
                written = self._names(step.value)
            elif isinstance(step, Allocate | Assign):
                written = {self.program.base(step.target)}
            else:
                continue
            if written & buffers:
                steps[id(step)] = step
                buffers |= {n for e in expressions(step) for n in self._names(e)}
        return steps

    def _names(self, value: ast.expr) -> set[str]:
        """The buffers that an expression mentions, and those that they are views of: who writes into a view writes there."""
        found = {self.program.base(n.id) for n in ast.walk(value) if isinstance(n, ast.Name)}
        left = list(found)
        while left:
            whole = self._views.get(left.pop())
            if whole is not None and whole not in found:
                found.add(whole)
                left.append(whole)
        return found

    @cached_property
    def _views(self) -> dict[str, str]:
        """Buffers that are views, to what they are views of."""
        found = {}
        for step in self.program.items:
            match step:
                case Assign(target=target, value=ast.Call(func=function, args=[ast.Name(id=name), *_])) if target:
                    if ast.unparse(function).endswith("reinterpret_tensor"):
                        found[self.program.base(target)] = self.program.base(name)
        return found

    def _paths(self, results: list[str], local: set[str]) -> dict[str, str]:
        """Names of the backward's arguments: what the forward calls them."""
        paths = {}
        first = len(results) - len(self.backward.saved)
        for variable, text in zip(self.backward.saved, results[first:], strict=True):
            word = text if text.isidentifier() else variable.removeprefix("saved_")
            paths[variable] = fresh_name(word, local)
        for variable, position in zip(self.backward.tangents, self.backward.results, strict=True):
            text = results[position]
            paths[variable] = fresh_name(f"grad_{text}" if text.isidentifier() else "grad_result", local)
            self.tangents.append(paths[variable])
        return paths

    def _name_gradients(self, local: set[str]) -> None:
        """Buffers that are results, whole or as a view, get the names of what they are the gradients of."""
        for (_, source), value in zip(self.backward.sources, self.program.result, strict=True):
            bases = [self.program.base(n.id) for n in ast.walk(value) if isinstance(n, ast.Name)]
            buffers = [b for b in bases if b in self.program.tensors and b not in self.host.paths]
            if len(buffers) == 1:
                self.host.paths[buffers[0]] = fresh_name("grad_" + re.sub(r"\W+", "_", source).strip("_"), local)

    def _reading(self, text: str) -> list[str]:
        """Statements for the top of backward: what was kept, and the sizes."""
        saved = [self.host.paths[v] for v in self.backward.saved]
        lines = [f"{', '.join(saved)}{',' if len(saved) == 1 else ''} = ctx.saved_tensors"] if saved else []
        paths = {s.name: self.host.paths[s.variable] for s in self.captured.graph_inputs if s.kind != "size"}
        names = [s.name for s in self.captured.graph_inputs if s.kind == "input"]
        sizes, lost = self.sizes.reading(self.host.used_sizes, names, paths)
        if lost:
            lines.append(f"{', '.join(lost)}{',' if len(lost) == 1 else ''} = ctx.sizes")
        for variable, path in self.tensor_inputs():
            if variable in self.backward.tangents and is_contiguous(self.program.tensors[variable]):
                sizes.append(f"{path} = {path}.contiguous()")
        self.lost = [self.sizes.known[name].symbol for name in lost]
        return lines + sizes + self.split_lines(text)

    def attached(self, results: list[str]) -> tuple[list[str], list[str]]:
        """Statements of the forward that give its results their gradients, and the results' texts then."""
        file, lines = self.file, []
        for position in self.backward.results:
            if not results[position].isidentifier() or results[position] in [results[p] for p in self.backward.results if p < position]:
                name = fresh_name("result", file.local)
                lines.append(f"{name} = {results[position]}")
                results[position] = name
        wrapped = [results[p] for p in self.backward.results]
        kept = [file.host.text(e) for e in file.program.result[len(file.program.result) - len(self.backward.saved) :]]
        sizes = [file.host.size(file.sizes.values[symbol]) for symbol in self.lost]
        tensors = [g for g in file.captured.graph_inputs if g.kind != "size"]
        paths: dict[tuple[str, str], str] = {(g.kind, g.name): file.host.paths[g.variable] for g in tensors}
        sources = [paths.get(s) or attribute(s[1]) for s in self.backward.sources]
        given = [_tuple(wrapped), _tuple(kept), *([_tuple(sizes)] if sizes else []), *sources]
        lines += ["if torch.is_grad_enabled():", f"    {_tuple(wrapped)} = {self.function_name}.apply({', '.join(given)})"]
        return lines, results

    def function(self) -> str:
        """The class that the file defines."""
        body = [part for line in self.statements for part in _broken(line)]
        return _TEXT.format(
            name=self.function_name,
            given="saved, sizes, " if self.lost else "saved, ",
            sizes="\n        ctx.sizes = sizes" if self.lost else "",
            tangents=", ".join(self.tangents),
            body="\n".join(" " * 8 + line if line else "" for line in body),
        ).strip()


def _broken(line: str) -> list[str]:
    inner = line.lstrip()
    pad = len(line) - len(inner)
    return [" " * pad + part for part in formatting.broken(inner, formatting.WIDTH - 8 - pad)] if inner else [""]


def _tuple(texts: list[str]) -> str:
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
