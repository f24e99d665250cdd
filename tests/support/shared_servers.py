"""The worker servers that all judges of one test process share: each imports torch, which takes longer than most verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from kernelllm.core.types import DEFAULT_BACKEND
from kernelllm.judge.isolation import prestart
from kernelllm.judge.isolation.forkserver import ForkServer

ORIGINAL = {"server": prestart.server, "begin": prestart.begin}


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

    def server(mode: str, target: str, spares: int = 0, backend: str = DEFAULT_BACKEND) -> ForkServer:
        if spares:
            return ORIGINAL["server"](mode, target, spares, backend)
        if (mode, target, backend) not in started:
            one = started[mode, target, backend] = SharedServer(mode, target, backend=backend)
            stack.callback(one.end)
        return started[mode, target, backend]

    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setattr(prestart, "server", server)
        patch.setattr(prestart, "begin", lambda *settings, **options: None)
        yield
