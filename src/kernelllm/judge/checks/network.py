"""Flags candidates that talk to the network or to other processes."""

from __future__ import annotations

import ast

from kernelllm.backends.base import Backend
from kernelllm.core.types import Finding
from kernelllm.judge.checks.syntax import uses_of
from kernelllm.judge.observation import Observation

_CERTAIN = (
    "socket", "_socket", "urllib", "http", "requests", "httpx", "aiohttp", "ftplib", "smtplib", "ssl", "asyncio", "xmlrpc",
    "socketserver", "websockets", "torch.distributed", "huggingface_hub", "zmq", "ray", "paramiko", "telnetlib", "imaplib", "poplib",
)  # fmt: skip


class Network:
    name = "network"
    describe = "talks to the network or to other processes, the judge's socket among them"

    def source(self, tree: ast.Module, backend: Backend) -> list[Finding]:
        """Modules that a kernel has no use for."""
        return uses_of(tree, self.name, *_CERTAIN)

    def observed(self, seen: Observation) -> list[Finding]:
        """Sockets that were opened or connected."""
        return [
            Finding(check=self.name, message=f"{event.name} ({event.detail}) while in {event.phase}.")
            for event in seen.events if event.name.startswith("socket.") and event.name not in ("socket.gethostname",)
        ]  # fmt: skip
