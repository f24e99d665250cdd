"""Everything put together: one problem's lowered graph to the text of its file."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from kernelllm.compiler.emit import chunks, foreign_constructors, formatting, integers
from kernelllm.compiler.emit import forward as fw
from kernelllm.compiler.emit.embed import definitions_for
from kernelllm.compiler.emit.file_kernels import FileKernels
from kernelllm.compiler.emit.guards import Guards, refused
from kernelllm.compiler.emit.helpers import HELPERS, closure
from kernelllm.compiler.emit.host_steps import Program, is_contiguous, read
from kernelllm.compiler.emit.launch_code import LaunchWriter
from kernelllm.compiler.emit.size_names import SizeNames
from kernelllm.compiler.inductor.wrapper_lines import Allocate, Assign, Launch
from kernelllm.compiler.options import Options
from kernelllm.compiler.template_ops import SCHEMAS, TORCH_SCHEMAS
from kernelllm.core.errors import CaptureError
from kernelllm.core.types import Problem
from kernelllm.problems.sizes import FIXED_SIZES

if TYPE_CHECKING:
    from kernelllm.compiler.inductor.lower import Lowered


class CandidateFile:
    """The state of one emission, step by step; :meth:`source` gives the file."""

    def __init__(self, problem: Problem, lowered: Lowered, options: Options) -> None:
        self.problem, self.captured, self.options = problem, lowered.captured, options
        self.wrapper = lowered.wrapper
        self.kept = foreign_constructors.kept_parts(problem, self.captured)
        text = self.wrapper.text()
        called = set(re.findall(r"torch\.ops\.kernelllm\.(\w+)", text))
        self.definitions = definitions_for(called - set(TORCH_SCHEMAS))
        self.top: set[str] = set(self.kept.names) | set(HELPERS) | {p.name for p in self.definitions}
        arguments = self.kept.forward.args
        self.local = self.top | {"grid"} | {a.arg for a in [*arguments.posonlyargs, *arguments.args][1:] + arguments.kwonlyargs}
        self.sizes = SizeNames(self.captured, self.local, text)
        self.splits = self._splits(self.local)
        self.program: Program = read(self.wrapper, self.captured, self.sizes)
        self.host = fw.HostPrinter(self.program, self.sizes, self._input_paths())
        self.kernels = FileKernels(self.wrapper, self.program, self.host, {s.variable for s in self.captured.graph_inputs}, options)
        self.guards = Guards(self.captured, self.host, arguments, [v for v, _ in self._contiguous_inputs()], self.local)
        self.top |= set(self.guards.names.values())

    def _splits(self, taken: set[str]) -> list[tuple[chunks.Split, Any]]:
        """Marked split reductions made symbolic; each with its length."""
        marks = chunks.find(self.wrapper)
        lengths = {m: chunks.length(self.wrapper, m) for m in marks}
        found = []
        for split in chunks.substitute(self.wrapper, marks):
            for name in (split.parts, split.chunk):
                taken.add(name)
                self.sizes.values[name] = integers.symbol(name)
            found.append((split, lengths[split.mark]))
        return found

    def _input_paths(self) -> dict[str, str]:
        paths = {}
        for given in self.captured.graph_inputs:
            if given.kind == "input":
                paths[given.variable] = given.name
            elif given.kind != "size":
                paths[given.variable] = _attribute(given.name)
        return paths

    def source(self) -> str:
        """The file's text, formatted."""
        self.kernels.write(self.top, self.local)
        return self._file(self._forward())

    def _forward(self) -> list[str]:
        """The statements of forward, as lines without indentation."""
        device = self._device()
        self.host.device = f"{device}.device"
        exact = fw.touched_by_torch(self.program)
        inputs = self._contiguous_inputs()
        like = [(self.host.paths[v], self.program.tensors[v]) for v, _ in inputs if v in self.program.tensors]
        steps: list[str] = []
        launching = LaunchWriter(self.kernels, self.local)
        scratch = sum(isinstance(i, Allocate | Assign) for i in self.program.items)
        unpacked = self._unpacked()
        for item in self.program.items:
            if isinstance(item, Allocate):
                path = self.host.paths[item.target]
                tensor = self.program.tensors[item.target]
                steps.append(f"{path} = {fw.allocation(tensor, self.host, device, item.target in exact, like)}")
            elif isinstance(item, Launch):
                steps.extend(launching.lines(item))
            elif isinstance(item, Assign):
                line = unpacked.get(id(item), None)
                if line is None:
                    line = (
                        f"{self.host.paths[item.target]} = {self.host.text(item.value)}" if item.target else self.host.text(item.value)
                    )
                if line:
                    steps.append(line)
            elif scratch > 8:
                names = [self.host.paths[t] for t in item.targets if self._droppable(t)]
                if names:
                    steps.append(f"del {', '.join(names)}")
        steps += self._bound()
        steps += self._return()
        steps = _merged_dels(steps)
        top = self._reading([p for _, p in inputs], " ".join(steps))
        return [*top, "", *steps] if top else steps

    def _unpacked(self) -> dict[int, str]:
        """``a = f(x)``, ``b = a[0]``, ``c = a[1]`` as ``b, c = f(x)``: replacement lines by step, "" for none."""
        lines: dict[int, str] = {}
        steps = [i for i in self.program.items if isinstance(i, Assign)]
        for step in steps:
            if not step.target or not isinstance(step.value, ast.Call):
                continue
            count = _outputs(step.value)
            members = {}
            for other in steps:
                match other.value:
                    case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int() as index)) if (
                        self.program.base(name) == step.target
                    ):
                        members[index] = other
            if not members:
                continue
            call = self.host.text(step.value)
            if list(members) == [0] and len(members) == 1:
                lines[id(step)] = f"{self.host.paths[members[0].target]} = {call}[0]"
            elif count is not None:
                names = [self.host.paths[members[i].target] if i in members else "_" for i in range(count)]
                lines[id(step)] = f"{', '.join(names)} = {call}"
            else:
                continue
            torchs = any(name in ast.unparse(step.value.func) for name in TORCH_SCHEMAS)
            for other in members.values():
                path = self.host.paths[other.target]
                lines[id(other)] = f"{path} = {path}.contiguous()" if torchs else ""
        return lines

    def _droppable(self, target: str) -> bool:
        path = self.host.paths.get(target, "")
        made = {i.target for i in self.program.items if isinstance(i, Allocate)}
        made |= {i.target for i in self.program.items if isinstance(i, Assign) and not isinstance(i.value, ast.Subscript)}
        members = {
            self.program.base(n.id)
            for i in self.program.items
            if isinstance(i, Assign) and isinstance(i.value, ast.Subscript)
            for n in ast.walk(i.value.value)
            if isinstance(n, ast.Name)
        }
        return target in made and target not in members and path.isidentifier()

    def _device(self) -> str:
        for kind in ("input", "parameter", "buffer", "attribute"):
            for given in self.captured.graph_inputs:
                if given.kind == kind and given.variable in self.program.tensors and not given.number:
                    return self.host.paths[given.variable]
        raise CaptureError("The forward takes no tensor and the module holds none.", where="emit")

    def _contiguous_inputs(self) -> list[tuple[str, str]]:
        """Tensor arguments that the graph uses, as (variable, name)."""
        text = self._used_names()
        return [
            (s.variable, self.host.paths[s.variable])
            for s in self.captured.graph_inputs
            if s.kind == "input" and s.variable in self.program.tensors and s.variable in text and not s.number
        ]

    def _used_names(self) -> set[str]:
        found: set[str] = set()
        for item in self.program.items:
            nodes = list(item.arguments.values()) if isinstance(item, Launch) else [item.value] if isinstance(item, Assign) else []
            found |= {self.program.base(n.id) for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}
        return found

    def _reading(self, inputs: list[str], text: str) -> list[str]:
        split_lines: list[str] = []
        for split, length in self.splits:
            if length is not None and re.search(rf"\b({split.parts}|{split.chunk})\b", text):
                total = self.sizes.expression(length)
                split_lines += chunks.lines(split, self.host.size(total))
        paths = {s.name: self.host.paths[s.variable] for s in self.captured.graph_inputs if s.kind != "size"}
        compared: set[str] = set()
        while True:  # what is compared decides which sizes are read, and where they are read decides what must be compared
            relations = self.guards.relations(compared)
            lines, loose = self.sizes.reading(self.host.used_sizes, inputs, paths)
            elsewhere = self.guards.read_elsewhere(lines) - compared
            if not elsewhere:
                break
            compared |= elsewhere
        lost = [f"{name} = {value}" for name, value in loose.items()]
        top = [*self.guards.first(lines), *self._numbers(), *self._moved(), *lost, *lines, *relations, *split_lines]
        mutated = {s.variable for s in self.captured.graph_inputs if s.mutated}
        for variable, path in self._contiguous_inputs():
            tensor = self.program.tensors[variable]
            if not tensor.shape or variable in mutated:
                continue
            if path.isidentifier() and is_contiguous(tensor):
                top.append(f"{path} = {path}.contiguous()")
        return top

    def _numbers(self) -> list[str]:
        """Python floats as the tensors that the kernels read."""
        used = self._used_names()
        numbers = [(self.host.paths[g.variable], g.dtype) for g in self.captured.graph_inputs if g.number and g.variable in used]
        return [f"{path} = torch.full((), {path}, dtype=torch.{dtype}, device={self.host.device})" for path, dtype in numbers]

    def _moved(self) -> list[str]:
        """Tensors that are neither parameter nor buffer do not follow the module to a device: forward takes them there."""
        used = self._used_names() | {n.id for e in self.program.result for n in ast.walk(e) if isinstance(n, ast.Name)}
        paths = [self.host.paths[s.variable] for s in self.captured.graph_inputs if s.kind == "attribute" and s.variable in used]
        return [f"{path} = {path}.to({self.host.device})" for path in paths if not path.startswith(("getattr", self._device()))]

    def _bound(self) -> list[str]:
        """Tensor attributes that the forward replaces."""
        first = len(self.program.result) - len(self.captured.bound)
        values = self.program.result[first:]
        return [f"{_attribute(n)} = {self.host.text(v)}" for n, v in zip(self.captured.bound, values, strict=True)]

    def _return(self) -> list[str]:
        texts = [self.host.text(e) for e in self.program.result]
        values = [getattr(node, "meta", {}).get("val") for node in self.captured.graph.graph.output_node().args[0]]
        count = len(texts) - len(self.captured.bound)
        lines, texts[:count] = self.guards.results(list(zip(texts, values, strict=True))[:count])
        return [*lines, "return " + self.captured.output.format(*texts)]

    def _file(self, body: list[str]) -> str:
        helpers = closure({h for f in self.kernels.texts.values() for h in f.helpers})
        kernel_texts = list(dict.fromkeys(f.text for f in self.kernels.texts.values()))
        sections = [HELPERS[h].text for h in helpers] + [p.text for p in self.definitions] + kernel_texts + self.guards.definitions()
        code = "\n".join(sections)
        definitions = [formatting.text([d]) for d in self.kept.definitions]
        model = self._model(body)
        imports = self._imports(code + model + "\n".join(definitions))
        parts = [imports, self._fixed_sizes(), *_grouped(definitions), *sections, model]
        return re.sub(r"\n{4,}", "\n\n\n", "\n\n\n".join(p for p in parts if p)) + "\n"

    def _fixed_sizes(self) -> str:
        fixed = {**self.captured.fixed, **self.kept.fixed}
        if not fixed:
            return ""
        lines = formatting.broken(f"{FIXED_SIZES} = {formatting.quoted(str(fixed))}", formatting.WIDTH)
        return "\n".join(["# Sizes of the problem that this file was written for.", *lines])

    def _guarded_constructor(self) -> None:
        """The constructor refuses arguments for which the kernels were not written; the class says what they are for."""
        model = self.kept.model
        constructor = next((s for s in model.body if isinstance(s, ast.FunctionDef) and s.name == "__init__"), None)
        fixed = self.guards.fixed_arguments(constructor) if constructor else {}
        held = any(ast.unparse(base) == "Holder" for base in model.bases)  # such a constructor checks its arguments itself
        if constructor and fixed and not held:
            lines = refused(fixed, "the kernels were written for", "ValueError")
            constructor.body[:0] = ast.parse("\n".join(lines)).body
        model.body.insert(0, ast.Expr(ast.Constant(self.guards.limits(fixed))))

    def _model(self, body: list[str]) -> str:
        self._guarded_constructor()
        model = formatting.text([self.kept.model])
        signature = self.kept.forward.args
        head = f"    def forward({ast.unparse(signature)}):"
        lines = formatting.broken(head.strip(), formatting.WIDTH - 4)
        text = [model, *([""] if self.kept.model.body else []), *("    " + line for line in lines)]
        for line in body:
            inner = line.lstrip()
            pad = " " * (8 + len(line) - len(inner))
            text += [pad + part if part else "" for part in formatting.broken(inner, formatting.WIDTH - len(pad))]
        return "\n".join(text)

    def _imports(self, code: str) -> str:
        lines = ["import torch"]
        if re.search(r"\bmath\.", code) and not any(ast.unparse(i) == "import math" for i in self.kept.imports):
            lines.insert(0, "import math\n")
        for statement in self.kept.imports:
            text = ast.unparse(statement)
            if text not in lines and text != "import torch":
                lines.append(text)
        if "nn" not in self.kept.names and re.search(r"\bnn\.", code):
            lines.append("import torch.nn as nn")
        lines += ["import triton", "import triton.language as tl"]
        if re.search(r"\blibdevice\.", code):
            lines.append("from triton.language.extra import libdevice")
        return "\n".join(lines)


