"""Comments of copied functions, which a syntax tree loses: each is kept with the statement that it stands at."""

from __future__ import annotations

import ast
import io
import tokenize


def with_comments(text: str) -> ast.stmt:
    """The one definition in ``text``; statements have their comments in ``comments``."""
    node = ast.parse(text).body[0]
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
