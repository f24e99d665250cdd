"""The statements of one graph: buffers allocated, kernels launched, templates and torch called."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

import sympy
import torch

from kernelllm.compiler import scored_operators
from kernelllm.compiler.emit import chunks, counters, prepared
from kernelllm.compiler.emit import forward as fw
from kernelllm.compiler.emit.any_dtype import FollowedDtype
from kernelllm.compiler.emit.ast_tools import name_of
from kernelllm.compiler.emit.file_kernels import FileKernels
from kernelllm.compiler.emit.helpers import definitions_for
from kernelllm.compiler.emit.host_steps import HostProgram, HostTensor, is_contiguous, read
from kernelllm.compiler.emit.kernels import integers
from kernelllm.compiler.emit.kernels.readable_names import fresh_name
from kernelllm.compiler.emit.launch_code import LaunchWriter
from kernelllm.compiler.emit.prepared import Prepared
from kernelllm.compiler.emit.size_names import SizeNames
from kernelllm.compiler.emit.template_code.abstract import UNKNOWN, AbstractTensor, Const, Sequence, Unknown, Value, const
from kernelllm.compiler.emit.template_code.specialise import Call
from kernelllm.compiler.inductor.wrapper_lines import Allocate, Assign, Launch
from kernelllm.compiler.template_ops import SCHEMAS, TORCH_SCHEMAS
from kernelllm.core.errors import CaptureError

if TYPE_CHECKING:
    from kernelllm.compiler.emit.host_steps import HostProgram
    from kernelllm.compiler.emit.size_names import SizeNames
    from kernelllm.compiler.inductor.lower import Lowered


class GraphCode:
    """One graph on its way to statements."""

    def __init__(self, lowered: Lowered) -> None:
        self.captured, self.wrapper, self.options = lowered.captured, lowered.wrapper, lowered.options
        self.text = self.wrapper.text()
        called = set(re.findall(r"torch\.ops\.kernelllm\.(\w+)", self.text))
        self.definitions = definitions_for(called - set(TORCH_SCHEMAS), plain=self.options.short)
        self.template_calls: list[Call] = []

    def name(self, local: set[str], paths: dict[str, str]) -> None:
        """Name sizes and arguments. ``local``: names taken in the function; ``paths``: how it reaches the graph's arguments."""
        self.local = local
        self.sizes = SizeNames(self.captured, local, self.text, by_place=self.options.short)
        self.splits = self._splits(local)
        self.program: HostProgram = read(self.wrapper, self.captured, self.sizes)
        if self.options.library:
            self.program.items = counters.combine(self.program.items, self.wrapper)
        self.program.kept = len(self.captured.backward.saved) if self.captured.backward else 0
        counted = {symbol: str(self.sizes.values[symbol]) for symbol in self.program.counted}
        self.host = fw.HostPrinter(self.program, self.sizes, paths | counted)
        self.dtypes = FollowedDtype(self.captured, self.program, self.wrapper.kernels)
        for variable in self.dtypes.variables & self.program.tensors.keys():
            self.program.tensors[variable].dtype = f"{self.host.paths[self.dtypes.given[0]]}.dtype"
        arguments = {s.variable for s in self.captured.graph_inputs}
        self.kernels = FileKernels(self.wrapper, self.program, self.host, arguments, self.options, self.dtypes)
        state = {g.variable for g in self.captured.graph_inputs if g.kind in ("parameter", "buffer") and not g.mutated}
        tensors = {v: self.program.tensors[v] for v in state & self.program.tensors.keys()}
        tables = {v for v, t in tensors.items() if sum(n != 1 for n in t.shape) > 1 and is_contiguous(t)}
        self.host.dense = {v for v in tables if not self.host.paths[v].isidentifier()}
        self.prepared = Prepared(self.program, state if self.options.library else ())
        for buffer, source in self.prepared.copies().items():
            self.host.paths[buffer] = fresh_name("_".join(re.findall(r"[A-Za-z_]\w*", self.host.paths[source])[-2:]), local)
        self.optional: dict[int, str] = {}
        """Steps by their identity that are done under a condition alone."""
        self.methods: list[str] = []
        """Methods of ModelNew besides forward, as lines without indentation."""

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

    def steps(self) -> list[str]:
        """The statements that allocate, launch and call, as lines without indentation."""
        device = self._device()
        self.host.device = f"{device}.device"
        exact = fw.touched_by_torch(self.program)
        inputs = self.tensor_inputs()
        like = [(self.host.paths[v], self.program.tensors[v]) for v, _ in inputs if v in self.program.tensors]
        launching = LaunchWriter(self.kernels, self.local)
        steps = self._prepared(launching, exact)
        scratch = sum(isinstance(i, Allocate | Assign) for i in self.program.items)
        unpacked, droppable = self._unpacked(), self._droppable()
        for item in [left for i in self.program.items if (left := self.prepared.split(i))]:
            condition = self.optional.get(id(item))
            if isinstance(item, Allocate):
                lines = [self._allocated(item, device, exact, like)]
            elif isinstance(item, Launch):  # below a condition nothing is named for those that follow
                lines = (LaunchWriter(self.kernels, self.local) if condition else launching).lines(item)
            elif isinstance(item, Assign):
                call = template_call(item.value, self.program, self.sizes)
                self.template_calls += [call] if call is not None else []
                line = unpacked.get(id(item), None)
                if line is not None:
                    lines = [line] if line else []
                elif item.target:
                    lines = self.host.assigned(item)
                else:
                    lines = [self.host.text(item.value)]
            else:
                names = [self.host.paths[t] for t in item.targets if t in droppable] if scratch > 8 else []
                lines = [f"del {', '.join(names)}"] if names else []
            steps += _below(condition, lines, steps)
        return steps

    def _allocated(self, step: Allocate, device: str, exact: set[str], like: list[tuple[str, HostTensor]]) -> str:
        tensor = self.program.tensors[step.target]
        return f"{self.host.paths[step.target]} = {fw.allocation(tensor, self.host, device, step.target in exact, like)}"

    def _prepared(self, launching: LaunchWriter, exact: set[str]) -> list[str]:
        """The statement that fetches what follows from the parameters; the method that makes it is noted."""
        if not self.prepared.steps:
            return []
        sources = [self.host.paths[s] for s in self.prepared.sources]
        lines: list[str] = []
        for item in self.program.items:
            if id(item) not in self.prepared.steps:
                continue
            if isinstance(item, Allocate):
                lines.append(self._allocated(item, sources[0], exact, []))
            elif isinstance(item, Launch):
                lines += launching.lines(item)
            elif isinstance(item, Assign):
                lines += self.host.assigned(item)
        results = [self.host.paths[b] for b in self.prepared.wanted()]
        members = {word for s in self.captured.graph_inputs for word in s.name.split(".")}
        name, kept = (fresh_name(wish, members) for wish in ("prepared", "made_of"))
        below = not any(s.mutated for s in self.captured.graph_inputs if s.kind != "input")
        method = prepared.method(name, kept, sources, lines, results, below=below)
        self.methods += [f"{kept} = None, None, None", "", *method, ""]
        return [f"{', '.join(results)}{',' if len(results) == 1 else ''} = self.{name}()"]

    def calls_torch(self) -> bool:
        """Whether an operator of torch computes a part."""
        values = [ast.unparse(i.value) for i in self.program.items if isinstance(i, Assign) and isinstance(i.value, ast.Call)]
        ours = r"reinterpret_tensor\(|torch\.ops\.kernelllm\.(?!torch_)"
        return not all(re.match(ours, value) for value in values)

    def split_lines(self, text: str) -> list[str]:
        """How the long reductions in ``text`` are split."""
        lines: list[str] = []
        for split, length in self.splits:
            if length is not None and re.search(rf"\b({split.parts}|{split.chunk})\b", text):
                total = self.sizes.expression(length)
                lines += chunks.lines(split, self.host.size(total))
        return lines

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

    def _droppable(self) -> set[str]:
        """Buffers that a ``del`` may free, once nothing reads them any more."""
        made = {i.target for i in self.program.items if isinstance(i, Allocate)}
        made |= {i.target for i in self.program.items if isinstance(i, Assign) and not isinstance(i.value, ast.Subscript)}
        members = {
            self.program.base(n.id)
            for i in self.program.items
            if isinstance(i, Assign) and isinstance(i.value, ast.Subscript)
            for n in ast.walk(i.value.value)
            if isinstance(n, ast.Name)
        }
        sometimes = {i.target for i in self.program.items if id(i) in self.optional and isinstance(i, Allocate | Assign)}
        return {target for target in made - sometimes - members if self.host.paths.get(target, "").isidentifier()}

    def _device(self) -> str:
        for kind in ("input", "parameter", "buffer", "attribute"):
            for given in self.captured.graph_inputs:
                if given.kind == kind and given.variable in self.program.tensors and not given.number:
                    return self.host.paths[given.variable]
        what = "There is no kernel to write: nothing that forward returns is computed from a tensor."
        raise CaptureError(what, fix="Return what depends on a tensor among the inputs or parameters.")

    def tensor_inputs(self) -> list[tuple[str, str]]:
        """Tensor arguments that the graph uses, as (variable, name)."""
        text = self.used_names()
        return [
            (s.variable, self.host.paths[s.variable])
            for s in self.captured.graph_inputs
            if s.kind == "input" and s.variable in self.program.tensors and s.variable in text and not s.number
        ]

    def numbers(self) -> list[str]:
        """Statements that make the tensors that the kernels read out of Python's floats."""
        used = self.used_names()
        numbers = [(self.host.paths[g.variable], g.dtype) for g in self.captured.graph_inputs if g.number and g.variable in used]
        return [f"{path} = torch.full((), {path}, dtype=torch.{dtype}, device={self.host.device})" for path, dtype in numbers]

    def used_names(self) -> set[str]:
        """Variables that kernels and torch read, and those that a result is a view of: its strides are those of the problem's layout."""
        nodes = [e for e in self.program.result if not isinstance(e, ast.Name)]
        for item in self.program.items:
            nodes += list(item.arguments.values()) if isinstance(item, Launch) else [item.value] if isinstance(item, Assign) else []
        return {self.program.base(n.id) for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}


