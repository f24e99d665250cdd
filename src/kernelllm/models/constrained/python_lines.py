"""Whether a complete line of an answer is valid: it parses, every name that it reads is bound, and its calls of helper functions fit.

There is one immutable state for each line. After an invalid line the sampler goes back to an earlier state and samples again.
"""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from kernelllm.core.text import syntax_tree
from kernelllm.models.constrained.helper_calls import HelperFunction, called_name, function_of
from kernelllm.models.constrained.prompt_module import Kind, PromptModule, kind_of_constant, plain_name, registered_by

_BUILTINS: Final = frozenset(dir(builtins))
_HEADS: Final = ("def ", "class ", "if ", "for ", "while ", "with ", "elif ", "else:", "try:", "finally:", "except")
_NOT_IN_KERNELS: Final = frozenset({"torch", "nn", "F"})


@dataclass(frozen=True)
class PythonLines:
    """What is bound behind the lines so far."""

    file: frozenset[str] = frozenset()
    local: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()
    model: bool = False
    """Within ``ModelNew``, the last part of a file."""
    forward: bool = False
    returned: bool = False
    any_constructor: bool = False
    """Whether names in the constructor of ``ModelNew`` do not count, because the module's own takes its place."""
    asked: PromptModule | None = None
    """The module whose constructor that is, and whose forward has the arguments of the answer's."""
    functions: tuple[HelperFunction, ...] = ()
    decorators: tuple[str, ...] = ()
    inside: str = ""
    """The function to which the lines belong."""
    read: frozenset[str] = frozenset()
    """What the forward has read of its arguments, and of the attributes of ``self``."""

    @property
    def may_end(self) -> bool:
        """Whether the model has a forward that returns something."""
        return self.model and self.forward and self.returned

    def following(self, asked: PromptModule | None) -> PythonLines:
        """The same, from the head of ``ModelNew`` on with the module that is asked for: what comes before is the same for all modules."""
        if asked is None or not self.model or self.asked is not None:
            return self
        return replace(self, asked=asked, attributes=frozenset(asked.attributes))

    def missing(self, asked: PromptModule | None) -> frozenset[str]:
        """Behind the head of ``ModelNew``: the functions that a file for this module has and this one has not."""
        if asked is None or not self.model or self.asked is not None:
            return frozenset()
        own = tuple(plain_name(f.name) for f in self.functions)
        return frozenset(name for name in asked.must_define if not any(f.startswith(name) for f in own))

    def after(self, line: str) -> PythonLines | None:
        """The state behind a further logical line, None where it cannot stand."""
        node = _statement(line)
        if node is None:
            return self if not line.strip() or line.strip().startswith("#") else None
        now = self._at(line, node)
        free = now._constructing and not (isinstance(node, ast.FunctionDef) and node.name == "forward")
        if not free and not (now._bound(node) and now._called(node) and now._copies(node, line)):
            return None
        return now._with(node, len(line) - len(line.lstrip()), line.strip())

    def instead(self, line: str) -> Instead | None:
        """What helps where a line cannot stand: the line that the prompt gives, or the beginning of a function that it calls."""
        node = _statement(line)
        if node is None:
            return None
        now = self._at(line, node)
        if isinstance(node, ast.FunctionDef) and now.model and node.name == "forward" and now.asked is not None:
            return Instead(now.asked.forward) if ast.unparse(node.args) != now.asked.signature else None
        known = now._known(node)
        for name in (called_name(n) for n in ast.walk(node) if isinstance(n, ast.Call)):
            if name and name not in known:
                jit = any(f.name == now.inside and f.kernel for f in now.functions)
                started = any(isinstance(n, ast.Subscript) and isinstance(n.value, ast.Name) and n.value.id == name for n in ast.walk(node))
                return Instead(f"{'@triton.jit' + chr(10) if jit or started else ''}def {name}(", before=True)
        return None

    @property
    def _constructing(self) -> bool:
        return self.any_constructor and self.model and not self.forward

    def _at(self, line: str, node: ast.stmt) -> PythonLines:
        """The state in which a line is read: what is local ends where a line stands at the margin."""
        now = self
        if line[0] != " ":
            now = replace(self, local=frozenset(), model=False, inside="")
        if isinstance(node, ast.ClassDef):
            now = replace(now, model=node.name == "ModelNew", forward=False, attributes=frozenset(), asked=None)
        return now

    def _known(self, node: ast.stmt) -> frozenset[str]:
        nodes = list(ast.walk(node))
        inner = {a.arg for a in nodes if isinstance(a, ast.arg)}
        inner |= {n.id for c in nodes if isinstance(c, ast.comprehension) for n in ast.walk(c.target) if isinstance(n, ast.Name)}
        return _BUILTINS | self.file | self.local | inner

    def _bound(self, node: ast.stmt) -> bool:
        """Whether everything that a line reads is bound."""
        nodes = list(ast.walk(node))
        calls = [n.func for n in nodes if isinstance(n, ast.Call)]
        called = {id(f) for f in (*calls, *(f.value for f in calls if isinstance(f, ast.Subscript)))}
        read = [n for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
        read += [n.target for n in nodes if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)]
        known = self._known(node)
        if not all(n.id in known for n in read):
            return False
        if any(f.kernel and f.name == self.inside for f in self.functions) and any(n.id in _NOT_IN_KERNELS for n in read):
            return False
        own = [n for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load) and ast.unparse(n.value) == "self"]
        if self.model and not all(n.attr in self.attributes | {"training"} for n in own if id(n) not in called):
            return False
        kinds = [(self._kind(n.value), n.attr) for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load)]
        return all(kind is None or attribute in kind for kind, attribute in kinds)

    def _called(self, node: ast.stmt) -> bool:
        """Whether calls of the file's own functions have the arguments that these need."""
        for call in (n for n in ast.walk(node) if isinstance(n, ast.Call)):
            name = called_name(call)
            found = next((f for f in self.functions if f.name == name), None) if name and name not in self.local else None
            if found is None:
                continue
            if not found.fits(call):
                return False
            for argument, value in found.arguments(call):
                kind = self._kind(value)
                if kind is not None and not found.needed(argument) <= kind:
                    return False
        return True

    def _copies(self, node: ast.stmt, line: str) -> bool:
        """Whether a line of the forward is as the prompt's module has it: arguments, what is returned and what is unpacked."""
        if self.asked is None or not self.model:
            return True
        if isinstance(node, ast.FunctionDef) and node.name == "forward":
            return ast.unparse(node.args) == self.asked.signature
        if not self.forward:
            return True
        if isinstance(node, ast.Return) and line.startswith("        return"):
            count = len(node.value.elts) if isinstance(node.value, ast.Tuple) else 1
            return self.asked.outputs in (None, count) and self.asked.must_read <= self.read | _names(node)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple) and ast.unparse(node.value).endswith(".shape"):
            name = ast.unparse(node.value).removesuffix(".shape")
            parts = node.targets[0].elts
            rank = self.asked.ranks.get(name) if self._untouched(name) else None
            return rank in (None, len(parts)) or any(isinstance(p, ast.Starred) for p in parts)
        return True

    def _untouched(self, name: str) -> bool:
        return any(f.name == self.inside == "forward" and name in f.untouched for f in self.functions)

    def _kind(self, node: ast.expr) -> Kind:
        """The attributes that a value has, as far as the prompt tells."""
        if self.asked is None or not self.model:
            return None
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            return self.asked.attributes.get(node.attr)
        if isinstance(node, ast.Name):
            return self.asked.arguments.get(node.id) if self._untouched(node.id) else None
        return kind_of_constant(node)

    def _with(self, node: ast.stmt, indent: int, text: str) -> PythonLines:
        if text.startswith("@"):
            return replace(self, decorators=(*self.decorators, text[1:]))
        bound = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        made = replace(self, returned=isinstance(node, ast.Return), decorators=())
        if self.asked is None:
            made = replace(made, attributes=self.attributes | _set_on_objects(node))
        if self.inside:
            own = {f.name: f for f in self.functions}
            now = own[self.inside].after(node, own, indent == (8 if self.model else 4))
            if now is not own[self.inside]:
                made = replace(made, functions=tuple((own | {self.inside: now}).values()))
        if self.forward:
            made = replace(made, read=self.read | _names(node))
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {(a.asname or a.name).partition(".")[0] for a in node.names}
        if isinstance(node, ast.ClassDef):
            bound.add(node.name)
        if isinstance(node, ast.FunctionDef):
            arguments = frozenset(a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg))
            level = 4 if self.model else 0
            outer = self.local if indent > level else frozenset()
            made = replace(made, local=outer | arguments, forward=made.forward or (self.model and node.name == "forward"))
            bound = {node.name}
            if indent == level:
                others = tuple(f for f in made.functions if f.name != node.name)
                made = replace(made, functions=(*others, function_of(node, self.decorators)), inside=node.name, read=frozenset())
        return replace(made, file=made.file | bound) if not indent else replace(made, local=made.local | bound)


