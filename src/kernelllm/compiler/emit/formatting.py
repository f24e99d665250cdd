"""Syntax trees as text that looks written by hand: long lines broken, blank lines between parts."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Sequence

from kernelllm.core.text import syntax_tree

WIDTH = 110
_METHOD = 20
"""Characters of a method's arguments up to which a line is broken ahead of them."""


def text(body: list[ast.stmt], indent: int = 0) -> str:
    """Statements as text, lines of at most WIDTH characters where a break can be found."""
    lines: list[str] = []
    for statement in body:
        lines.extend(_statement(statement, indent))
    return "\n".join(lines)


def replaced(source: str, changed: Sequence[tuple[tuple[int, int], ast.stmt | None, int]]) -> str:
    """The file with other definitions at these lines, each with its indentation; None: without those that stand there."""
    lines = source.splitlines()
    for (first, last), node, indent in sorted(changed, key=lambda each: -each[0][0]):
        while node is None and last < len(lines) and not lines[last].strip():
            last += 1
        lines[first - 1 : last] = text([node], indent).splitlines() if node else []
    return "\n".join(lines) + "\n"


def _statement(node: ast.stmt, indent: int) -> list[str]:
    pad = " " * indent
    ast.fix_missing_locations(node)
    comments = [line for c in getattr(node, "comments", []) for line in _comment(c, indent)]
    return [*comments, *_plain_statement(node, indent, pad)]


def _comment(text: str, indent: int) -> list[str]:
    """A comment, broken where it is too long."""
    return textwrap.wrap(text, WIDTH, initial_indent=" " * indent, subsequent_indent=" " * indent + "# ")


def _plain_statement(node: ast.stmt, indent: int, pad: str) -> list[str]:
    if isinstance(node, ast.FunctionDef):
        return _function(node, indent)
    if isinstance(node, ast.ClassDef):
        return _class(node, indent)
    if isinstance(node, ast.For | ast.While | ast.If | ast.With):
        return _compound(node, indent)
    source = quoted(_unparsed(node))
    if len(source) + indent <= WIDTH or "\n" in source:
        return [pad + line for line in source.split("\n")]
    if isinstance(node, ast.Assign) and len(node.targets) > 1:
        return [pad + line for line in _chained(source, WIDTH - indent)]
    return [pad + line for line in broken(source, WIDTH - indent)]


def _chained(source: str, width: int) -> list[str]:
    """``a = b = value``, which no parentheses can hold; as one line where a string may have the spaces."""
    if '"' in source or "'" in source:
        return [source]
    first, *rest = textwrap.wrap(source, width - 6, break_long_words=False, break_on_hyphens=False)
    lines = [first, *(f"    {line}" for line in rest)]
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]


def _unparsed(node: ast.stmt) -> str:
    """A simple statement: tuples without parentheses where they need none, the grid of a launch with them."""
    grids: dict[str, str] = {}
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Subscript) and isinstance(part.func.slice, ast.Tuple):
            name = f"__grid_{len(grids)}__"
            grids[name] = ast.unparse(ast.Tuple(part.func.slice.elts, ast.Load()))
            part.func.slice = ast.Name(name, ast.Load())
    value = getattr(node, "value", None)
    if isinstance(node, ast.Assign | ast.Return) and isinstance(value, ast.Tuple) and len(value.elts) > 1:
        head = "return " if isinstance(node, ast.Return) else "".join(f"{_bare(t)} = " for t in node.targets)
        text = head + _bare(value)
    else:
        text = ast.unparse(node)
    for name, grid in grids.items():
        text = text.replace(f"[{name}]", f"[{grid}]")
    return re.sub(r"(?<![\w.])(2147483647|4294967295|2143289344|9223372036854775807)(?![\w.])", lambda m: f"0x{int(m[0]):X}", text)


def _bare(node: ast.expr) -> str:
    """An expression, without parentheses where it is a tuple."""
    if isinstance(node, ast.Tuple) and len(node.elts) > 1:
        return ", ".join(map(ast.unparse, node.elts))
    return ast.unparse(node)


