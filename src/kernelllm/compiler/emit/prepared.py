"""Weight prepacking: tensors computed from parameters alone are computed once, and again after a parameter changes."""

from __future__ import annotations

import ast
from collections.abc import Collection

from kernelllm.compiler.emit.ast_tools import name_of, names
from kernelllm.compiler.emit.host_steps import HostProgram
from kernelllm.compiler.inductor.wrapper_lines import Allocate, Assign, Free, HostStep, Launch

STATE = '''
def state_of(tensors):
    """Where tensors lie and how often they were written: as long as it stays, so does what was made of them."""
    return [(t.data_ptr(), object() if t.is_inference() else t._version) for t in tensors]
'''

STATE_BELOW = '''
def state_below(layer):
    """Where the parameters and buffers of a layer lie and how often they were written: as long as it stays, so does what was made of
    them. Layer by layer: to look each up by its path takes three times as long.
    """
    tensors = [t for t in (*layer._parameters.values(), *layer._buffers.values()) if t is not None]
    found = [(t.data_ptr(), object() if t.is_inference() else t._version) for t in tensors]
    for part in layer._modules.values():
        found += state_below(part)
    return found
'''
STATES = {"state_of": STATE, "state_below": STATE_BELOW}
"""Their functions, by name."""
MANY = 12
"""From so many tensors on their layers are gone through."""

_QUANTISED = ("torch.int8", "torch.uint8", "torch.float8_e4m3fn", "torch.float8_e5m2")
"""Types whose values are kept as they are: a weight that was made small is not held in full beside them."""