def _outputs(call: ast.Call) -> int | None:
    """How many tensors a template returns."""
    match = re.fullmatch(r"torch\.ops\.kernelllm\.(\w+)(\.default)?", ast.unparse(call.func))
    if not match:
        return None
    schema = TORCH_SCHEMAS[match[1]][1] if match[1] in TORCH_SCHEMAS else SCHEMAS.get(match[1], scored_operators.SCHEMAS.get(match[1], ""))
    returns = schema.rpartition("->")[2].strip()
    return returns.count("Tensor") if returns.startswith("(") else 1


def _below(condition: str | None, lines: list[str], before: list[str]) -> list[str]:
    """The lines below the condition. ``before``: the lines so far, which may end below the same one."""
    if condition is None or not lines:
        return lines
    heads = [line for line in before if not line.startswith("    ")]
    head = [] if heads and heads[-1] == f"if {condition}:" else [f"if {condition}:"]
    return [*head, *(f"    {line}" for line in lines)]


def merged_dels(steps: list[str]) -> list[str]:
    """Lines of a forward with neighbouring ``del`` statements as one, and none right before a return."""
    merged: list[str] = []
    for step in steps:
        if step.startswith("del ") and merged and merged[-1].startswith("del "):
            merged[-1] += ", " + step.removeprefix("del ")
        elif step.startswith("return ") and merged and merged[-1].startswith("del "):
            merged[-1] = step
        else:
            merged.append(step)
    return merged


