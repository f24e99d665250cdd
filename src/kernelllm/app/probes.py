"""The probes of ``kernelllm doctor``: what this machine can do, what is missing, and how to get it."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

import kernelllm
from kernelllm.core import gpus, settings
from kernelllm.core.errors import KernelLLMError

EXTRAS = {"transformers": "hf", "vllm": "vllm", "openai": "openai", "anthropic": "anthropic", "litellm": "litellm"}
"""Optional package to the extra that brings it."""
TRITON_FIX = "pip install triton (Linux on x86-64 or ARM; elsewhere: a Linux machine, container or WSL)."
GIB = 2**30


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """One finding about this machine. ``state``: ``ok``, ``limited`` (works, with less) or ``missing`` (the main job fails)."""

    name: str
    state: str
    detail: str
    fix: str = ""
    figures: dict[str, float] = {}
    """Measured rates: bytes/s and FLOP/s."""


class ProbeResult(NamedTuple):
    """What one probe found."""

    state: str
    detail: str
    fix: str = ""


_ok, _limited, _missing = partial(ProbeResult, "ok"), partial(ProbeResult, "limited"), partial(ProbeResult, "missing")


def examine(only: str = "") -> Iterator[Probe]:
    """Run all probes, or those whose name starts with ``only``; yields as it goes and never raises on a broken install."""
    for probe in PROBES:
        name = probe.__name__.removeprefix("_")
        if name.startswith(only):
            try:
                found = probe()
            except (ImportError, OSError, RuntimeError, KernelLLMError) as error:
                found = ProbeResult("missing", f"{type(error).__name__}: {error}")
            yield Probe(name=name, state=found.state, detail=found.detail, fix=found.fix)


def measure() -> Iterator[Probe]:
    """Measure what each GPU really reaches, and keep it for floors; one Probe a GPU. One that says so where there is none."""
    import torch

    from kernelllm.judge.device_share import device_key
    from kernelllm.judge.timing import device_rates
    from kernelllm.pool.locks import DeviceLock

    if not torch.cuda.is_available():
        detail = "torch sees no GPU here, so nothing was measured; floors are estimated from the datasheet of the target"
        yield Probe(name="ceilings", state="limited", detail=detail, fix="Run 'kernelllm doctor --measure' on the machine with the GPU.")
        return
    for index in range(torch.cuda.device_count()):
        device, name = f"cuda:{index}", torch.cuda.get_device_name(index)
        try:
            with DeviceLock(device_key(device)) as lock:
                lock.acquire_exclusive()
                found = device_rates.measure(device)
            device_rates.keep(name, found)
        except (OSError, RuntimeError) as error:
            yield Probe(name="ceilings", state="limited", detail=f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}")
            continue
        rates, table = found.rates(), gpus.by_name(name)
        shown = [_rate(what, value, getattr(table, what, None)) for what, value in rates.items()]
        fix = "" if table else "It is not in the GPU table (kernelllm/core/gpus.py): add a row, so that floors can be told."
        detail = f"{name}: {', '.join(shown)}; kept in {device_rates.file()}"
        yield Probe(name="ceilings", state="ok" if table else "limited", detail=detail, fix=fix, figures=rates)


def _rate(what: str, value: float, datasheet: float | None) -> str:
    text = f"{what} {value / 1e12:.3g} T{'B' if what == 'bandwidth' else 'FLOP'}/s"
    return text + (f" ({value / datasheet:.0%} of the datasheet's)" if datasheet else "")


def _python() -> ProbeResult:
    version = platform.python_version()
    return _ok(f"{version} on {platform.platform(terse=True)}; kernelllm {kernelllm.__version__}")


def _torch() -> ProbeResult:
    if importlib.util.find_spec("torch") is None:
        return _missing("not installed", "pip install torch")
    import torch

    return _ok(f"{torch.__version__} ({'CUDA ' + torch.version.cuda if torch.version.cuda else 'CPU build'})")


def _triton() -> ProbeResult:
    if importlib.util.find_spec("triton") is None:
        return _missing("not installed: nothing can be judged or compiled", TRITON_FIX)
    import triton

    return _ok(triton.__version__)


def _gpu() -> ProbeResult:
    import torch

    if not torch.cuda.is_available():
        fix = (
            "This machine has an NVIDIA driver; install a CUDA build of torch: https://pytorch.org/get-started/locally/"
            if shutil.which("nvidia-smi")
            else "With an NVIDIA GPU, kernels are also run at full size and timed."
        )
        return _limited("none: kernels are compiled for a target, run by Triton's interpreter and not timed", fix)
    found = []
    for index in range(torch.cuda.device_count()):
        name = torch.cuda.get_device_name(index)
        free, total = torch.cuda.mem_get_info(index)
        known = "" if gpus.by_name(name) else ", not in the GPU table: no speed-of-light figures"
        found.append(f"{name} ({free / GIB:.0f} of {total / GIB:.0f} GiB free{known})")
    return _ok("; ".join(found))


def _compiler() -> ProbeResult:
    """Triton's own ptxas, and the C compiler that it needs to launch kernels on a GPU."""
    if importlib.util.find_spec("triton") is None:
        return _missing("comes with triton", "Install triton.")
    import torch
    import triton

    own = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    ptxas = os.environ.get("TRITON_PTXAS_PATH") or (str(own) if own.exists() else shutil.which("ptxas"))
    if not ptxas:
        fix = "Install the CUDA toolkit or set TRITON_PTXAS_PATH."
        return _limited("no ptxas: kernels compile to PTX alone, without registers and spills", fix)
    told = subprocess.run([ptxas, "--version"], capture_output=True, text=True, check=False, timeout=20).stdout.split("release ")
    version = told[1].split(",")[0] if len(told) > 1 else "of unknown version"
    c_compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")
    if c_compiler is None and torch.cuda.is_available():
        return _missing(f"ptxas {version}, but no C compiler", "Install gcc: Triton builds its launchers with it.")
    return _ok(f"ptxas {version}" + (f", {Path(c_compiler).name}" if c_compiler else ""))


