"""The entry point: the lowered graph of a problem becomes the text of its file."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from kernelllm.compiler import scored_operators
from kernelllm.compiler.emit import formatting, launcher, prepared
from kernelllm.compiler.emit.constructors import constructor_checks, state_holders, state_paths
from kernelllm.compiler.emit.gradient_code import GradientCode
from kernelllm.compiler.emit.graph_code import attribute, merged_dels
from kernelllm.compiler.emit.guards import refused
from kernelllm.compiler.emit.helpers import HELPERS, PLAIN, closure, library
from kernelllm.compiler.emit.host_steps import in_layout, layout_kept
from kernelllm.compiler.emit.known_sizes_path import KnownSizesPath
from kernelllm.compiler.emit.main_graph import MainGraph
from kernelllm.compiler.emit.size_names import as_python
from kernelllm.compiler.emit.template_code.specialise import Specialised, specialised
from kernelllm.core.text import syntax_tree
from kernelllm.core.types import Problem
from kernelllm.problems.sizes import FIXED_SIZES

if TYPE_CHECKING:
    from kernelllm.compiler.inductor.lower import Lowered

_SHORT = 12
"""Lines up to which a forward is one paragraph."""
_MADE: dict[str, Specialised] = {}
"""What the last few files have of templates: all candidates of a problem often have the same."""
_MOST_MADE = 32


class CandidateFile(MainGraph):
    """The state of one emission, step by step; :meth:`source` gives the file."""

    def __init__(self, problem: Problem, lowered: Lowered) -> None:
        super().__init__(problem, lowered)
        self.gradients = GradientCode(self, lowered.backward) if lowered.backward else None
        constructor = self.constructor()
        guarded = constructor is None or self.held() or constructor_checks.distinguishes_all(self.captured, constructor)
        self.fixed = KnownSizesPath(self, lowered.fixed) if lowered.fixed and guarded else None

    def source(self) -> str:
        """The file's text, formatted."""
        self.kernels.write(self.top, self.local)
        if self.gradients:
            self.gradients.write()
        if self.fixed:
            self.fixed.write()
        text = self._file(self._forward())
        text = scored_operators.renamed(text)
        return text if self.held() else state_paths.with_python_paths(text, self.captured.digits)

    def _forward(self) -> list[str]:
        """The statements of forward, as lines without indentation."""
        steps = self.steps()
        if self.gradients and self.calls_torch():  # autograd would keep what torch's operators read
            steps = ["with torch.no_grad():", *(f"    {line}" for line in steps)]
        steps = merged_dels([*steps, *self._bound(), *self._return()])
        top = self._reading([p for _, p in self.tensor_inputs()], " ".join(steps))
        return [*top, *([""] if len(top) + len(steps) > _SHORT else []), *steps]

    def _reading(self, inputs: list[str], text: str) -> list[str]:
        split_lines = self.split_lines(text)
        paths = {s.name: self.host.paths[s.variable] for s in self.captured.graph_inputs if s.kind != "size"}
        mutated = {s.variable for s in self.captured.graph_inputs if s.mutated}
        read = [(v, path) for v, path in self.tensor_inputs() if v not in mutated]
        layouts = [in_layout(path, self.program.tensors[v], self.host.tuple) for v, path in read]
        compared: set[str] = set()
        while True:  # what is compared decides which sizes are read, and where they are read decides what must be compared
            relations = self.guards.relations(compared)
            lines, loose = self.sizes.reading(self.host.used_sizes, inputs, paths)
            elsewhere = self.guards.read_elsewhere(lines) - compared
            if not elsewhere:
                break
            compared |= elsewhere
        relations = [*self._multiples(lines, paths, relations), *relations, *self._held_rows(lines)]
        lost = [f"{name} = {value}" for name, value in loose.items()]
        entry = self.fixed.entry() if self.fixed else []
        first = self.guards.first(lines)
        written = {s.variable for s in self.captured.graph_inputs if s.mutated and s.kind == "input"}
        into = [(path, self.program.tensors[v]) for v, path in self.tensor_inputs() if v in written]
        apart = self.guards.apart([path for path, _ in into], [path for _, path in self.tensor_inputs()])
        ahead = [*apart, *entry, *first] if entry else [*first, *apart]
        top = [*ahead, *self.guards.too_large([*first, *relations])]
        lines, relations = _read_once(lines, relations, " ".join([text, *split_lines]))
        top += [*self.numbers(), *self._moved(), *lost, *lines, *relations, *split_lines]
        dense = [some[0].split(" = ") for some in layouts if len(some) == 1]
        for few in (dense[i : i + 3] for i in range(0, len(dense), 3)):
            top.append(f"{', '.join(path for path, _ in few)} = {', '.join(text for _, text in few)}")
        kept = [line for path, tensor in into for line in layout_kept(path, tensor, self.host.tuple)]
        top += [*kept, *(line for some in layouts if len(some) > 1 for line in some)]
        top = [*self.guards.autocast(), *top]
        return [*self.guards.given(), *self.unpacked([*top, text]), *top]

    def _held_rows(self, read: list[str]) -> list[str]:
        """Statements that refuse rows of which a program holds several, and which are too long for that."""
        known = set(re.findall(r"\w+", " ".join(line.partition(" = ")[0] for line in read)))
        held = {size: most for size, most in self.kernels.held.items() if set(re.findall(r"[A-Za-z_]\w*", size)) <= known}
        conditions = {} if self.guards.silent else {f"{size} > {most}": f"{size} <= {most}" for size, most in held.items()}
        return refused(conditions, "the kernels were written for", "ValueError")

    def _multiples(self, read: list[str], paths: dict[str, str], checked: list[str]) -> list[str]:
        """Statements that ask for multiples where sizes are read by division, for places that no statement in ``checked`` looks at."""
        names = [line.split(" = ")[0] for line in read]
        places = [] if self.guards.silent else list(self.sizes.divided(names, paths))
        unseen = [(p, as_python(str(s.expression))) for s, p in places if not any(f'("{s.name}", ' in line for line in checked)]
        texts = [(place, self.host.text(syntax_tree(size, mode="eval").body)) for place, size in unseen]
        return refused({f"{p} != {size}": f"{p} == {size}" for p, size in texts}, "the kernels were written for", "ValueError")

    def _moved(self) -> list[str]:
        """Tensors that are neither parameter nor buffer do not follow the module to a device: forward takes them there."""
        used = self.used_names() | {n.id for e in self.program.result for n in ast.walk(e) if isinstance(n, ast.Name)}
        paths = [self.host.paths[s.variable] for s in self.captured.graph_inputs if s.kind == "attribute" and s.variable in used]
        return [f"{path} = {path}.to({self.host.device})" for path in paths if not path.startswith(("getattr", self._device()))]

    def _bound(self) -> list[str]:
        """Tensor attributes that the forward replaces."""
        first = self._returned()
        values = self.program.result[first : first + len(self.captured.bound)]
        return [f"{attribute(n)} = {self.host.text(v)}" for n, v in zip(self.captured.bound, values, strict=True)]

    def _returned(self) -> int:
        """How many results the forward has; tensors that it binds and those kept for the backward follow."""
        return len(self.program.result) - len(self.captured.bound) - self.program.kept

    def _return(self) -> list[str]:
        texts = [self.host.text(e) for e in self.program.result]
        if self.gradients:
            lines, texts = self.gradients.attached(texts[: self._returned()])
            return [*lines, "return " + self.captured.output.format(*texts)]
        values = [getattr(node, "meta", {}).get("val") for node in self.captured.graph.graph.output_node().args[0]]
        count = self._returned()
        lines, texts[:count] = self.guards.results(list(zip(texts, values, strict=True))[:count])
        return [*lines, "return " + self.captured.output.format(*texts)]

    def _file(self, body: list[str]) -> str:
        gradients = self.gradients
        others = [part for part in (gradients, self.fixed) if part]
        texts = [text for part in (self, *others) for text in part.kernels.texts.values()]
        helpers = closure({h for f in texts for h in f.helpers})
        kernel_texts = list(dict.fromkeys(f.text for f in texts))
        templates = self._templates(others)
        body = [templates.rewritten(line) for line in body]
        functions = [gradients.function()] if gradients else []
        host = "\n".join([*body, *(line for part in (self, *others) for line in part.methods), *functions])
        kernels = [*templates.texts, *kernel_texts]
        if not self.options.short:
            kernels = launcher.wrapped(kernels, host, always=self.options.library or self.fixed is not None)
        sections = [HELPERS[h].text for h in helpers] + kernels + self.guards.definitions() + functions
        sections += [state_paths.TEXT.strip()] if f"{state_paths.NAME}(self" in host else []
        sections += [text.strip() for name, text in prepared.STATES.items() if f"= {name}(" in host]
        sections += [text for name, text in self.captured.result_classes.items() if name not in self.kept.names]
        code = "\n".join(sections)
        model = self._model(body)
        definitions = [formatting.text([d]) for d in self.kept.definitions]
        rest = code + model + "\n".join(definitions)
        imports = self._imports(rest)
        if re.findall(r"\bnn\.\w+", rest) == ["nn.Module"] and "(nn.Module)" in model:
            imports, model = imports.replace("import torch.nn as nn\n", ""), model.replace("(nn.Module)", "(torch.nn.Module)")
        types = self.guards.types()
        parts = [f"{imports}\n\n{types}" if types else imports, self._fixed_sizes(), *_grouped(definitions), *sections, model]
        return re.sub(r"\n{4,}", "\n\n\n", "\n\n\n".join(p for p in parts if p)) + "\n"

    def _templates(self, others: list[GradientCode | KnownSizesPath]) -> Specialised:
        """The templates as all graphs of the file need them; the statements of the others are rewritten to fit."""
        used = sorted({definition for part in (self, *others) for definition in part.definitions}, key=lambda d: d.order)
        calls = [call for part in (self, *others) for call in part.template_calls]
        if self.options.short and all(d in library(PLAIN).values() for d in used):
            return Specialised([d.text for d in used], {}, {})  # the same text in every file
        key = f"{used}{calls}{self.options.short}"  # as text: 1, 1.0 and True would be equal
        templates = _MADE.pop(key, None) or specialised({d.name: d.text for d in used}, calls, short=self.options.short)
        _MADE[key] = templates
        if len(_MADE) > _MOST_MADE:
            _MADE.pop(next(iter(_MADE)), None)  # the one that was asked for the longest ago
        for part in (self, *others):
            part.methods = [templates.rewritten(line) for line in part.methods]
        if self.gradients:
            self.gradients.statements = [templates.rewritten(line) for line in self.gradients.statements]
        return templates

    def _fixed_sizes(self) -> str:
        fixed = {**self.captured.fixed, **self.kept.fixed}
        if not fixed:
            return ""
        lines = formatting.broken(f"{FIXED_SIZES} = {formatting.quoted(str(fixed))}", formatting.WIDTH)
        return "\n".join(["# Sizes of the problem that this file was written for.", *lines])

    def _guarded_constructor(self) -> None:
        """The constructor refuses arguments for which the kernels were not written; the class says what they are for."""
        model, constructor = self.kept.model, self.constructor()
        fixed = self.guards.fixed_arguments(constructor) if constructor else {}
        if constructor and fixed and not self.held():
            lines = refused(fixed, "the kernels were written for", "ValueError")
            constructor.body[:0] = syntax_tree("\n".join(lines)).body
        if constructor and self.fixed and self.fixed.setting:
            _set(constructor, syntax_tree(self.fixed.setting).body)
        kept = self.guards.kept()
        if constructor:
            constructor.body += syntax_tree("\n".join(kept)).body
        if kept and self.held():
            state_holders.refuse_unread(self.kept.definitions)
        if not self.options.short:
            model.body.insert(0, ast.Expr(ast.Constant(self.guards.limits(fixed))))

    def _model(self, body: list[str]) -> str:
        self._guarded_constructor()
        model = formatting.text([self.kept.model])
        signature = ast.unparse(self.kept.forward.args)
        text = [model, *([""] if len(self.kept.model.body) > 1 else []), *_indented(self.methods, 4)]
        after = ["", *self.fixed.methods[:-1]] if self.fixed else []
        return "\n".join([*text, *_indented([f"def forward({signature}):", *("    " + line for line in body), *after], 4)])

    def _imports(self, code: str) -> str:
        kept = {ast.unparse(i) for i in self.kept.imports}
        needed = {"import math": r"\bmath\.", "from collections import namedtuple": r"= namedtuple\("}
        standard = [line for line, use in needed.items() if re.search(use, code) and line not in kept]
        lines = [*standard, *([""] if standard else []), "import torch"]
        for statement in self.kept.imports:
            text = ast.unparse(statement)
            if text not in lines and text != "import torch":
                lines.append(text)
        if "nn" not in self.kept.names and re.search(r"\bnn\.", code):
            lines.append("import torch.nn as nn")
        lines += ["from torch.nn.attention import SDPBackend, sdpa_kernel"] if "sdpa_kernel(" in code else []
        lines += ["import triton", "import triton.language as tl"]
        if re.search(r"\blibdevice\.", code):
            lines.append("from triton.language.extra import libdevice")
        return "\n".join(lines)


