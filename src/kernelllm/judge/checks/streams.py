"""Leaves work on a side stream, so that a timer on the current stream stops early."""

from __future__ import annotations

import ast

from kernelllm.backends.base import Backend
from kernelllm.core.types import Finding, Severity
from kernelllm.judge.checks.syntax import analyse
from kernelllm.judge.observation import Observation

_NEW = (
    "torch.cuda.Stream", "torch.cuda.ExternalStream", "torch.cuda.streams.Stream", "torch.Stream",
    "torch.cuda.get_stream_from_external",
)  # fmt: skip
_OUTER = ("torch.cuda.current_stream", "torch.cuda.default_stream", "torch.cuda.synchronize")
_JOINS = {"wait_stream", "wait_event", "synchronize", "wait"}


class Streams:
    name = "streams"
    describe = "leaves work on a side stream, so that the timer stops early"

    def source(self, tree: ast.Module, backend: Backend) -> list[Finding]:
        """A stream that nothing ever waits for is certain. A joined one is left to the judge's clock, which waits for the device."""
        known = analyse(tree)
        made = [call for call, path in known.calls() if path in _NEW]
        if not made:
            return []
        joined = any(node.attr in _JOINS for node in known.attributes()) and any(use.path in _OUTER for use in known.uses())
        if joined:
            return [Finding(check=self.name, message="Uses a side stream.", severity=Severity.INFO, line=made[0].lineno)]
        return [Finding(check=self.name, message="Starts work on a side stream and nothing waits for it.", line=made[0].lineno)]

    def observed(self, seen: Observation) -> list[Finding]:
        """Streams are only reported: the judge waits for the whole device."""
        if seen.streams == 0:
            return []
        return [Finding(check=self.name, message=f"Created {seen.streams} CUDA streams.", severity=Severity.INFO)]