def _attribute(path: str) -> str:
    """``blocks.0.weight`` as ``self.blocks[0].weight``; names Python cannot spell through get_parameter's way."""
    text = re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", f"self.{path}")
    parts = re.split(r"\.|\[\d+\]", text)
    if all(p.isidentifier() for p in parts if p):
        return text
    owner, _, name = path.rpartition(".")
    return f'getattr(self.get_submodule("{owner}"), "{name}")'


def _outputs(call: ast.Call) -> int | None:
    """How many tensors a template returns."""
    match = re.fullmatch(r"torch\.ops\.kernelllm\.(\w+)(\.default)?", ast.unparse(call.func))
    if not match:
        return None
    schema = TORCH_SCHEMAS[match[1]][1] if match[1] in TORCH_SCHEMAS else SCHEMAS.get(match[1], "")
    returns = schema.rpartition("->")[2].strip()
    return returns.count("Tensor") if returns.startswith("(") else 1


def _merged_dels(steps: list[str]) -> list[str]:
    merged: list[str] = []
    for step in steps:
        if step.startswith("del ") and merged and merged[-1].startswith("del "):
            merged[-1] += ", " + step.removeprefix("del ")
        elif step.startswith("return ") and merged and merged[-1].startswith("del "):
            merged[-1] = step
        else:
            merged.append(step)
    return merged


def _grouped(definitions: list[str]) -> list[str]:
    """Constants stand together, functions and classes by themselves."""
    groups: list[str] = []
    for text in definitions:
        simple = not text.startswith(("def ", "class ", "@"))
        if simple and groups and not groups[-1].startswith(("def ", "class ", "@")):
            groups[-1] += "\n" + text
        else:
            groups.append(text)
    return groups
