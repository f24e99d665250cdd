"""Which steps of a forward may change places: what each reads and writes, down to the part of a buffer."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeGuard

from kernelllm.compiler.emit.ast_tools import name_of, names
from kernelllm.compiler.emit.host_steps import HostProgram
from kernelllm.compiler.inductor.wrapper_lines import Allocate, Assign, Free, HostStep, Launch


@dataclass(frozen=True)
class Access:
    """A part of a buffer that a step reads or writes."""

    base: str
    writes: bool
    shape: tuple[int, ...] | None = None
    """None for all of the buffer, or a part that is not known."""
    stride: tuple[int, ...] = ()
    offset: int = 0

    def meets(self, other: Access) -> bool:
        """Whether both may reach one element, and one of them writes."""
        return self.base == other.base and (self.writes or other.writes) and not self._apart(other)

    def _apart(self, other: Access) -> bool:
        """Whether no element is in both, as their places within some period show."""
        if self.shape is None or other.shape is None:
            return False
        periods = {abs(s) for s in (*self.stride, *other.stride) if s > 0} | {2**62}
        for period in periods:
            spans = [one._span(period) for one in (self, other)]
            if None not in spans and (spans[0][1] < spans[1][0] or spans[1][1] < spans[0][0]):  # type: ignore[index]
                return True
        return False

    def _span(self, period: int) -> tuple[int, int] | None:
        """The first and last place within a period."""
        assert self.shape is not None
        steps = [(n, s) for n, s in zip(self.shape, self.stride, strict=True) if n > 1]
        if any(s < 0 or (s >= period and s % period) for _, s in steps):
            return None
        first = self.offset % period
        last = first + sum((n - 1) * s for n, s in steps if s < period)
        return (first, last) if last < period else None


class Order:
    """The steps of a path, which may be moved."""

    def __init__(self, program: HostProgram) -> None:
        self.program, self.items = program, list(program.items)
        self.views: dict[str, ast.Call] = {}
        for item in self.items:
            if isinstance(item, Assign) and _is_view(item.value):
                self.views[item.target] = item.value  # type: ignore[assignment]
        self._known: dict[int, list[Access]] = {}
        self._gone: list[Launch] = []
        """Steps that are no more: nothing else may have their identity."""

    def conflict(self, one: HostStep, other: HostStep) -> bool:
        """Whether the order of two steps matters."""
        return any(a.meets(b) for a in self.accesses(one) for b in self.accesses(other))

    def together(self, members: list[Launch], new: Launch, *, later: bool) -> bool:
        """Whether launches can all be where the last is, or where the first is. ``members``: launches that can be so without ``new``."""
        at = {id(item): i for i, item in enumerate(self.items)}
        first, last, end = at[id(members[0])], at[id(members[-1])], at[id(new)]
        own = {id(m) for m in (*members, new)}
        between = [i for i in self.items[(last if later else first) + 1 : end] if id(i) not in own]
        moved: list[Launch] = members if later else [new]
        for item in between:
            if isinstance(item, Free) or _makes_place(item):
                continue  # allocations and views go ahead of the launch
            if any(self.conflict(m, item) for m in moved):
                return False
        return True

    def replace(self, members: list[Launch], launch: Launch, *, later: bool) -> None:
        """One launch in the place of several."""
        own = {id(m) for m in members}
        places = [i for i, item in enumerate(self.items) if id(item) in own]
        bases = {a.base for m in members for a in self.accesses(m)}
        used = {n for m in members for v in m.arguments.values() for n in names(v)}
        while more := {n for name in used & self.views.keys() for n in names(self.views[name])} - used:
            used |= more
        kept: list[HostStep] = []
        early: list[HostStep] = []
        freed: list[str] = []
        for item in self.items[places[0] : places[-1] + 1]:
            if id(item) in own:
                continue
            if isinstance(item, Free) and later:
                gone = [t for t in item.targets if self._root(t) in bases or t in used]
                freed += gone
                left = [t for t in item.targets if t not in gone]
                kept += [Free(left)] if left else []
            elif not later and _makes_place(item) and ((name := item.target) in used or self._root(name) in bases):
                early.append(item)
            else:
                kept.append(item)
        middle = [*kept, launch, *([Free(freed)] if freed else [])] if later else [*early, launch, *kept]
        self.items = [*self.items[: places[0]], *middle, *self.items[places[-1] + 1 :]]
        self._known[id(launch)] = [a for m in members for a in self.accesses(m)]
        self._gone += members

    def accesses(self, item: HostStep) -> list[Access]:
        """What a step reads and writes."""
        if id(item) not in self._known:
            self._known[id(item)] = list(self._accesses(item))
        return self._known[id(item)]

    def _accesses(self, item: HostStep) -> Iterator[Access]:
        if isinstance(item, Launch):
            for parameter, value in item.arguments.items():
                if "_ptr" in parameter:
                    writes = not parameter.startswith("in_ptr")
                    yield self._access(value, writes=writes)
        elif isinstance(item, Allocate):
            yield Access(self._root(item.target), writes=True)
        elif isinstance(item, Assign) and not _is_view(item.value):
            called = ast.unparse(item.value.func) if isinstance(item.value, ast.Call) else ""
            changes = not item.target or called.removesuffix(".default").endswith("_") or "out" in {
                k.arg for k in getattr(item.value, "keywords", [])
            }  # fmt: skip
            for name in names(item.value):
                yield Access(self._root(name), writes=changes)
            if item.target:
                yield Access(self._root(item.target), writes=True)

    def _root(self, name: str) -> str:
        """The buffer that a name is, or is a view of."""
        name = self.program.base(name)
        while name in self.views:
            name = self.program.base(self._inner(self.views[name]))
        return name

    @staticmethod
    def _inner(view: ast.Call) -> str:
        found: Any = view.args[0]
        while not isinstance(found, ast.Name):
            found = found.args[0]
        return found.id

    def _access(self, value: ast.expr, *, writes: bool) -> Access:
        view = self.views.get(self.program.base(value.id)) if isinstance(value, ast.Name) else value
        if isinstance(view, ast.Call) and isinstance(view.args[0], ast.Name) and self.program.base(view.args[0].id) not in self.views:
            base = self._root(view.args[0].id)
            try:
                shape, stride = (ast.literal_eval(a) for a in view.args[1:3])
                offset = ast.literal_eval(view.args[3]) if len(view.args) > 3 else 0
            except ValueError:
                return Access(base, writes)
            return Access(base, writes, tuple(shape), tuple(stride), offset)
        roots = [self._root(n) for n in names(value) if n != "reinterpret_tensor"]
        return Access(roots[0] if roots else "", writes)


def _makes_place(item: HostStep) -> TypeGuard[Allocate | Assign]:
    return isinstance(item, Allocate) or (isinstance(item, Assign) and _is_view(item.value))


def _is_view(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and name_of(value.func) == "reinterpret_tensor"


__all__ = ["Access", "Order"]