def quoted(source: str) -> str:
    """Simple strings in double quotes; what is inside of such quotes stays."""
    return re.sub(r"""(?s)"(?:[^"\\]|\\.)*"|'([^'"\\]*)'""", lambda m: m[0] if m[0][0] == '"' else f'"{m[1]}"', source)


def _compound(node: ast.For | ast.While | ast.If | ast.With, indent: int) -> list[str]:
    shell = syntax_tree(ast.unparse(node)).body[0]
    shell.body = [ast.Pass()]  # type: ignore[attr-defined]
    if hasattr(shell, "orelse"):
        shell.orelse = []
    head = ast.unparse(ast.fix_missing_locations(shell)).rsplit("\n", 1)[0]
    lines = [" " * indent + line for line in broken(head, WIDTH - indent)]
    for child in node.body:
        lines.extend(_statement(child, indent + 4))
    rest = getattr(node, "orelse", None)
    if isinstance(node, ast.If) and rest and len(rest) == 1 and isinstance(rest[0], ast.If) and not getattr(rest[0], "comments", None):
        chained = _compound(rest[0], indent)
        return [*lines, " " * indent + "el" + chained[0].lstrip(), *chained[1:]]
    if rest:
        lines.append(" " * indent + "else:")
        for child in rest:
            lines.extend(_statement(child, indent + 4))
    return lines


def _function(node: ast.FunctionDef, indent: int) -> list[str]:
    pad = " " * indent
    lines = [f"{pad}@{quoted(ast.unparse(d))}" for d in node.decorator_list]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    head = f"def {node.name}({ast.unparse(node.args)}){returns}:"
    lines += [pad + line for line in broken(head, WIDTH - indent)]
    lines += _suite(node.body, indent + 4)
    return lines


def _suite(body: list[ast.stmt], indent: int) -> list[str]:
    lines: list[str] = []
    for i, child in enumerate(body):
        if i == 0 and isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant) and isinstance(child.value.value, str):
            lines.extend(_docstring(child.value.value, indent))
        else:
            lines.extend(_statement(child, indent))
    return lines


def _docstring(value: str, indent: int) -> list[str]:
    import inspect

    pad = " " * indent
    parts = inspect.cleandoc(value).replace("\\", "\\\\").replace('"""', "'''").split("\n")
    if len(parts) > 1 or len(parts[0]) + indent + 6 > WIDTH:
        parts = [line for p in parts for line in (textwrap.wrap(p, WIDTH - indent - 3) or [""])]
    if len(parts) == 1:
        return [f'{pad}"""{parts[0]}"""']
    return [f'{pad}"""{parts[0]}', *[(pad + p).rstrip() for p in parts[1:]], f'{pad}"""']


def _class(node: ast.ClassDef, indent: int) -> list[str]:
    pad = " " * indent
    bases = ", ".join([*(ast.unparse(b) for b in node.bases), *(f"{k.arg}={ast.unparse(k.value)}" for k in node.keywords)])
    lines = [f"{pad}@{ast.unparse(d)}" for d in node.decorator_list]
    lines.append(f"{pad}class {node.name}({bases}):" if bases else f"{pad}class {node.name}:")
    for i, child in enumerate(node.body):
        if i and isinstance(child, ast.FunctionDef):
            lines.append("")
        lines.extend(_suite([child], indent + 4))
    return lines