class Prepared:
    """The launches of a program that read parameters alone, with the buffers that they fill."""

    def __init__(self, program: HostProgram, parameters: Collection[str]) -> None:
        """``parameters``: variables of the module's parameters."""
        self.program = program
        parameters = {p for p in parameters if program.tensors[p].dtype not in _QUANTISED}
        self.sources: dict[str, None] = {}
        """Parameters that they read, in order."""
        self.buffers: dict[str, None] = {}
        """Buffers that they fill, in order."""
        self.steps: set[int] = set()
        self._parts = {i.target: whole for i in program.items if isinstance(i, Assign) and (whole := _whole(i)) is not None}
        """Parts of buffers, to what they are parts of."""
        written: dict[str, list[Launch]] = {}
        launches = [i for i in program.items if isinstance(i, Launch)]
        for launch in launches:
            for name in self._writes(launch):
                written.setdefault(name, []).append(launch)
        made = {i.target for i in program.items if isinstance(i, Allocate)}
        made -= {self._base(name) for e in program.result for name in names(e)}  # the caller may write there
        for launch in launches:
            writes = self._writes(launch)
            reads = self._reads(launch) - self._untouched(launch, made)
            known = all(r in parameters or r in self.buffers for r in reads) and reads
            if known and all(w in made and (written[w] == [launch] or self._put_together(written[w], parameters)) for w in writes):
                self.steps.add(id(launch))
                self.sources.update(dict.fromkeys(r for r in reads if r in parameters))
                self.buffers.update(dict.fromkeys(writes))
        self.steps |= {id(i) for i in program.items if isinstance(i, Allocate) and i.target in self.buffers}
        self._single = {buffer for buffer in self.buffers if len(written[buffer]) == 1}
        parts = [i for i in program.items if isinstance(i, Assign) and self._base(i.target) in self.buffers]
        own = {name for i in launches if id(i) in self.steps for v in i.arguments.values() for name in names(v)}
        self.steps |= {id(i) for i in parts if i.target in own}
        others = [i for i in program.items if id(i) not in self.steps and not isinstance(i, Free)]
        read = {name for i in others for v in _values(i) for name in names(v)} | {name for e in program.result for name in names(e)}
        self._shared = {id(i) for i in parts if i.target in read}
        """Parts of prepared buffers that forward names as well."""

    def _untouched(self, launch: Launch, made: Collection[str]) -> set[str]:
        """Buffers of the graph's own that hold nothing ahead of a launch: it reads there what it has stored itself."""
        own = self._reads(launch) & self._writes(launch) & set(made)
        before: set[str] = set()
        for item in self.program.items if own else ():
            if item is launch:
                break
            if isinstance(item, Launch) or (isinstance(item, Assign) and isinstance(item.value, ast.Call) and _whole(item) is None):
                before |= {self._base(name) for value in _values(item) for name in names(value)}
        return own - before

    def _put_together(self, launches: list[Launch], parameters: Collection[str]) -> bool:
        """Whether a buffer's parts are all made of parameters."""
        return all(self._reads(launch) and self._reads(launch) <= set(parameters) for launch in launches)

    def _base(self, name: str) -> str:
        """The buffer that a name stands for, or is a part of."""
        name = self.program.base(name)
        while name in self._parts:
            name = self.program.base(self._parts[name])
        return name

    def copies(self) -> dict[str, str]:
        """Buffers that are one parameter in another form, with that parameter."""
        launches = [i for i in self.program.items if id(i) in self.steps and isinstance(i, Launch)]
        pairs = [(self._writes(launch), self._reads(launch) & self.sources.keys()) for launch in launches]
        return {next(iter(w)): next(iter(r)) for w, r in pairs if len(w) == len(r) == 1 and w <= self._single}

    def wanted(self) -> list[str]:
        """The buffers that other steps read."""
        used: set[str] = set()
        for step in self.program.items:
            if (id(step) not in self.steps or id(step) in self._shared) and not isinstance(step, Free):
                used |= {self._base(name) for value in _values(step) for name in names(value)}
        used |= {self._base(name) for e in self.program.result for name in names(e)}
        return [b for b in self.buffers if b in used]

    def split(self, step: HostStep) -> HostStep | None:
        """A step of forward without what is prepared; None where nothing of it is left."""
        if isinstance(step, Free):
            left = [t for t in step.targets if self._base(t) not in self.buffers]
            return Free(left) if left else None
        return None if id(step) in self.steps and id(step) not in self._shared else step

    def _reads(self, launch: Launch) -> set[str]:
        return {n for p, v in launch.arguments.items() if p.startswith("in_") for n in self._names(v)}

    def _writes(self, launch: Launch) -> set[str]:
        return {n for p, v in launch.arguments.items() if p.startswith(("out_ptr", "in_out_ptr")) for n in self._names(v)}

    def _names(self, value: ast.expr) -> list[str]:
        return [self._base(name) for name in names(value) if name != "reinterpret_tensor"]


def _values(step: HostStep) -> list[ast.expr]:
    """What a step reads or writes."""
    values = list(step.arguments.values()) if isinstance(step, Launch) else [getattr(step, "value", None)]
    return [value for value in values if value is not None]


def _whole(step: Assign) -> str | None:
    """The buffer of which the step names a part."""
    call = step.value
    if isinstance(call, ast.Call) and name_of(call.func) == "reinterpret_tensor" and isinstance(call.args[0], ast.Name):
        return call.args[0].id
    return None


def method(name: str, kept: str, sources: list[str], lines: list[str], results: list[str], *, below: bool) -> list[str]:
    """The method ``name``, without indentation. ``kept``: the attribute that holds what was made. ``below``: forward writes no state."""
    one = len(results) == 1
    tensors = f"sources = ({', '.join(sources)}{',' if len(sources) == 1 else ''})"
    whole = below and len(sources) >= MANY
    return [
        f"def {name}(self):",
        '    """What follows from the parameters alone, made anew where one is replaced or written; p.data.mul_(2) is not seen."""',
        *(["    state = state_below(self)"] if whole else [f"    {tensors}", "    state = state_of(sources)"]),
        f"    if self.{kept}[0] != state:",
        *([f"        {tensors}"] if whole else []),
        *("        " + line for line in lines),
        "        held = [source.detach() for source in sources]  # so that no other tensor comes to lie there",
        f"        self.{kept} = state, held, ({', '.join(results)}{',' if one else ''})",
        f"    return self.{kept}[2]",
    ]
