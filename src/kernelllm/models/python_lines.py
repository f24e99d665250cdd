"""Whether a finished line of a kernel's file can stand: it parses, and every name that it reads is bound by then.

One state a line, never changed: who draws an answer goes back to an earlier one where a line cannot stand, and draws it again.
"""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass, replace
from typing import Final

from kernelllm.core.text import syntax_tree

_BUILTINS: Final = frozenset(dir(builtins))
_HEADS: Final = ("def ", "class ", "if ", "for ", "while ", "with ", "elif ", "else:", "try:", "finally:", "except")
_OF_MODULES: Final = frozenset({"training"})
_REGISTERS: Final = ("register_buffer", "register_parameter", "add_module")


@dataclass(frozen=True)
class PythonLines:
    """What is bound behind the lines so far."""

    file: frozenset[str] = frozenset()
    local: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()
    model: bool = False
    """Within ``ModelNew``, the last part of a file: what is called there has been defined."""
    forward: bool = False
    returned: bool = False
    any_constructor: bool = False
    """Whether names in the constructor of ``ModelNew`` do not count, because the module's own takes its place."""

    @property
    def may_end(self) -> bool:
        """Whether the model has a forward that returns something."""
        return self.model and self.forward and self.returned

    def after(self, line: str) -> PythonLines | None:
        """The state behind a further logical line, None where it cannot stand."""
        text = line.strip()
        if not text or text.startswith("#"):
            return self
        try:
            tree = syntax_tree(_whole(text))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        node = tree.body[-1]
        top = line[0] != " "
        now = replace(self, local=frozenset(), model=self.model and not top) if top else self
        if isinstance(node, ast.ClassDef):
            now = replace(now, model=node.name == "ModelNew", forward=False, attributes=frozenset())
        if not (now.any_constructor and now.model and not now.forward) and not now._reads(node):
            return None
        return now._with(node, len(line) - len(line.lstrip()), text)

    def _reads(self, node: ast.stmt) -> bool:
        """Whether everything that a line reads is bound."""
        nodes = list(ast.walk(node))
        inner = {a.arg for a in nodes if isinstance(a, ast.arg)}
        inner |= {n.id for c in nodes if isinstance(c, ast.comprehension) for n in ast.walk(c.target) if isinstance(n, ast.Name)}
        calls = [n.func for n in nodes if isinstance(n, ast.Call)]
        called = {id(f) for f in (*calls, *(f.value for f in calls if isinstance(f, ast.Subscript)))}
        known = _BUILTINS | self.file | self.local | inner
        read = [n for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and (self.model or id(n) not in called)]
        read += [n.target for n in nodes if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)]
        own = [n for n in nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load) and ast.unparse(n.value) == "self"]
        kept = not self.model or all(n.attr in self.attributes | _OF_MODULES for n in own if id(n) not in called)
        return kept and all(n.id in known for n in read)

    def _with(self, node: ast.stmt, indent: int, text: str) -> PythonLines:
        bound = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        attributes = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
        for call in (n for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.args):
            if isinstance(call.func, ast.Attribute) and call.func.attr in _REGISTERS and isinstance(call.args[0], ast.Constant):
                attributes.add(str(call.args[0].value))
        made = replace(self, attributes=self.attributes | attributes, returned=isinstance(node, ast.Return))
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {(a.asname or a.name).partition(".")[0] for a in node.names}
        if isinstance(node, ast.ClassDef):
            bound.add(node.name)
        if isinstance(node, ast.FunctionDef) and not text.startswith("@"):
            arguments = frozenset(a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg))
            outer = self.local if indent > 4 * self.model else frozenset()
            made = replace(made, local=outer | arguments, forward=made.forward or (self.model and node.name == "forward"))
            bound = {node.name}
        return replace(made, file=made.file | bound) if not indent else replace(made, local=made.local | bound)


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
