"""What a file relies on, checked as it runs: a call that the kernels were not written for raises an error, and none is silently wrong.

Checked are the constructor's arguments, the arguments of forward, the mode, and the tensors' dtype, device and sizes as far as they do not
follow from each other. Results refuse a backward pass.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from kernelllm.compiler.capture.captured import Captured, GraphInput, SizeExpression
from kernelllm.compiler.emit import index_limits, size_examples
from kernelllm.compiler.emit.any_dtype import FollowedDtype
from kernelllm.compiler.emit.constructors import constructor_checks, kept_members
from kernelllm.compiler.emit.constructors.constructor_checks import OPPOSITE, literal
from kernelllm.compiler.emit.forward import HostPrinter
from kernelllm.compiler.emit.guard_texts import APART, CHECK, INFERENCE_ONLY, STATE
from kernelllm.compiler.emit.kernels import integers
from kernelllm.compiler.emit.kernels.readable_names import fresh_name
from kernelllm.compiler.emit.size_names import as_python, symbols_in
from kernelllm.core.text import syntax_tree
from kernelllm.problems.sizes import DTYPES

_LONG, _FEW, _SOURCES = 96, 4, 36


class Guards:
    """The checks of one file."""

    def __init__(
        self, captured: Captured, host: HostPrinter, arguments: ast.arguments, used: list[str], taken: set[str], dtypes: FollowedDtype
    ) -> None:
        """``arguments``: those of forward. ``used``: variables of the tensors that the graph uses. ``taken``: names in the file."""
        self.captured, self.host, self.arguments, self.taken, self.dtypes = captured, host, arguments, taken, dtypes
        whole = not captured.symbolic  # then each size may have decided something
        self.inputs = [g for g in captured.graph_inputs if g.variable in used or (whole and g.kind == "input" and not g.number)]
        self.names = {n: fresh_name(n, taken) for n in ("check", "InferenceOnly", "apart", "Kept", "keep_layers", "settings_of")}
        self._called: set[str] = set()
        own = {s for g in captured.graph_inputs if g.kind == "parameter" for d in g.shape for s in symbols_in(d)}  # a layer has elements
        filled = (c for c in captured.guards if c[1:] != (">=", "1") or not symbols_in(c[0]) <= own)
        readable = (c for c in filled if not constructor_checks.unreadable_sizes(captured, c))
        self.conditions, self.offsets = index_limits.split(readable)
        self._limited = bool(self.offsets) and all(self._elements(g) <= index_limits.MOST for g in self.inputs)
        self.silent = False
        """Tensors are taken as they come; only what changes the meaning of a call is refused."""
        self.settings: kept_members.KeptSettings | None = None
        """Those that the kernels hold."""

    def definitions(self) -> list[str]:
        """The helpers that the file needs, once all statements are written."""
        self.kept()
        wanted = [CHECK if self._limited else re.sub(r".*offsets have 32 bits\n", "", CHECK)] if "check" in self._called else []
        wanted += [text for name, text in (("InferenceOnly", INFERENCE_ONLY), ("apart", APART)) if name in self._called]
        wanted += [STATE] if "keep_layers" in self._called else []
        wanted += [self.settings.function()] if self.settings else []
        names = re.compile(rf"\b({'|'.join(self.names)})\b")
        return [names.sub(lambda m: self.names[m[0]], text).strip() for text in wanted]

    def kept(self) -> list[str]:
        """Statements for the constructor's end: what it has made stays as it is."""
        states = any(g.kind in ("parameter", "buffer") for g in self.captured.graph_inputs) and not self.silent
        lines = [f"{self.names['keep_layers']}(self)"] if states else []
        self._called |= {"keep_layers"} if states else set()
        lines += self._each_mode().made()
        return [*lines, *(self.settings.made(self.names["settings_of"]) if self.settings else [])]

    def types(self) -> str:
        """The statement that lists the dtypes that the file serves, where they are several."""
        served = ", ".join(f"torch.{d}" for d in self.dtypes.served)
        return f"{DTYPES} = ({served})  # one for inputs and parameters" if served else ""

    def share(self, other: Guards) -> None:
        """Use the helpers of another path of the same file."""
        self.names, self._called = other.names, other._called

    def state(self) -> list[str]:
        """Statements that check the parameters that tell of all."""
        return [] if self.silent else [self._check(g, self._shape(g)) for g in self._parameters()]

    # Ahead of the sizes.

    def first(self, reading: list[str]) -> list[str]:
        """Statements for the top of forward: how many dimensions tensors have where sizes are read off them."""
        if self.silent:
            return []
        text = "\n".join(reading)
        read = [g for g in self.inputs if f"{self.host.paths[g.variable]}.shape" in text or self._numbered(g)]
        lines = [self._check(g, _tuple([d if d.isdigit() else "None" for d in g.shape])) for g in read]
        for given in self.inputs:
            if self._is_first(given) and self._free(given) and not any(f"{DTYPES}, " in line for line in lines):
                path = self.host.paths[given.variable]
                refusal = f'raise ValueError(f"{given.name}: the kernels take {{{DTYPES}}}; got {{{path}.dtype}}")'
                lines += [f"if {path}.dtype not in {DTYPES}:", f"    {refusal}"]
        return lines

    def given(self) -> list[str]:
        """Statements ahead of all: the mode, settings, and arguments that are no tensors."""
        settings = self.settings.asked(self.names["settings_of"]) if self.settings else []
        return [*self._mode(), *settings, *self._plain()]

    def autocast(self) -> list[str]:
        """Statements that refuse autocast where what is computed depends on it. They read a tensor's device."""
        if self.silent or not self.captured.autocasts:
            return []
        text = "The kernels do not follow torch.autocast"
        return [f"if torch.is_autocast_enabled({self.host.device}.type):", f'    raise NotImplementedError("{text}")']

    def _mode(self) -> list[str]:
        modes = self.captured.modes
        if not modes:
            return []
        each = self._each_mode()
        return [f"if {each.other()}:", f'    raise RuntimeError("{each.told}")']

    def _each_mode(self) -> kept_members.EachMode:
        states = [s.name for s in self.captured.graph_inputs if s.kind in ("parameter", "buffer")]
        return kept_members.EachMode(self.captured.modes, states, self.captured.training)

    def _plain(self) -> list[str]:
        """Arguments that are not tensors, those that the problem leaves out, and containers."""
        known = {name: value for name, value in self.captured.plain_inputs.items() if not isinstance(value, SizeExpression)}
        known = self._left_out() | known
        conditions: dict[str, str] = {}
        for name, value in known.items():
            text = literal(value)
            if text is None or not name.split("[")[0].isidentifier():
                continue
            conditions[f"{name} is not {text}" if value is None or isinstance(value, bool) else f"{name} != {text}"] = f"{name}={text}"
        lines = refused(conditions, "forward was compiled for", "ValueError")
        read = {f"type({name}) is not int or {name} < 2": f"a whole number {name} above 1" for name in self._read_arguments()}
        lines += [line for condition, expected in read.items() for line in refused({condition: expected}, "forward was compiled for",
                                                                                   "ValueError")]
        gathered = {a.arg: "further keyword arguments" for a in (self.arguments.kwarg,) if a}
        lines += refused(gathered, "forward was compiled without", "TypeError")
        return [*self._gathered(), *self._containers(), *lines]

    def _read_arguments(self) -> list[str]:
        """Whole numbers that the forward is given and reads sizes off. Symbols stand for those above 1."""
        first = (s.sources[0] for n, s in self.host.sizes.known.items() if s.sources and n in self.host.used_sizes)
        return list(dict.fromkeys(source.name for source in first if source.kind == "argument"))

    def _left_out(self) -> dict[str, Any]:
        """Arguments of forward that the problem does not pass, with the values that they have then."""
        arguments = self.arguments
        plain = [*arguments.posonlyargs, *arguments.args]
        pairs = list(zip(plain[len(plain) - len(arguments.defaults) :], arguments.defaults, strict=True))
        pairs += [(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None]
        left = {}
        for argument, default in pairs:
            if argument.arg not in self.captured.forward_arguments:
                try:
                    left[argument.arg] = ast.literal_eval(default)
                except ValueError:
                    continue
        return left

    def _gathered(self) -> list[str]:
        """``*tensors`` under the names of its members."""
        if self.arguments.vararg is None:
            return []
        name = self.arguments.vararg.arg
        members = [n for n in self.captured.forward_arguments if re.fullmatch(rf"{name}\d+", n)]
        lines = refused({f"len({name}) != {len(members)}": f"{len(members)} of *{name}"}, "forward was compiled for", "TypeError")
        return lines + ([f"{', '.join(members)}{',' if len(members) == 1 else ''} = {name}"] if members else [])

    def _containers(self) -> list[str]:
        """Lists of tensors have as many members as those of the problem."""
        counts: dict[str, int] = {}
        for name in [*(g.name for g in self.captured.graph_inputs if g.kind == 'input'), *self.captured.plain_inputs]:
            match = re.fullmatch(r"(\w+)\[(\d+)\](.*)", name)
            if match:
                counts[match[1]] = max(counts.get(match[1], 0), int(match[2]) + 1)
        conditions = {f"{name} is None or len({name}) != {count}": f"{count} members of {name}" for name, count in counts.items()}
        return refused(conditions, "forward was compiled for", "ValueError")

    # Behind the sizes.

    def relations(self, also: set[str]) -> list[str]:
        """Statements that compare sizes which are not what they are by being read. Sizes that they need count as used.

        ``also``: names of inputs to compare in any case.
        """
        if self.silent:
            return []
        loose = [g for g in self.inputs if g.name in also or not (self._numbered(g) or self._free(g))]
        lines = [self._check(g, self._shape(g)) for g in loose]
        lines += [self._check(g, self._shape(g)) for g in self._parameters()]
        conditions = {f"{left} {OPPOSITE[sign]} {right}": f"{left} {sign} {right}" for left, sign, right in self._comparisons()}
        own = {size.symbol: size.hint for size in self.captured.sizes}
        offsets = [limit for limit in self.offsets if self._size(limit[0])]
        large = index_limits.uncovered(offsets, [g.shape for g in self.inputs] if self._limited else [], own)
        if large:
            conditions[f"{self._size(large[0])} > {large[2]}"] = "offsets of 32 bits"
        return lines + refused(_divisors(conditions) | conditions, "the kernels were written for", "ValueError")

    def apart(self, written: list[str], inputs: list[str]) -> list[str]:
        """Statements that refuse inputs in the memory of one that is written into."""
        lines = []
        for at, path in enumerate(written):
            others = [p for p in inputs if p not in written[: at + 1]]
            if others:
                self._called.add("apart")
                lines.append(f'{self.names["apart"]}("{path}", {path}, {", ".join(others)})')
        return lines

    def too_large(self, checked: list[str]) -> list[str]:
        """Statements that refuse tensors of too many elements or of turned signs, for inputs that no statement in ``checked`` looks at."""
        unseen = [g for g in self.inputs if not self.silent and not any(f'("{g.name}", ' in s for s in checked)]
        conditions: dict[str, str] = {}
        for given in unseen:
            path, floating = self.host.paths[given.variable], given.dtype.startswith(("float", "bfloat"))
            conditions |= {f"{path}.numel() >= 2**31": f"fewer elements of {path}"} if self._limited else {}
            conditions |= {f"{path}.is_neg()": f"{path}.resolve_neg()"} if floating else {}
        return refused(conditions, "the kernels were written for", "ValueError")

    def _elements(self, given: GraphInput) -> int:
        """How many elements the problem's own tensor has."""
        own = {size.symbol: size.hint for size in self.captured.sizes}
        return math.prod(eval(as_python(d), {"__builtins__": {}}, own) for d in given.shape)

    def read_elsewhere(self, reading: list[str]) -> set[str]:
        """Names of inputs with a size that these statements read off another tensor."""
        places: dict[str, tuple[str, int]] = {}
        for line in reading:
            unpacked = re.fullmatch(r"([\w, ]+?),? = (.*)\.shape", line)
            single = re.fullmatch(r"(\w+) = (.*)\.shape\[(\d+)\]", line)
            if unpacked:
                places |= {n: (unpacked[2], i) for i, n in enumerate(unpacked[1].split(", ")) if n != "_"}
            elif single:
                places[single[1]] = (single[2], int(single[3]))
        found = set()
        for given in self.inputs:
            path = self.host.paths[given.variable]
            for i, size in enumerate(self.host.sizes.shape(given.shape) or []):
                if places.get(str(size), (path, i)) != (path, i):
                    found.add(given.name)
        return found

    def _free(self, given: GraphInput) -> bool:
        """Whether every dimension is a size that is read right there, so that any shape of this rank fits. Of no dimension none is."""
        return 0 < self._read_here(given) == len(given.shape)

    def _numbered(self, given: GraphInput) -> bool:
        """Whether some sizes are numbers and the others are read right there: one look ahead of the sizes compares all of them."""
        numbers = sum(d.isdigit() for d in given.shape)
        return numbers > 0 and self._read_here(given) + numbers == len(given.shape)

    def _read_here(self, given: GraphInput) -> int:
        """How many dimensions are sizes that are read right there."""
        first = {s.symbol: s.sources[0] for s in self.captured.sizes if s.sources}
        known = [(first[d], i) for i, d in enumerate(given.shape) if d in first]
        return sum((source.kind, source.name, source.dim) == ("input", given.name, i) for source, i in known)

    def _parameters(self) -> list[GraphInput]:
        """Parameters and buffers that the inputs must fit, and one for the dtype of all."""
        state = [g for g in self.captured.graph_inputs if g.kind in ("parameter", "buffer") and g.variable in self.host.program.tensors]
        chosen: list[GraphInput] = []
        symbols = {w for g in self.inputs for d in g.shape for w in symbols_in(d)}
        for symbol in sorted(symbols):
            fitting = [g for g in state if any(symbol in symbols_in(d) for d in g.shape)]
            if fitting and not any(g in chosen for g in fitting):
                chosen.append(fitting[0])
        floating = [g for g in state if getattr(torch, g.dtype).is_floating_point]
        if floating and not any(g in chosen for g in floating):
            chosen.append(floating[0])
        return [g for g in state if (g in chosen or self._is_first(g)) and self.host.sizes.shape(g.shape) is not None]

    def _is_first(self, given: GraphInput) -> bool:
        """Whether it is the tensor whose type the others must have."""
        return bool(self.dtypes.served) and given.variable == self.dtypes.given[0]

    def _check(self, given: GraphInput, shape: str) -> str:
        self._called.add("check")
        path = self.host.paths[given.variable]
        dtype = DTYPES if self._is_first(given) else f"({self.host.program.tensors[given.variable].dtype},)"
        device = f", {self.host.device}" if not self.host.device.startswith(f"{path}.") else ""
        return f'{self.names["check"]}("{given.name}", {path}, {dtype}, {shape}{device})'

    def _shape(self, given: GraphInput) -> str:
        shape = self.host.sizes.shape(given.shape)
        return self.host.tuple(shape) if shape is not None else _tuple(["None"] * len(given.shape))

    def _comparisons(self) -> Iterator[tuple[str, str, str]]:
        """What sizes have to be to each other: equal where the graph relies on it, else as the module's code decided; and arguments
        that are sizes."""
        differing = [c for c in self.conditions if None in (sides := [self._expression(c[i]) for i in (0, 2)]) or sides[0] != sides[1]]
        for left, sign, right in size_examples.independent(differing, self.captured.sizes):
            yield self._size(left) or self._fraction(left), sign, self._size(right) or self._fraction(right)
        for name, value in self.captured.plain_inputs.items():
            text = self._size(value.text) if isinstance(value, SizeExpression) else None
            if text is not None and text not in (name, re.sub(r"\W+", "_", name).strip("_")):
                yield name, "==", text

    def _size(self, text: str) -> str | None:
        """A size expression of the graph as the file writes it; None where it is more than integer arithmetic."""
        expression = self._expression(text)
        return None if expression is None else self.host.size(expression)

    def _fraction(self, text: str) -> str:
        """The same for other arithmetic, such as a quotient of two sizes."""
        return self.host.text(syntax_tree(as_python(text), mode="eval").body)

    def _expression(self, text: str) -> Any:
        try:
            return self.host.sizes.expression(syntax_tree(as_python(text), mode="eval").body)
        except (integers.NotInteger, SyntaxError, TypeError):
            return None

    # The constructor and the results.

    def fixed_arguments(self, constructor: ast.FunctionDef) -> dict[str, str]:
        """Conditions under which an argument of the constructor differs from what the kernels hold, to what they hold."""
        return constructor_checks.conditions(self.captured, self.host, constructor)

    def results(self, results: list[tuple[str, Any]]) -> tuple[list[str], list[str]]:
        """Statements that let results refuse a backward pass, and the results' texts then. Given: text and value in the graph."""
        inputs = [g for g in self.inputs if getattr(torch, g.dtype).is_floating_point]
        parameters = [g for g in self.captured.graph_inputs if g.kind == "parameter" and g.variable in self.host.program.tensors]
        made = {p for v, p in self.host.paths.items() if v not in {g.variable for g in self.captured.graph_inputs}}
        lines: list[str] = []
        texts: list[str] = []
        wrapped: list[str] = []
        for text, value in results:
            differentiable = isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
            if differentiable and (inputs or parameters) and text not in wrapped:
                if not text.isidentifier():
                    name = fresh_name("result", self.taken)
                    lines.append(f"{name} = {text}")
                    text = name
                elif text not in made:
                    texts.append(text)
                    continue
                wrapped.append(text)
            texts.append(text)
        if not wrapped or self.silent:
            return [], [text for text, _ in results]
        self._called.add("InferenceOnly")
        many = f"({', '.join(wrapped)}{',' if len(wrapped) == 1 else ''})"
        sources = [self.host.paths[g.variable] for g in (*inputs, *parameters)]
        if len(", ".join(sources)) > _SOURCES and len(parameters) <= _FEW:
            sources[len(inputs) :] = ["*self.parameters()"]
        plain = f"{self.names['InferenceOnly']}.apply({', '.join([many, *sources])})"
        whole = f"{plain}[0] if torch.is_grad_enabled() else {texts[0]}"
        if texts == wrapped and len(texts) == 1 and len(whole) < _LONG:
            return lines, [whole]
        lines.append("if torch.is_grad_enabled():")
        if len(parameters) > _FEW:
            sources[len(inputs) :] = [fresh_name("trained", self.taken)]
            lines.append(f"    {sources[-1]} = next((p for p in self.parameters() if p.requires_grad), None)")
        lines.append(f"    {many} = {self.names['InferenceOnly']}.apply({', '.join([many, *sources])})")
        return lines, texts

    def limits(self, fixed: dict[str, str]) -> str:
        """What the file is for, in one or two sentences."""
        tensors = [g for g in self.captured.graph_inputs if g.kind in ("input", "parameter") and g.dtype != "int"]
        dtypes = " and ".join(dict.fromkeys(g.dtype for g in tensors if getattr(torch, g.dtype).is_floating_point))
        dtypes = ", ".join([*self.dtypes.served[:-2], " or ".join(self.dtypes.served[-2:])]) or dtypes
        parts = [dtypes] if dtypes else []
        if self.captured.modes:
            parts.append(f"{'train' if next(iter(self.captured.modes.values())) else 'eval'}() mode")
        parts += list(fixed.values())
        return "; ".join(["Differentiable" if self.captured.backward else "Inference only", *parts]) + "."


def _tuple(parts: list[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _divisors(conditions: Mapping[str, str]) -> dict[str, str]:
    """What the conditions divide by and is computed: a quotient of sizes can be 0, such as a number of groups."""
    nodes = [n for condition in conditions for n in ast.walk(syntax_tree(condition, mode="eval"))]
    divided = [n.right for n in nodes if isinstance(n, ast.BinOp) and isinstance(n.op, (ast.FloorDiv, ast.Mod))]
    return {f"{ast.unparse(d)} < 1": f"{ast.unparse(d)} >= 1" for d in divided if isinstance(d, ast.BinOp)}


def refused(conditions: Mapping[str, str], start: str, error: str) -> list[str]:
    """Statements that raise an error where one of the conditions holds. ``conditions``: to the words for what was expected instead."""
    whole = f"if {' or '.join(conditions)}:"
    if not conditions:
        return []
    if len(conditions) > 1 and max(len(whole), len(start) + len(", ".join([*conditions, *conditions.values()]))) > _LONG:
        return [line for condition, expected in conditions.items() for line in refused({condition: expected}, start, error)]
    text = f"{start} {', '.join(conditions.values())}".replace("\\", "\\\\").replace('"', "'")
    came = [c.split(" ")[0] for c in conditions]
    if all(n.isidentifier() for n in came):
        braced = text.replace("{", "{{").replace("}", "}}")
        return [whole, f'    raise {error}(f"{braced}; got {", ".join(f"{{{n}!r}}" for n in came)}")']
    return [whole, f'    raise {error}("{text}")']
