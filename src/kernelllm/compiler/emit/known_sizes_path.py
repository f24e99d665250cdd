"""The fast path of a file for the problem's own sizes: a second method, and the test that selects it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kernelllm.compiler.capture.captured import SizeExpression
from kernelllm.compiler.emit import fused_convolutions, joined_launches
from kernelllm.compiler.emit.constructors import state_paths
from kernelllm.compiler.emit.constructors.constructor_checks import literal, parameters
from kernelllm.compiler.emit.graph_code import GraphCode, merged_dels
from kernelllm.compiler.emit.guards import Guards
from kernelllm.compiler.emit.host_steps import in_layout
from kernelllm.compiler.emit.kernels.readable_names import fresh_name
from kernelllm.core.errors import CaptureError

if TYPE_CHECKING:
    from kernelllm.compiler.emit.main_graph import MainGraph
    from kernelllm.compiler.inductor.lower import Lowered


BACKENDS = "[SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]"
"""cuDNN's attention where it can do it, which takes half of flash attention's time on a Hopper GPU."""


_SIZES = re.compile(r"torch\.empty\(\(([\d, ]*\d),?\), ")
"""Sizes that torch is quicker to read as arguments of their own: 2 us for 3 on an H100's host."""


class KnownSizesPath(GraphCode):
    """The statements of the path, and how forward gets there."""

    def __init__(self, file: MainGraph, lowered: Lowered) -> None:
        super().__init__(lowered)
        self.file = file
        file.top |= {p.name for p in self.definitions}
        members = {word for s in self.captured.graph_inputs for word in s.name.split(".")}
        self.method, self.flag = fresh_name("forward_at_known_sizes", members), fresh_name("has_known_sizes", members)
        self.setting = ""
        """The statement of the constructor that says whether the parameters have the known sizes; empty where they always have."""

    def write(self) -> None:
        """The kernels and statements, once those of the general path have their names."""
        file = self.file
        self.name(file.top | {"grid"} | file.arguments, file.input_paths(self.captured))
        used = [v for v, _ in self.tensor_inputs()]
        self.guards = Guards(self.captured, self.host, file.kept.forward.args, used, self.local, self.dtypes)
        self.guards.share(file.guards)
        self.kernels.write(file.top, self.local)
        self.kernels.take_over(file.kernels)
        if self.options.mixed:
            fused_convolutions.join(self, file.top)
            joined_launches.join(self, file.top)
        steps = self.steps()
        texts = [self.host.text(e) for e in self.program.result]
        values = [getattr(node, "meta", {}).get("val") for node in self.captured.graph.graph.output_node().args[0]]
        lines, texts = self.guards.results(list(zip(texts, values, strict=True)))
        returned = [*lines, "return " + self.captured.output.format(*texts)]
        read = [(v, p) for v, p in self.tensor_inputs() if v not in self._written()]
        contiguous = [line for v, p in read for line in in_layout(p, self.program.tensors[v], self.host.tuple)]
        self.conditions = self._conditions()
        names = ["self", *self.captured.forward_arguments]
        body = [*self.guards.state(), *self.numbers(), *contiguous, *merged_dels([*steps, *returned])]
        self.methods += [
            f"def {self.method}({', '.join(names)}):",
            '    """What forward computes at the sizes that this file was written for."""',
            *("    " + line for line in [*file.unpacked(body), *body]), "",
        ]
        states = [(self.host.paths[s.variable], s.name) for s in self.captured.graph_inputs if s.kind in ("parameter", "buffer")]
        self.methods = state_paths.looked_up([_SIZES.sub(r"torch.empty(\1, ", line) for line in self.methods], states)

    def _written(self) -> set[str]:
        """The inputs that the path writes into."""
        return {s.variable for s in self.captured.graph_inputs if s.mutated and s.kind == "input"}

    def _conditions(self) -> list[str]:
        """What must hold for the path to be taken. Raises CaptureError where that cannot be told."""
        file, found = self.file, []
        constructor = file.constructor()
        refused = set(file.guards.fixed_arguments(constructor)) if constructor else set()
        if constructor and not file.held():
            differing = [c for c in self.guards.fixed_arguments(constructor) if c not in refused]
            known = {re.sub(r"^(len|sorted)\(", "", c).partition(" ")[0].rstrip(")").partition("[")[0].partition(".")[0]
                     for c in (*differing, *refused)}  # fmt: skip
            if not parameters(constructor) - {constructor.args.args[0].arg} <= known:
                raise CaptureError("Not all sizes that the constructor's arguments set are known.", where="emit")
            if differing:
                equal = [c.replace(" is not ", " is ", 1) if " is not " in c else c.replace(" != ", " == ", 1) for c in differing]
                self.setting = f"self.{self.flag} = {' and '.join(equal)}"
                found.append(f"self.{self.flag}")
        for given in self.guards.inputs:
            path = self.host.paths[given.variable]
            shape = self.host.tuple(self.program.tensors[given.variable].shape)
            found.append(f"{path}.shape == {shape} and {path}.dtype == torch.{given.dtype}")
            if given.dtype.startswith(("float", "bfloat")):
                found[-1] += f" and not {path}.is_neg()"
            if given.variable in self._written():  # where they lie is where they are written
                found[-1] += f" and {path}.stride() == {self.host.tuple(self.program.tensors[given.variable].stride)}"
        found += self._counted()
        symbolic = {n for n, v in file.captured.plain_inputs.items() if isinstance(v, SizeExpression)}
        for name in symbolic:
            text = literal(self.captured.plain_inputs.get(name))
            if text is None:
                raise CaptureError(f"The value of {name} is not known.", where="emit")
            found.append(f"{name} == {text}")
        return found

    def _counted(self) -> list[str]:
        """What is asked of state of which the constructor counts the elements: nothing else says how many there are."""
        given = self.file.captured.graph_inputs
        counted = {g.name for g in given if g.kind != "input" and any(re.search(r"\bu\d", n) for n in g.shape)}
        own = [s for s in self.captured.graph_inputs if s.name in counted and s.variable in self.program.tensors]
        return [f"{self.host.paths[s.variable]}.shape == {self.host.tuple(self.program.tensors[s.variable].shape)}" for s in own]

    def entry(self) -> list[str]:
        """The statements of forward that take the path."""
        call = [f"    return self.{self.method}({', '.join(self.captured.forward_arguments)})"]
        if self.options.attention == "cudnn" and any("scaled_dot_product_attention(" in line for line in self.methods):
            call = [f"    with sdpa_kernel({BACKENDS}, set_priority=True):", "    " + call[0]]
        if len(self.conditions) > 1 and sum(map(len, self.conditions)) > 90:
            name = fresh_name("known", set(self.captured.forward_arguments))
            return [f"{name} = (", *(f"    {'and ' if i else ''}{c}" for i, c in enumerate(self.conditions)), ")", f"if {name}:", *call]
        return [f"if {' and '.join(self.conditions)}:", *call] if self.conditions else []
