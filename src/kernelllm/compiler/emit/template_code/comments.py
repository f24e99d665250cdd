"""Comments of copied functions are kept with their statements (a syntax tree loses them); docstrings lose parts that no longer apply."""

from __future__ import annotations

import ast
import io
import re
import tokenize

from kernelllm.core.text import syntax_tree


def with_comments(text: str) -> ast.stmt:
    """The one definition in ``text``; statements have their comments in ``comments``."""
    node = syntax_tree(text).body[0]
    statements = sorted((s for s in ast.walk(node) if isinstance(s, ast.stmt) and s is not node), key=lambda s: (s.lineno, s.col_offset))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        own = token.line[: token.start[1]].strip() == ""
        after = [s for s in statements if s.lineno >= line]
        inside = [s for s in statements if s.lineno <= line <= (s.end_lineno or s.lineno)]
        owners = after[:1] if own and not any(_simple(s) for s in inside) else inside[-1:]
        for owner in owners if not token.string.startswith(("# fmt", "# noqa", "# type")) else []:
            owner.comments = [*getattr(owner, "comments", []), token.string]  # type: ignore[attr-defined]
    return node


def _simple(statement: ast.stmt) -> bool:
    return not hasattr(statement, "body")


def shorter_docstring(function: ast.FunctionDef, gone: set[str]) -> None:
    """The docstring without the sentences that speak of arguments which are no more."""
    text = ast.get_docstring(function, clean=True)
    if not text or not gone:
        return
    paragraphs: list[str] = []
    for paragraph in text.split("\n\n"):
        parts = re.split(r"(?<=[.;])\s+(?=\S)", " ".join(paragraph.split()))
        spoken = [any(re.search(rf"\b{re.escape(g)}\b", p) for g in gone) for p in parts]
        kept = [p for i, p in enumerate(parts) if (i == 0 and not paragraphs) or not spoken[i]]
        if kept:
            joined = " ".join(kept).rstrip(";. ")
            paragraphs.append(f"{joined}.")
    function.body[0] = ast.Expr(ast.Constant("\n\n".join(paragraphs)))
