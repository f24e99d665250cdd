"""The judge's settings from command-line options; every wrong option is found before any work starts."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kernelllm.app.progress import remembered_interrupt
from kernelllm.backends.base import open_backend
from kernelllm.core import gpus, registry, settings
from kernelllm.core.errors import UsageError
from kernelllm.core.types import DEFAULT_BACKEND
from kernelllm.core.writer import find
from kernelllm.judge.judge_settings import HYBRID, PROFILES, STRICT

if TYPE_CHECKING:
    from kernelllm.judge import JudgeSettings

LEAVE_WORK = ("allow", "auto")
"""Settings of ``extern`` that leave heavy operators to torch."""


def judge_settings(
    *,
    device: str = "auto",
    target: str | None = None,
    profile: str = STRICT,
    tolerance: float | None = None,
    checks: Sequence[str] = (),
    track: str | None = None,
    backward: bool = False,
    time_limit: float | None = None,
    require_sandbox: str | None = None,
    baselines: Sequence[str] = (),
    no_measure: bool = False,
    no_cache: bool = False,
    backend: str = DEFAULT_BACKEND,
) -> JudgeSettings:
    """JudgeSettings for these options. Raises UsageError or UnknownName on a name that does not exist."""
    target = target or settings.load().target
    gpus.by_arch(target)
    need_backend(backend)
    for name in checks:
        registry.require("checks", name)
    if profile not in PROFILES:
        raise UsageError(f"Unknown profile {profile!r}.", fix=f"Known: {', '.join(PROFILES)}.")
    if require_sandbox is not None:
        from kernelllm.judge.isolation import sandbox

        sandbox.level_named(require_sandbox)
    if device == "cuda":
        _need_gpu()
    from kernelllm.judge import JudgeSettings

    chosen: dict[str, Any] = {
        "device": device,
        "target": target,
        "backend": backend,
        "profile": profile,
        "tolerance": tolerance,
        "checks": tuple(checks) or None,
        "track": track,
        "backward": backward,
        "require_sandbox": require_sandbox,
        "measure": not no_measure,
        "cache": not no_cache,
        "keep_verdicts": settings.load().verdict_cache and not no_cache,
    }
    if baselines:
        chosen["baselines"] = tuple(dict.fromkeys(baselines))
    if time_limit is not None:
        chosen["time_limit_s"] = time_limit
    return JudgeSettings(**chosen)


def default_extern(model: str, how: JudgeSettings) -> str | None:
    """``auto`` where a GPU times a writer's candidates, so that the fastest wins; None elsewhere, and where a writer has no such choice."""
    found, rest = find(model)
    if "extern" not in found.takes(rest) or not how.measure or how.backward or how.device == "cpu":
        return None
    import torch

    return "auto" if torch.cuda.is_available() else None


def extern_of(extern: str | None, track: str | None) -> str:
    """What the compiler may leave to torch, on a track. Raises UsageError where its candidates would only be refused."""
    if extern in LEAVE_WORK and track != HYBRID:
        raise UsageError(f"--extern {extern} leaves heavy work to torch.", fix=f"Such candidates are judged with --track {HYBRID}.")
    return extern or ("auto" if track == HYBRID else "avoid")


def tracked(how: JudgeSettings, model: str) -> JudgeSettings:
    """The settings for a writer's candidates: one that says itself what it leaves to torch is judged on the track hybrid by default."""
    return how if how.track is not None or find(model)[0].asks_model else dataclasses.replace(how, track=HYBRID)


def need_backend(name: str) -> None:
    """Raises UsageError where the kernel language cannot run at all on this machine, UnknownName where there is none of that name."""
    absent = open_backend(name).missing()
    if absent is not None:
        raise UsageError(f"Nothing can be judged here: {absent.reason}.", fix=f"{absent.fix}; see also 'kernelllm doctor'.")


def start_servers(settings: JudgeSettings, *, compiles: bool = False, light: bool = False) -> None:
    """For a process that is going to judge with these settings: its worker servers import torch while this process does.

    ``compiles``: whether it will compile with torch for another reason than a baseline; ``light``: whether it judges a single candidate,
    of a problem without parameters.
    """
    from kernelllm.backends.base import Mode
    from kernelllm.judge.isolation import prestart

    timed = settings.measure and Mode.CUDA in prestart.modes(settings.device, settings.backend)
    compiles = compiles or (timed and set(settings.baselines) != {"eager"})
    prestart.begin(settings.device, settings.target, settings.backend, light=light)
    gc.disable()  # what is imported stays: looking through it again and again takes a third of the start
    try:
        with remembered_interrupt() as interrupted:
            import_module("torch")
            if compiles:
                import_module("torch._dynamo")
            interrupted()  # imports can swallow Ctrl-C
    finally:
        gc.freeze()
        gc.enable()


def opened_judge(given: Any) -> tuple[Any, JudgeSettings | None, bool]:
    """A judge for JudgeSettings, None (the defaults) or a judge; its settings where they are known; whether it was opened here."""
    from kernelllm.judge import Judge, JudgeSettings

    if given is None or isinstance(given, JudgeSettings):
        how = given or JudgeSettings()
        return Judge(how), how, True
    return given, None, False


def _need_gpu() -> None:
    import torch

    if not torch.cuda.is_available():
        built = "" if torch.version.cuda else f" (torch {torch.__version__} is a CPU build)"
        raise UsageError(
            f"--device cuda needs a CUDA GPU, and torch sees none{built}.",
            fix="Use --device cpu, or run 'kernelllm doctor' to see what is missing.",
        )
