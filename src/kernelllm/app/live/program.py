"""A written file at work in this process, with the parameters and buffers of a live module."""

from __future__ import annotations

import collections
import os
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kernelllm.app import in_process
from kernelllm.app.live.call_arguments import Nest
from kernelllm.app.live.signature import Signature
from kernelllm.app.output import write_text
from kernelllm.backends.base import import_file, open_backend
from kernelllm.core import settings
from kernelllm.core.errors import UsageError
from kernelllm.core.types import DEFAULT_BACKEND, digest

_imported: dict[str, ModuleType] = {}


@dataclass(eq=False)
class LiveProgram:
    """One written file, and the calls that it is for."""

    source: str
    signature: Signature
    output: Nest
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    """Tensors of the module that no state dict holds, by name."""
    differentiable: bool = False
    """Whether its results have a backward."""
    refused: str = ""
    """Why it is not used at all; empty where it is."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def model(self, original: torch.nn.Module) -> torch.nn.Module:
        """ModelNew with the original's tensors, made when it is first asked for. Raises UsageError, and what the file raises."""
        known: torch.nn.Module | None = vars(self).get("_model")
        if known is None:
            known = imported(self.source).ModelNew()
            assert isinstance(known, torch.nn.Module)
            self._share(known, original)
            self._model = known
            self.move(next((t.device for t in (*original.parameters(), *original.buffers())), torch.device("cpu")))
        return known

    def move(self, device: torch.device) -> None:
        """Bring what the file holds besides the original's tensors to a device."""
        model: torch.nn.Module | None = vars(self).get("_model")
        for module in model.modules() if model is not None else ():
            held = vars(module)["_buffers"]
            own = held.maps[-1] if isinstance(held, collections.ChainMap) else held if module in self._own else {}
            own.update({name: buffer.to(device) for name, buffer in own.items() if buffer is not None})

    def _share(self, model: torch.nn.Module, original: torch.nn.Module) -> None:
        """The holders of the file take the original's own dictionaries of tensors, so that both always hold the same."""
        self._own: set[torch.nn.Module] = set()
        for path, holder in model.named_modules():
            try:
                theirs = vars(original.get_submodule(path))
            except AttributeError:
                theirs = {"_parameters": {}, "_buffers": {}}
            missing = [name for name in vars(holder)["_parameters"] if name not in theirs["_parameters"]]
            if missing:
                names = ", ".join(f"{path}.{name}".lstrip(".") for name in missing)
                raise UsageError(f"The file has parameters that the module lacks: {names}.")
            buffers = vars(holder)["_buffers"]
            own = {n: self.constants.get(f"{path}.{n}".lstrip("."), b) for n, b in buffers.items() if n not in theirs["_buffers"]}
            if vars(holder)["_parameters"]:
                vars(holder)["_parameters"] = theirs["_parameters"]
            if not own:
                vars(holder)["_buffers"] = theirs["_buffers"] if buffers else buffers
            elif len(own) == len(buffers):
                vars(holder)["_buffers"] = own
                self._own.add(holder)
            else:
                vars(holder)["_buffers"] = collections.ChainMap(theirs["_buffers"], own)


def imported(source: str) -> ModuleType:
    """The file as a module; it lies in the cache folder, where Triton reads its kernels. Raises what its code raises."""
    name = f"kernelllm_written_{digest(source)[:20]}_{os.environ.get('TRITON_INTERPRET', '0')}"
    if name not in _imported:
        folder = settings.load().cache / "written"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.py"
        if not path.is_file() or path.read_text(encoding="utf-8") != source:
            write_text(path, source)
        _imported[name] = import_file(path, name)
    return _imported[name]


def runs_on(device: torch.device) -> str:
    """Why kernels cannot run on a device in this process; empty where they can."""
    absent = open_backend(DEFAULT_BACKEND).missing()
    if absent is not None:
        return absent.reason
    if device.type == "cuda" or in_process.interpreted():
        return ""
    if not torch.cuda.is_available():
        return "there is no GPU: the kernels ran in the judge alone"
    return f"the module is on {device.type}: move it to 'cuda'"


def refused(error: BaseException) -> bool:
    """Whether a file refused a call before it did anything: by a ``raise`` of its own."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and Path(frames[-1].filename).stem in _imported and (frames[-1].line or "").startswith("raise")


def reason(error: BaseException) -> str:
    """An error of a file in a few words."""
    text = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {text[:160]}" if text else type(error).__name__