def attribute(path: str) -> str:
    """``blocks.0.weight`` as ``self.blocks[0].weight``; names Python cannot spell through get_parameter's way."""
    text = re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", f"self.{path}")
    parts = re.split(r"\.|\[\d+\]", text)
    if all(p.isidentifier() for p in parts if p):
        return text
    owner, _, name = path.rpartition(".")
    return f'getattr(self.get_submodule("{owner}"), "{name}")'


def template_call(node: ast.expr, program: HostProgram, sizes: SizeNames) -> Call | None:
    """The call of a template that a step of the wrapper is, None for any other step."""
    while isinstance(node, ast.Subscript):
        node = node.value
    called = re.fullmatch(r"torch\.ops\.kernelllm\.(\w+)(\.default)?", ast.unparse(node.func)) if isinstance(node, ast.Call) else None
    if called is None or called[1].startswith("torch_"):
        return None
    reader = _ArgumentReader(program, sizes)
    assert isinstance(node, ast.Call)
    return Call(called[1], [reader.value(a) for a in node.args], {str(k.arg): reader.value(k.value) for k in node.keywords})


class _ArgumentReader:
    """Arguments in the wrapper's words, as what is known of them."""

    def __init__(self, program: HostProgram, sizes: SizeNames) -> None:
        self.program, self.sizes = program, sizes
        self.hints = {integers.symbol(name): sympy.Integer(size.hint) for name, size in sizes.known.items()}

    def value(self, node: ast.expr) -> Value:
        try:
            return const(ast.literal_eval(node))
        except ValueError:
            pass
        if isinstance(node, ast.List | ast.Tuple):
            return Sequence(tuple(map(self.value, node.elts)), isinstance(node, ast.List))
        if isinstance(node, ast.Name) and self.program.base(node.id) in self.program.tensors:
            known = self.program.tensors[self.program.base(node.id)]
            return self._tensor(known.dtype, known.shape, known.stride)
        if isinstance(node, ast.Call) and name_of(node.func) == "reinterpret_tensor" and isinstance(node.args[0], ast.Name):
            base = self.program.tensors.get(self.program.base(node.args[0].id))
            shape, stride = ([self._expression(e) for e in getattr(a, "elts", [])] for a in node.args[1:3])
            return self._tensor(base.dtype, shape, stride) if base is not None else UNKNOWN
        expression = self._expression(node)
        return UNKNOWN if expression is None else self._size(expression)

    def _expression(self, node: ast.expr) -> Any:
        try:
            return self.sizes.expression(node)
        except integers.NotInteger:
            return None

    def _tensor(self, dtype: str, shape: list[Any], stride: list[Any]) -> Value:
        found = torch.float32 if dtype.endswith(".dtype") else getattr(torch, dtype.removeprefix("torch."), None)
        if not isinstance(found, torch.dtype) or any(e is None for e in (*shape, *stride)):
            return UNKNOWN
        strides = [self._size(s) for s in stride]  # those of the caller's tensors are not checked
        return AbstractTensor(Const((found,)), tuple(map(self._size, shape)), tuple(Unknown(getattr(s, "hint", None)) for s in strides))

    def _size(self, expression: Any) -> Value:
        if expression.is_Integer:
            return const(int(expression))
        value = expression.xreplace(self.hints).doit()
        return Unknown(int(value)) if value.is_Integer else UNKNOWN