_CHANGES = {"append", "extend", "insert", "pop", "remove", "reverse", "sort"}


def _set(constructor: ast.FunctionDef, setting: list[ast.stmt]) -> None:
    """Put into the constructor what its arguments say: behind the rest, or before it where an argument's name gets another value there."""
    read = {n.id for s in setting for n in ast.walk(s) if isinstance(n, ast.Name) and n.id != constructor.args.args[0].arg}
    inside = [*ast.walk(constructor)]
    written = {n.id for n in inside if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    written |= {n.value.id for n in inside if isinstance(n, ast.Attribute) and n.attr in _CHANGES and isinstance(n.value, ast.Name)}
    at = len(constructor.body)
    if read & written:
        at = next((i + 1 for i, s in enumerate(constructor.body) if "super()" in ast.unparse(s)), 0)
    constructor.body[at:at] = setting


def _read_once(lines: list[str], relations: list[str], rest: str) -> tuple[list[str], list[str]]:
    """Sizes that one check alone needs are read there."""
    kept = []
    for i, line in enumerate(lines):
        name, _, value = line.partition(" = ")
        word = re.compile(rf"\b{re.escape(name)}\b")
        readers = [n for n, r in enumerate(relations) if word.search(r)]
        if not name.isidentifier() or len(readers) != 1 or word.search(" ".join([*lines[i + 1 :], rest])):
            kept.append(line)
            continue
        whole = word.sub(value, relations[readers[0]])  # shapes hold no backslash
        fits = whole.startswith("check(") and len(word.findall(relations[readers[0]])) == 1 and len(whole) <= formatting.WIDTH - 8
        relations = [whole if n == readers[0] and fits else r for n, r in enumerate(relations)]
        kept += [] if fits else [line]
    return kept, relations


def _indented(lines: list[str], by: int) -> list[str]:
    """Statements that far to the right, broken where they are too long."""
    made = []
    for line in lines:
        inner = line.lstrip()
        pad = " " * (by + len(line) - len(inner))
        made += [pad + part if part else "" for part in formatting.broken(inner, formatting.WIDTH - len(pad))]
    return made


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