@dataclass(frozen=True)
class Instead:
    """What to write where a line cannot stand: in its place, or before the function or class that it belongs to."""

    text: str
    before: bool = False


def _names(node: ast.stmt) -> frozenset[str]:
    """The names that a line reads, and the attributes."""
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    return frozenset(names | {f".{n.attr}" for n in ast.walk(node) if isinstance(n, ast.Attribute)})


def _set_on_objects(node: ast.stmt) -> set[str]:
    nodes = list(ast.walk(node))
    attributes = {n.attr for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
    return attributes | {name for name in map(registered_by, nodes) if name}


@lru_cache(maxsize=20_000)
def _statement(line: str) -> ast.stmt | None:
    """A line as a statement; None where it is none."""
    text = line.strip()
    if not text or text.startswith("#"):
        return None
    try:
        return syntax_tree(_whole(text)).body[-1]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _whole(text: str) -> str:
    """A line as a program of its own."""
    if text.startswith("@"):
        return f"{text}\ndef f(): pass"
    if not text.startswith(_HEADS) or not text.endswith(":"):
        return text
    if text.startswith(("elif ", "else:")):
        return f"if 1: pass\n{text} pass"
    if text.startswith(("except", "finally:")):
        return f"try: pass\n{text} pass"
    return f"{text} pass\nfinally: pass" if text.startswith("try:") else f"{text} pass"
