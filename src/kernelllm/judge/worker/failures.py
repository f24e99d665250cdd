"""Turns whatever candidate code raised into one reply."""

from __future__ import annotations

import traceback
from typing import Any

import torch

from kernelllm.backends.base import Backend, Mode
from kernelllm.judge.transport.protocol import Failed

# taken before any candidate code runs
_synchronize = torch.cuda.synchronize
_MOST = 4000
_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory", "unable to allocate")
_ILLEGAL = ("illegal memory access", "illegal address", "misaligned address", "unspecified launch failure")
_ASSERTED = "device-side assert"


def describe(number: int, error: BaseException, path: str, backend: Backend, mode: Mode) -> Failed:
    """The reply for an exception: kind, message, the candidate's own frames."""
    if isinstance(error, MemoryError):
        traceback.clear_frames(error.__traceback__)  # frames hold what filled the memory, and none is left to describe the error
    chain = _chain(error, backend.wrapping_errors)
    root = chain[-1]
    frames = [f for e in chain for f in traceback.extract_tb(e.__traceback__) if f.filename == path]
    line = frames[-1].lineno or 0 if frames else 0
    if isinstance(root, SyntaxError) and root.filename == path:
        line = root.lineno or 0
    trace = "\n".join(f"line {f.lineno}, in {f.name}: {f.line}" for f in frames[-12:])
    text = _text(root)
    compile_line = _compile_line(root)
    kind = _kind(chain, backend.compile_errors)
    lost = mode is Mode.CUDA and _device_lost()
    return Failed(number, kind, type(root).__name__, text[:_MOST], compile_line or line, trace[:_MOST], lost)


def _device_lost() -> bool:
    """Whether the context on the GPU is dead, as after an illegal access or a device-side assert."""
    try:
        _synchronize()
    except RuntimeError as error:
        return not isinstance(error, torch.OutOfMemoryError)
    return False


def _chain(error: BaseException, wrapping: frozenset[str]) -> list[BaseException]:
    chain = [error]
    while type(chain[-1]).__name__ in wrapping and chain[-1].__cause__ is not None and len(chain) < 8:
        chain.append(chain[-1].__cause__)
    return chain


def _text(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"the candidate called sys.exit({error.code!r})"
    if isinstance(error, KeyboardInterrupt):
        return "the candidate raised KeyboardInterrupt"
    text = str(error).strip()
    if isinstance(error, KeyError):
        text = f"key {text} not found"
    return text or type(error).__name__


def _kind(chain: list[BaseException], compile_errors: frozenset[str]) -> str:
    root = chain[-1]
    names = {kind.__name__ for e in chain for kind in type(e).__mro__}
    lowered = str(root).lower()
    if "NotACandidate" in names or (isinstance(root, SyntaxError) and not names & compile_errors):
        return "invalid"
    if "NotPlain" in names:
        return "not_plain"
    if "IllegalAccess" in names or any(mark in lowered for mark in _ILLEGAL):
        return "illegal_access"
    if _ASSERTED in lowered:
        return "asserted"
    if isinstance(root, MemoryError | torch.OutOfMemoryError) or any(mark in lowered for mark in _OUT_OF_MEMORY):
        return "memory"
    if isinstance(root, NotImplementedError) and "without a gpu" in lowered:
        return "not_here"
    if names & compile_errors:
        return "compile"
    return "error"


def _compile_line(error: Any) -> int:
    node = getattr(error, "node", None)
    line = getattr(node, "lineno", 0) or getattr(error, "line", 0)
    return line if isinstance(line, int) else 0