def _interpreter() -> ProbeResult:
    if importlib.util.find_spec("triton") is None:
        return _missing("comes with triton", "Install triton.")
    import numpy as np
    import triton

    numbers = tuple(int(part) for part in np.__version__.split(".")[:2])
    if triton.__version__.startswith("3.6") and numbers >= (2, 4):
        detail = f"triton {triton.__version__} cannot interpret kernels with numpy {np.__version__}"
        return _limited(detail, "pip install 'triton>=3.7' or 'numpy<2.4'")
    return _ok(f"Triton's interpreter with numpy {np.__version__}")


def _sandbox() -> ProbeResult:
    if importlib.util.find_spec("kernelllm.judge.isolation.sandbox") is None:
        return _limited("candidates run in a process of their own, with no further confinement")
    from kernelllm.judge.isolation import sandbox

    found = sandbox.available()
    state = "ok" if found.level in ("filesystem", "full") else "limited"
    return ProbeResult(state, str(found), " ".join(found.missing))


def _memory() -> ProbeResult:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    detail = f"{pages / GIB:.0f} GiB, {usable} CPU cores"
    if pages < 6 * GIB:
        return _limited(detail, "Below 6 GiB, large problems may not fit.")
    return _ok(detail)


def _disk() -> ProbeResult:
    places = {"temporary folder": Path(tempfile.gettempdir()), "shared memory": Path("/dev/shm"), "data folder": settings.load().data}
    parts, short = [], []
    for what, place in places.items():
        there = next((p for p in (place, *place.parents) if p.exists()), None)
        if there is None or (what == "shared memory" and not place.exists()):
            short.append(f"{what} {place} does not exist")
            continue
        free = shutil.disk_usage(there).free
        parts.append(f"{what} {free / GIB:.0f} GiB free")
        if free < GIB:
            short.append(f"{what} {there} has under 1 GiB free")
    if short:
        return _limited("; ".join([*parts, *short]), "Free some space, or point TMPDIR elsewhere; in a container, raise --shm-size.")
    return _ok("; ".join(parts))


def _suites() -> ProbeResult:
    found = settings.load()
    for setting in ("kernelbench", "kernelbench_x", "tritonbench"):
        folder = getattr(found, setting)
        if folder and not Path(folder).expanduser().is_dir():
            detail = f"the setting {setting} names {folder}, which is no folder"
            return _limited(detail, "Correct the setting.")
    detail, fix = _ready("suites")
    return _ok(detail, fix)


def _models() -> ProbeResult:
    detail, fix = _ready("models")
    missing = sorted({extra for package, extra in EXTRAS.items() if importlib.util.find_spec(package) is None})
    if missing:
        fix += f" Extras that are not installed: pip install 'kernelllm[{','.join(missing)}]'"
    return _ok(detail, fix.strip())


def _ready(kind: str) -> tuple[str, str]:
    """What ``kernelllm list`` shows, in a line, and where more is told."""
    from kernelllm.app.catalogue import entries

    rows = entries(kind)
    ready = [row["name"] for row in rows if row["state"] != "missing"]
    lacking = [row["name"] for row in rows if row["state"] == "missing"]
    detail = f"ready: {', '.join(ready) or 'none'}" + (f"; not ready: {', '.join(lacking)}" if lacking else "")
    return detail, f"See 'kernelllm list {kind}'." if lacking else ""


PROBES: tuple[Callable[[], ProbeResult], ...] = (
    _python, _torch, _triton, _gpu, _compiler, _interpreter, _sandbox, _memory, _disk, _suites, _models,
)  # fmt: skip
