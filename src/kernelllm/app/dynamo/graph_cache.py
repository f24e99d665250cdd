"""The disk cache of ``torch.compile(backend="kernelllm")``: written files, their verdicts, and which way runs each graph."""

from __future__ import annotations

import hashlib
import platform
import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import msgspec
import torch
from torch import fx

import kernelllm as package
from kernelllm.app.dynamo.timed_selection import Way
from kernelllm.app.dynamo.writing import WriteResult
from kernelllm.backends.base import import_file, open_backend
from kernelllm.core import settings
from kernelllm.core.file_cache import FileCache, code_digest, replace_file
from kernelllm.core.types import DEFAULT_BACKEND
from kernelllm.problems.graphs.graph_text import traced_value

_T = TypeVar("_T")
_CODE = ("backends", "compiler", "core", "judge", "problems", "app/dynamo")


def folder() -> Path:
    """Where written graphs lie. It can be deleted at any time."""
    return settings.load().cache / "torch_compile"


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Which way (written files, Inductor, eager) runs a graph of Dynamo's, and why."""

    way: Way
    cause: str
    written: list[int]
    """Positions of the inputs that it writes into."""


def key(source: str, device: str, conv_tf32: bool) -> str:
    """The name of a graph's files: its text without the values of symbolic sizes, the device, the precision, the versions."""
    text = re.sub(r"^(size\d+) = \d+$", r"\1", source, flags=re.MULTILINE)
    name = torch.cuda.get_device_name(device) if device != "cpu" else platform.machine()
    language = sorted(open_backend(DEFAULT_BACKEND).versions().items())
    versions = (package.__version__, torch.__version__, language, platform.python_version(), _code())
    return hashlib.sha256("\n".join([text, device.partition(":")[0], name, str(conv_tf32), *map(str, versions)]).encode()).hexdigest()[:32]


def graph_key(graph: fx.GraphModule, inputs: Sequence[Any], mode: str) -> str:
    """The name of what is decided of a graph of Dynamo's: its text, inputs with symbolic sizes, Inductor's mode, what torch goes by."""
    tensors = [v for v in inputs if isinstance(v, torch.Tensor)]
    home = str(tensors[0].device) if tensors and tensors[0].device.type in ("cpu", "cuda") else "cpu"
    lines = [graph.code, mode, str(torch.is_grad_enabled()), str(torch.is_inference_mode_enabled())]
    for node, value in zip(graph.graph.find_nodes(op="placeholder"), inputs, strict=False):
        known = traced_value(node)
        facts = (known.shape, known.stride(), known.dtype, known.device) if isinstance(known, torch.Tensor) else type(value).__name__
        lines.append(f"{facts} {getattr(value, 'requires_grad', False)}")
    for kind in ("cpu", "cuda"):
        lines.append(f"{torch.is_autocast_enabled(kind)} {torch.get_autocast_dtype(kind)}")
    return key("\n".join(lines), home, conv_tf32=True)


@cache
def _code() -> str:
    """A digest of the code that writes and judges."""
    return code_digest(Path(package.__file__).parent / part for part in _CODE)


def get(name: str) -> WriteResult | None:
    """What was kept under that name; None where there is nothing, or nothing whole."""
    return _kept(name, WriteResult)


def decision(name: str) -> Decision | None:
    """What was decided of a graph."""
    return _kept(name, Decision)


def _kept(name: str, kind: type[_T]) -> _T | None:
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(FileCache(folder()).get(name) or b"", type=kind)
    return None


def has_entries() -> bool:
    """Whether anything was written before."""
    return next(folder().glob("*/*"), None) is not None


def put(name: str, found: WriteResult | Decision) -> None:
    """Keep a written file or a decision under a name."""
    FileCache(folder()).put(name, msgspec.json.encode(found))


@cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    """A folder that is removed as the process ends."""
    return tempfile.TemporaryDirectory(prefix="kernelllm-")


def loaded(name: str, source: str) -> ModuleType:
    """The written file as a module. Triton reads its kernels from the file. Raises what the file raises, and OSError."""
    path = folder() / f"{name}.py"
    try:
        if not path.is_file() or path.read_text() != source:
            replace_file(path, source.encode())
    except OSError:  # the disk is full or read-only: it serves this process alone
        path = Path(_temporary().name) / path.name
        replace_file(path, source.encode())
    return import_file(path, f"kernelllm_graph_{name}")
