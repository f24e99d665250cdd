"""One pair: KernelBook's columns, and what this project knows besides."""

from __future__ import annotations

import uuid

import msgspec

from kernelllm.core.types import Attempt, Problem
from kernelllm.pairs import canonical, operator_graph

_IDS = uuid.UUID("6f0f5b0e-6c34-4f0a-9a39-6d1d8f3f7c11")


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """A module and a kernel that the judge found right. The first block has KernelBook's columns; lists are JSON in Parquet's own lists."""

    entry_point: str = "Model"
    python_code: str
    """The module, in KernelBench's format."""
    triton_code: str
    """A file of its own that defines ``ModelNew``."""
    repo_name: str = ""
    module_name: str = ""
    synthetic: bool = False
    uuid: str
    """The same for the same two texts."""
    licenses: tuple[str, ...] = ()
    repo_link: str = ""
    sha: str = ""

    name: str
    origin: str
    model: str
    """Who wrote the kernel."""
    options: str = ""
    """How (JSON)."""
    operators: tuple[str, ...] = ()
    """ATen operators of one forward, in order, views left out."""
    family: str = ""
    """Rows of one family are in one split: the same set of operators."""
    graph: str = ""
    """Hash of the operators and of which feeds which."""
    fingerprint: str
    """Hash of the module without its names, comments and docstrings."""
    split: str = "train"
    sizes: int = 0
    """At how many sets of sizes the judge found it right."""
    trials: int = 0
    kernels: int = 0
    """Different kernels that ran."""
    compiled: str = ""
    """For what the kernels were compiled, and how far where it is not machine code; empty where they ran on a GPU."""
    share: float | None = None
    """Share of the reference's heavy work in the pair's own kernels, 0 to 1; None where there is none."""
    device: str = ""
    speedup_eager: float | None = None
    speedup_compile: float | None = None
    kernel_ms: float | None = None
    findings: tuple[str, ...] = ()
    kind: str = "pair"
    """``pair``, ``repair`` (a wrong kernel, its verdict and a right one) or ``faster`` (a slow kernel and a faster one)."""
    before_code: str = ""
    before_verdict: str = ""
    augmented_from: str = ""
    """The row whose module this is in another writing."""


def pair_of(problem: Problem, attempt: Attempt, *, licenses: tuple[str, ...] = (), repository: str = "", link: str = "") -> Pair:
    """The row of a judged attempt. The caller sees to it that its verdict is ``correct``."""
    verdict, candidate = attempt.verdict, attempt.candidate
    graph, operators = operator_graph.graph_hash(problem)
    family = "+".join(sorted(set(operators))) or "+".join(sorted(set(canonical.called(problem.source))))
    return Pair(
        python_code=problem.source, triton_code=candidate.source, repo_name=repository, module_name=problem.name.rpartition("/")[2],
        synthetic="synth" in problem.tags, uuid=str(uuid.uuid5(_IDS, problem.digest + candidate.digest)), licenses=licenses,
        repo_link=link, name=problem.name, origin=problem.origin, model=candidate.model,
        options=msgspec.json.encode(candidate.params, order="sorted").decode(), operators=operators, family=family, graph=graph,
        fingerprint=canonical.fingerprint(problem.source), sizes=len(verdict.shapes), trials=len(verdict.trials),
        kernels=len({k.name for k in verdict.kernels}), compiled=verdict.environment.get("compiled", ""), share=verdict.coverage,
        device=verdict.environment.get("device", ""),
        speedup_eager=verdict.speedup("eager"), speedup_compile=verdict.speedup("compile"),
        kernel_ms=verdict.timing.candidate.median_ms if verdict.timing else None, findings=tuple(f.check for f in verdict.findings),
    )  # fmt: skip
