"""The graph of forward; it also provides what the other graphs of a file share: inputs, the constructor, guards."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from kernelllm.compiler.emit import launcher, prepared
from kernelllm.compiler.emit.constructors import foreign_constructors, kept_members, state_paths
from kernelllm.compiler.emit.graph_code import GraphCode, attribute
from kernelllm.compiler.emit.guards import Guards
from kernelllm.compiler.emit.helpers import HELPERS
from kernelllm.compiler.emit.kernels.readable_names import fresh_name
from kernelllm.core.types import Problem
from kernelllm.problems.sizes import DTYPES

if TYPE_CHECKING:
    from kernelllm.compiler.capture.captured import Captured
    from kernelllm.compiler.inductor.lower import Lowered


class MainGraph(GraphCode):
    """The graph of forward, with what the other graphs of the file must know: names, arguments, the class that is kept."""

    def __init__(self, problem: Problem, lowered: Lowered) -> None:
        super().__init__(lowered)
        self.problem = problem
        self.kept = foreign_constructors.kept_parts(problem, self.captured)
        ours = {*prepared.STATES, state_paths.NAME, launcher.STRAIGHT, launcher.NAME, launcher.ALIKE, DTYPES}
        self.top: set[str] = set(self.kept.names) | set(HELPERS) | ours | {p.name for p in self.definitions}
        """Names taken in the file."""
        arguments = self.kept.forward.args
        self.arguments = {a.arg for a in [*arguments.posonlyargs, *arguments.args][1:] + arguments.kwonlyargs}
        self.members: dict[str, str] = {}
        """Tensors in containers, such as ``past[0]``, to the names that forward gives them."""
        paths = self.input_paths(self.captured)
        self.name(self.top | {"grid"} | self.arguments, paths)
        self.guards = Guards(self.captured, self.host, arguments, [v for v, _ in self.tensor_inputs()], self.local, self.dtypes)
        self.guards.silent = self.options.short
        settings = kept_members.KeptSettings(self.captured, problem.source, self.constructor(), [] if self.held() else self.kept.names)
        if settings.kinds and self.constructor() and not self.options.short:
            self.guards.settings = settings
        self.top |= set(self.guards.names.values())

    def input_paths(self, captured: Captured) -> dict[str, str]:
        """How the file reaches the arguments of a graph, by variable."""
        paths = {}
        for given in captured.graph_inputs:
            if given.kind == "input":
                paths[given.variable] = given.name if given.name.isidentifier() else self._member(given.name)
            elif given.kind != "size":
                paths[given.variable] = attribute(given.name)
        return paths

    def _member(self, name: str) -> str:
        if name not in self.members:
            self.members[name] = fresh_name(name, self.arguments | self.top)
            self.arguments.add(self.members[name])
        return self.members[name]

    def unpacked(self, lines: list[str]) -> list[str]:
        """Statements that name the tensors in containers which these statements read."""
        text = "\n".join(lines)
        groups: dict[str, list[tuple[str, str]]] = {}
        for name, local in self.members.items():
            if re.search(rf"\b{local}\b", text):
                groups.setdefault(re.split(r"\W", name)[0], []).append((local, name))
        return [f"{', '.join(local for local, _ in some)} = {', '.join(name for _, name in some)}" for some in groups.values()]

    def constructor(self) -> ast.FunctionDef | None:
        return next((s for s in self.kept.model.body if isinstance(s, ast.FunctionDef) and s.name == "__init__"), None)

    def held(self) -> bool:
        """Whether parameters sit in holders. Such a constructor checks its arguments itself."""
        return any(ast.unparse(base) == "Holder" for base in self.kept.model.bases)
