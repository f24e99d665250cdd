"""Flags work that is left on a side stream, so that a timer on the current stream stops early."""

from __future__ import annotations

import ast

from kernelllm.backends.base import Backend
from kernelllm.core.types import Finding, Severity
from kernelllm.judge.checks.syntax import Source, analyse
from kernelllm.judge.observation import Observation

_NEW = ("torch.cuda.Stream", "torch.cuda.streams.Stream")
_UNSEEN = (
    "torch.cuda.ExternalStream", "torch.cuda.streams.ExternalStream", "torch.cuda.get_stream_from_external", "torch.Stream",
    "torch.accelerator.set_stream", "torch._C._cuda_setStream", "torch._C._cuda_getStreamFromExternal", "torch._C.Stream",
    "torch._C._CudaStreamBase",
)  # fmt: skip
"""Streams that the clock of a run does not wait for."""
_OUTER = ("torch.cuda.current_stream", "torch.cuda.default_stream", "torch.cuda.synchronize")
_JOINS = {"wait_stream", "wait_event", "synchronize", "wait"}


class Streams:
    name = "streams"
    describe = "leaves work on a side stream, so that the timer stops early"

    def source(self, tree: ast.Module, backend: Backend) -> list[Finding]:
        """A stream that nothing ever waits for is certain. Work on a joined one is within a run's time, wherever it is joined."""
        known = analyse(tree)
        for call, path in known.calls():
            if path in _UNSEEN:
                return [Finding(check=self.name, message=f"Works on a stream that is not torch's own ({path}).", line=call.lineno)]
        made = [call for call, path in known.calls() if path in _NEW]
        if not made:
            return []
        waits = any(node.attr in _JOINS and not _side_waits(known, node) for node in known.attributes())
        joined = waits and any(use.path in _OUTER for use in known.uses())
        if joined:
            return [Finding(check=self.name, message="Uses a side stream.", severity=Severity.INFO, line=made[0].lineno)]
        return [Finding(check=self.name, message="Starts work on a side stream and nothing waits for it.", line=made[0].lineno)]

    def observed(self, seen: Observation) -> list[Finding]:
        """Streams are only reported: a run's clock waits for them."""
        if seen.streams == 0:
            return []
        return [Finding(check=self.name, message=f"Created {seen.streams} CUDA streams.", severity=Severity.INFO)]


def _side_waits(known: Source, node: ast.Attribute) -> bool:
    """``side.wait_stream(current)``: it is the side stream that waits, for what was enqueued before."""
    match node.value:
        case ast.Name() as name:
            values: list[object] = list(known.bindings(name) or ())
        case ast.Attribute(value=ast.Name(id="self"), attr=attr):
            values = [value for _, value in known.members.get(attr, ())]
        case _:
            return False
    made = [isinstance(value, ast.Call) and bool(known.paths(value.func) & set(_NEW)) for value in values]
    return node.attr != "synchronize" and bool(made) and all(made)
