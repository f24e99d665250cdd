"""The worker servers that all judges of one test process share: each imports torch, which takes longer than most verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pytest

from kernelllm.backends.base import Mode
from kernelllm.core.types import DEFAULT_BACKEND
from kernelllm.judge.isolation import prestart
from kernelllm.judge.isolation.forkserver import ForkServer

ORIGINAL = {"servers": prestart.servers, "begin": prestart.begin}


class SharedServer(ForkServer):
    """A server that outlives the judges that have it."""

    def close(self) -> None:
        """One judge is done with it."""

    def end(self) -> None:
        """All are."""
        super().close()


@contextmanager
def shared_servers() -> Iterator[None]:
    """Servers are started when first asked for, and end with the block. Those for a GPU are their judge's own: spares are warm for it."""
    started: dict[tuple[str, str, str], SharedServer] = {}

    def servers(modes: Sequence[Mode], target: str, spares: int = 0, backend: str = DEFAULT_BACKEND) -> list[ForkServer]:
        if spares:
            return ORIGINAL["servers"](modes, target, spares, backend)
        for one in SharedServer.together([mode for mode in modes if (mode, target, backend) not in started], target, backend=backend):
            started[one.mode, target, backend] = one
            stack.callback(one.end)
        return [started[mode, target, backend] for mode in modes]

    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setattr(prestart, "servers", servers)
        patch.setattr(prestart, "begin", lambda *settings, **options: None)
        yield