def broken(line: str, width: int) -> list[str]:
    """One logical line broken at the outermost comma or operator that lets every part fit."""
    if len(line) <= width:
        return [line]
    opened = _outer_bracket(line)
    while opened is not None:
        head = line[: opened[0]]
        called = re.search(r"[)\]](\.\w+)?$", head)  # ``f(...)[0]`` and ``f(...).to(x)`` break in the first parentheses
        if called is None or not (len(head) >= width or opened[1] - opened[0] <= (_METHOD if called[1] else 1)):
            break
        opened = _bracket_ending(line, called.start())
    if opened is not None and opened[0] < width:
        start, end = opened
        inner, tail = line[start + 1 : end], line[end:]
        parts = _split(inner, ",")
        if len(parts) > 1 or len(parts[0]) + 4 <= width or any(len(way(parts[0].strip(), width - 4)) > 1 for way in (broken, _operators)):
            inside = [p.strip() for p in parts if p.strip()]
            if len(inside) == 1 and len(parts) > 1:
                inside[0] += ","  # a tuple of one
            body = _fill(inside, width - 4)
            return [line[: start + 1], *["    " + b for b in body], tail]
    keyword = re.match(r"(if|while|return) (?=.*)", line)
    if keyword and not line.endswith((",", "(")):
        condition, colon = line[keyword.end() :].removesuffix(":"), ":" if line.endswith(":") else ""
        return [f"{keyword[1]} (", *["    " + b for b in _operators(condition, width - 4)], f"){colon}"]
    if " = " in line and not line.startswith(("for ", "def ", "if ")):
        target, value = line.split(" = ", 1)
        return [f"{target} = (", *["    " + b for b in _operators(value, width - 4)], ")"]
    return [line]


def _fill(parts: list[str], width: int) -> list[str]:
    """Comma separated parts on as few lines as hold them; a part too long by itself is broken further."""
    lines: list[str] = []
    room = False
    for i, part in enumerate(parts):
        item = part + ("," if i < len(parts) - 1 else "")
        if len(item) > width:
            deeper = broken(item, width)
            lines.extend(deeper if len(deeper) > 1 else _operators(item, width))
        elif room and len(lines[-1]) + 1 + len(item) <= width:
            lines[-1] += f" {item}"
        else:
            lines.append(item)
        room = len(item) <= width
    return lines


def _operators(line: str, width: int) -> list[str]:
    """Break an expression before its outermost operators."""
    if len(line) <= width:
        return [line]
    for operator in (" or ", " and ", " | ", " & ", " + ", " - ", " * ", " / "):
        parts = _split(line, operator)
        if len(parts) > 1:
            lines = broken(parts[0], width) if _outer_bracket(parts[0]) else parts[:1]
            for item in (f"{operator.strip()} {part}" for part in parts[1:]):
                if len(lines[-1]) + 1 + len(item) > width:
                    lines.extend(broken(item, width) if _outer_bracket(item) else [item])
                else:
                    lines[-1] += f" {item}"
            return lines
    return broken(line, width) if _outer_bracket(line) else [line]


def _split(value: str, separator: str) -> list[str]:
    """Split at a separator outside brackets and strings."""
    plain = _without_strings(value)
    parts, depth, last = [], 0, 0
    for i, char in enumerate(plain):
        depth += (char in "([{") - (char in ")]}")
        if depth == 0 and i > last and plain.startswith(separator, i):
            parts.append(value[last:i])
            last = i + len(separator)
    return [*parts, value[last:]]


def _without_strings(source: str) -> str:
    """A text of the same length in which strings hold no brackets and no separators."""
    return re.sub(r"""(?s)"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""", lambda m: "_" * len(m[0]), source)


def _outer_bracket(line: str) -> tuple[int, int] | None:
    """The last outermost bracket pair that reaches the end of the line (but for ``:`` and ``,``)."""
    end = len(line.rstrip(":,")) - 1
    returns = line.rfind(") -> ")
    if line.startswith("def ") and returns > 0:
        end = returns
    return _bracket_ending(line, end)


def _bracket_ending(line: str, end: int) -> tuple[int, int] | None:
    """The bracket pair whose closing bracket is at ``end``."""
    if end < 0 or line[end] not in ")]}":
        return None
    plain, depth = _without_strings(line), 0
    for i in range(end, -1, -1):
        depth += (plain[i] in ")]}") - (plain[i] in "([{")
        if depth == 0:
            return i, end
    return None
