"""Loops that fill a tensor and read what the step before wrote: ``out[:, t] = a * out[:, t - 1] + x[:, t]``.

The slice that was written last gets a name of its own. All slices go into a list, which is stacked behind the loop.
"""

from __future__ import annotations

import ast
import re
from typing import Any

from kernelllm.compiler.emit.ast_tools import names, stored
from kernelllm.compiler.loops.before_after import free_name
from kernelllm.compiler.loops.reversed_loops import indexed_dimension, is_call
from kernelllm.core.text import syntax_tree

Statements = list[ast.stmt]
_MADE = re.compile(r"torch\.(empty|zeros|ones|full)(_like)?\b|\w+\.new_(empty|zeros|ones|full)\b")


def with_states_of_filled(before: Statements, loop: Any, after: Statements) -> tuple[Statements, Statements]:
    """The statements before and behind a loop ``for t in range(1, n)`` in that form, or ``for t in range(n)`` that writes at ``t + 1``;
    changes the loop's body. As they are where that cannot be."""
    counter = loop.target.id if isinstance(loop.target, ast.Name) else ""
    over = loop.iter.args if is_call(loop.iter, "range") else []
    ahead = int(len(over) == 1)
    if not counter or not over or (not ahead and ast.unparse(over[0]) != "1"):
        return before, after
    stops = [f"{ast.unparse(over[-1])} + 1", f"1 + {ast.unparse(over[-1])}"] if ahead else [ast.unparse(over[-1])]
    taken = {n for s in (*before, loop, *after) for n in names(s)}
    for at, statement in enumerate(loop.body):
        target: Any = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
        place = indexed_dimension(target, counter) if isinstance(target, ast.Subscript) else None
        if place is None or place[2] != ahead or not _plain(target) or not _covers(before, *place[:2], stops):
            continue
        out, dim, _ = place
        first = _first(before, out, dim)
        reads = _Reads(counter, (out, dim, ahead - 1), state := free_name(f"{out}_last", taken))
        others = [reads.visit(s) for s in syntax_tree("\n".join(ast.unparse(s) for s in loop.body if s is not statement)).body]
        value = reads.visit(syntax_tree(ast.unparse(statement.value), mode="eval").body)
        # A read behind the write would get this step's value.
        behind = any(isinstance(n, ast.Name) and n.id == state for s in others[at:] for n in ast.walk(s))
        if first is None or not reads.found or not reads.fits or behind:
            continue
        steps = free_name(f"{out}_all", taken)
        new = syntax_tree(f"{state} = ({ast.unparse(value)}).to({state}.dtype).expand_as({state})\n{steps}.append({state})").body
        loop.body = [*others[:at], *new, *others[at:]]
        place_of_first, made = first
        begun = syntax_tree(f"{state} = {made}\n{steps} = [{state}]").body
        rest = before[place_of_first + 1 :]
        return [*before[:place_of_first], *begun, *rest], [*syntax_tree(f"{out} = torch.stack({steps}, dim={dim})").body, *after]
    return before, after


def _plain(target: ast.Subscript) -> bool:
    """Whether all else than the counter is taken whole."""
    items = getattr(target.slice, "elts", [target.slice])
    return sum(ast.unparse(item) not in (":", "...") for item in items) == 1


def _covers(before: Statements, out: str, dim: int, stops: list[str]) -> bool:
    """Whether the tensor has as many elements as one of ``stops`` says along the dimension, as far as its one definition says."""
    made = [s for s in before if out in stored(s)]
    if len(made) != 1 or not isinstance(made[0], ast.Assign) or not isinstance(made[0].value, ast.Call):
        return False
    call = made[0].value
    if not _MADE.match(ast.unparse(call.func)) or not call.args:
        return False
    if ast.unparse(call.func).endswith("_like"):
        source = ast.unparse(call.args[0])
        sizes = [s for s in before if isinstance(s, ast.Assign) and ast.unparse(s.value) in (f"{source}.shape", f"{source}.size()")]
        unpacked = [ast.unparse(t.elts[dim]) for s in sizes for t in s.targets if isinstance(t, ast.Tuple) and len(t.elts) > dim]
        return not {f"{source}.shape[{dim}]", f"{source}.size({dim})", *unpacked}.isdisjoint(stops)
    items = call.args[0].elts if isinstance(call.args[0], ast.Tuple | ast.List) else call.args
    return len(items) > dim and ast.unparse(items[dim]) in stops


def _first(before: Statements, out: str, dim: int) -> tuple[int, str] | None:
    """Where the first element is written, and what as text; behind all statements where it stays zero. None where it is not known."""
    row = f"{out}[{':, ' * dim}0]"
    writes = [i for i, s in enumerate(before) if isinstance(s, ast.Assign) and ast.unparse(s.targets[0]) == row]
    uses = [s for i, s in enumerate(before) if out in names(s) and i not in writes and out not in stored(s)]
    if uses or len(writes) > 1:
        return None
    if not writes:
        made = next(ast.unparse(s.value) for s in before if isinstance(s, ast.Assign) and out in stored(s))
        return (len(before), f"torch.zeros_like({row})") if "zeros" in made.partition("(")[0] else None
    value: Any = before[writes[0]].value  # type: ignore[attr-defined]
    if isinstance(value, ast.Constant):
        return writes[0], f"torch.full_like({row}, {ast.unparse(value)})"
    return writes[0], f"({ast.unparse(value)}).to({out}.dtype).expand_as({row})"


class _Reads(ast.NodeTransformer):
    """The element of the step before by its name."""

    def __init__(self, counter: str, place: tuple[str, int, int], state: str) -> None:
        self.counter, self.place, self.state = counter, place, state
        self.found, self.fits = False, True

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and indexed_dimension(node, self.counter) == self.place and _plain(node):
            self.found = True
            return ast.Name(self.state, ast.Load())
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        self.fits &= node.id != self.place[0]
        return node


__all__ = ["with_states_of_filled"]
