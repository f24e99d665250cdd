"""One table for everything that can be added: models, backends, suites, checks, strategies.

A table maps a name to a lazy ``"module:attribute"`` string. Packages add rows with entry points in the
group ``kernelllm.<kind>``. Nothing is imported until it is asked for.
"""

from __future__ import annotations

import difflib
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from kernelllm.core.errors import UnknownName

BUILTIN: dict[str, dict[str, str]] = {
    "models": {
        "anthropic": "kernelllm.models.anthropic:Anthropic",
        "hf": "kernelllm.models.hf:HF",
        "litellm": "kernelllm.models.litellm:LiteLLM",
        "mini": "kernelllm.models.mini:Mini",
        "mock": "kernelllm.models.mock:Mock",
        "openai": "kernelllm.models.openai:OpenAI",
        "replay": "kernelllm.models.recorded_answers:ReplayedAnswers",
        "vllm": "kernelllm.models.vllm:VLLM",
    },
    "writers": {
        "compiler": "kernelllm.compiler.compiler_writer:Compiler",
        "lm": "kernelllm.lm.lm_writer:LMWriter",
    },
    "backends": {
        "triton": "kernelllm.backends.triton.triton_backend:Triton",
    },
    "suites": {
        "builtin": "kernelllm.suites.builtin:BuiltinSuite",
        "file": "kernelllm.suites.file:FileSuite",
        "flashinfer": "kernelllm.suites.definitions:DefinitionSuite",
        "folder": "kernelllm.suites.file:FolderSuite",
        "hf": "kernelllm.suites.hf_datasets:HFSuite",
        "kernelbench": "kernelllm.suites.kernelbench:KernelBench",
        "kernelbench-x": "kernelllm.suites.tritonbench.suite:KernelBenchX",
        "multikernelbench": "kernelllm.suites.multikernelbench:MultiKernelBench",
        "robust-kbench": "kernelllm.suites.robust_kbench:RobustKBench",
        "sol-execbench": "kernelllm.suites.definitions:DefinitionSuite",
        "synth": "kernelllm.suites.synth:SynthSuite",
        "tritonbench": "kernelllm.suites.tritonbench.suite:TritonBench",
    },
    "checks": {
        "clock": "kernelllm.judge.checks.clock:Clock",
        "decoy_kernel": "kernelllm.judge.checks.decoy_kernel:DecoyKernel",
        "dynamic_code": "kernelllm.judge.checks.dynamic_code:DynamicCode",
        "files": "kernelllm.judge.checks.files:Files",
        "inputs_written": "kernelllm.judge.checks.inputs_written:InputsWritten",
        "introspection": "kernelllm.judge.checks.introspection:Introspection",
        "kernel_names": "kernelllm.judge.checks.kernel_names:KernelNames",
        "lazy_tensors": "kernelllm.judge.checks.lazy_tensors:LazyTensors",
        "native_code": "kernelllm.judge.checks.native_code:NativeCode",
        "network": "kernelllm.judge.checks.network:Network",
        "no_kernel": "kernelllm.judge.checks.no_kernel:NoKernel",
        "other_libraries": "kernelllm.judge.checks.other_libraries:OtherLibraries",
        "precision": "kernelllm.judge.checks.precision:Precision",
        "processes": "kernelllm.judge.checks.processes:Processes",
        "replay": "kernelllm.judge.checks.replay:Replay",
        "streams": "kernelllm.judge.checks.streams:Streams",
        "tampering": "kernelllm.judge.checks.tampering:Tampering",
        "threads": "kernelllm.judge.checks.threads:Threads",
        "torch_fallback": "kernelllm.judge.checks.torch_fallback:TorchFallback",
        "undefined_lanes": "kernelllm.judge.checks.undefined_lanes:UndefinedLanes",
    },
    "strategies": {
        "refine": "kernelllm.search.refine:Refine",
        "sample": "kernelllm.search.sample:Sample",
    },
}


@cache
def _plugins(kind: str) -> dict[str, str]:
    return {e.name: e.value for e in entry_points(group=f"kernelllm.{kind}")}


def names(kind: str) -> list[str]:
    """Known names of a kind, sorted. Raises UnknownName for an unknown kind."""
    if kind not in BUILTIN:
        raise UnknownName(f"There is no registry of {kind!r}; there are {', '.join(sorted(BUILTIN))}.")
    return sorted({**BUILTIN[kind], **_plugins(kind)})


def require(kind: str, name: str) -> str:
    """The ``module:attribute`` of a name, nothing imported. Raises UnknownName with the known names and the nearest one."""
    known = names(kind)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        one = "strategy" if kind == "strategies" else kind.removesuffix("s")
        raise UnknownName(f"Unknown {one} {name!r}.{hint}", fix=f"Known: {', '.join(known) or 'none'}.")
    return {**BUILTIN[kind], **_plugins(kind)}[name]


def resolve(kind: str, name: str) -> Any:
    """The object behind a name. Raises UnknownName with the known names and the nearest one."""
    return imported(require(kind, name))


def imported(place: str) -> Any:
    """The object of a ``module:attribute``."""
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)
