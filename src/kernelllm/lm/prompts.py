"""Prompts: versioned Jinja2 templates, shipped as package data or read from a folder of one's own.

A template is a file ``NAME.jinja`` whose first line is a comment ``{#- version: 1 | kind: chat | summary: ... -#}``
and which fills the blocks ``system`` (optional) and ``user``. Kinds: ``chat`` gives a system and a user
message, ``plain`` one plain text with no chat template, ``follow`` is as the first prompt of the conversation.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kernelllm.backends.base import FAMILIES, Backend, Example, open_backend
from kernelllm.core import gpus
from kernelllm.core.errors import UnknownName, UsageError
from kernelllm.core.text import syntax_tree
from kernelllm.core.types import DEFAULT_BACKEND, Attempt, Problem
from kernelllm.core.types import best as best_of
from kernelllm.lm import feedback
from kernelllm.lm.plain_module import plain_kernel, plain_module
from kernelllm.models.language_model import Message

if TYPE_CHECKING:
    import jinja2

DEFAULT = "category"
_HEAD = re.compile(r"\{#-?\s*version:\s*(?P<version>\w+)\s*\|\s*kind:\s*(?P<kind>\w+)\s*\|\s*summary:\s*(?P<summary>.*?)\s*-?#\}")


class TemplateInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One template: what ``kernelllm prompt --list`` shows."""

    name: str
    version: str
    kind: str
    summary: str


class Templates:
    """The shipped templates, with those of ``directory`` in front. Raises UsageError where it is no folder."""

    def __init__(self, directory: str | Path | None = None) -> None:
        if directory is not None and not Path(directory).is_dir():
            raise UsageError(f"There is no folder of templates {str(directory)!r}.", fix="A template is a file NAME.jinja in it.")
        self.directory = Path(directory) if directory is not None else None
        self._environment: jinja2.Environment | None = None

    @property
    def environment(self) -> jinja2.Environment:
        """The Jinja2 environment: undefined names raise, nothing is escaped, blocks keep their line ends."""
        if self._environment is None:
            import jinja2

            loaders: list[jinja2.BaseLoader] = [jinja2.FileSystemLoader(self.directory)] if self.directory else []
            loaders.append(jinja2.PackageLoader("kernelllm.lm", "templates"))
            self._environment = jinja2.Environment(
                loader=jinja2.ChoiceLoader(loaders), undefined=jinja2.StrictUndefined, autoescape=False, keep_trailing_newline=True
            )
            self._environment.filters |= {"plain_module": plain_module, "plain_kernel": plain_kernel}
        return self._environment

    def names(self) -> list[str]:
        found = (n.removesuffix(".jinja") for n in self.environment.list_templates(extensions=["jinja"]))
        return sorted(n for n in found if not n.startswith("_"))

    def info(self, name: str) -> TemplateInfo:
        """Version, kind and summary. Raises UnknownName."""
        if name not in self.names():
            raise UnknownName(f"Unknown template {name!r}.", fix=f"Known: {', '.join(self.names())}.")
        assert self.environment.loader is not None
        text = self.environment.loader.get_source(self.environment, f"{name}.jinja")[0]
        head = _HEAD.match(text.lstrip())
        if head is None:
            return TemplateInfo(name=name, version="0", kind="chat", summary="")
        return TemplateInfo(name=name, version=head["version"], kind=head["kind"], summary=head["summary"])

    def render(self, name: str, *, kind: str | None = None, **context: Any) -> tuple[Message, ...]:
        """The messages of a template. ``kind`` settles a template that follows. Raises UsageError with the fault."""
        import jinja2

        info = self.info(name)
        kind = info.kind if info.kind != "follow" else (kind or "chat")
        try:
            text = self.environment.get_template(f"{name}.jinja").render(context)
        except jinja2.TemplateError as error:
            raise UsageError(f"The template {name!r} fails: {error}.", where=f"{name}.jinja") from error
        system, user = _split(text)
        if kind == "plain":
            return (Message("text", "\n\n".join(p for p in (system, user) if p) + "\n"),)
        return (*((Message("system", system),) if system else ()), Message("user", user))


def _split(text: str) -> tuple[str, str]:
    """(system, user) of a rendered template: parted by lines ``<<<system>>>`` and ``<<<user>>>``."""
    text = text.strip()
    if not text.startswith("<<<system>>>"):
        return "", text.removeprefix("<<<user>>>").strip()
    system, _, user = text.removeprefix("<<<system>>>").partition("<<<user>>>")
    return system.strip(), user.strip()


def example(name: str, backend: Backend) -> Example | None:
    """A language's worked example of an operator family, None where it has none. Raises UnknownName where there is no such family."""
    if name not in FAMILIES:
        raise UnknownName(f"There are no examples of {name!r}.", fix=f"Known: {', '.join(FAMILIES)}.")
    return backend.examples().get(name)


def family(source: str) -> str:
    """The worked example that is nearest to a problem, by the operators that its source names."""
    names = _operator_names(source)
    if names & {"softmax", "log_softmax", "logsumexp", "scaled_dot_product_attention", "multiheadattention", "softmin", "cross_entropy"}:
        return "softmax"
    if names & {"linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "matmult"} or any(n.startswith("conv") for n in names):
        return "epilogue" if names & _POINTWISE else "matmul"
    if names & {"sum", "mean", "max", "min", "norm", "var", "std", "prod", "argmax", "argmin", "cumsum", "cumprod", "median"}:
        return "reduction"
    if any(word in n for n in names for word in ("norm", "pool", "loss")):
        return "reduction"
    return "elementwise"


_POINTWISE = {
    "relu", "gelu", "silu", "sigmoid", "tanh", "hardtanh", "hardswish", "mish", "softplus", "leaky_relu", "leakyrelu", "elu", "clamp",
    "add", "sub", "mul", "div", "swish", "dropout", "exp", "relu6", "selu",
}  # fmt: skip


def _operator_names(source: str) -> set[str]:
    """Lower-case names of what is called, of operators, and of modules that are built."""
    try:
        tree = syntax_tree(source)
    except (SyntaxError, ValueError):
        return set()
    operators = {ast.MatMult: "matmult", ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            found.add(ast.unparse(node.func).split(".")[-1].lower())
    forwards = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name not in ("__init__", "get_inputs", "get_init_inputs")]
    for node in (n for f in forwards for n in ast.walk(f)):
        if isinstance(node, ast.BinOp):
            found.add(operators.get(type(node.op), ""))
    return found - {""}


def first_prompt(
    templates: Templates, name: str, problem: Problem, target: str = "sm_90", backend: str = DEFAULT_BACKEND
) -> tuple[Message, ...]:
    """The prompt that opens a conversation about a problem; ``target`` is a compile target or a device's name."""
    return templates.render(name, **_context(problem, target, open_backend(backend)))


def next_prompt(
    templates: Templates, opened_with: str, problem: Problem, history: Sequence[Attempt], target: str = "sm_90",
    backend: str = DEFAULT_BACKEND,
) -> tuple[Message, ...]:
    """The prompt of the next round: the last attempt with its feedback and the best correct one, nothing older."""
    last = history[-1]
    best = best_of(history)
    context = {
        **_context(problem, target, open_backend(backend)),
        "last_source": feedback.version(last),
        "feedback": feedback.of(last.verdict, last.candidate.source, gpus.of(target)),
        "verdict": feedback.one_line(last.verdict),
        "best_source": best.candidate.source.strip() if best else "",
        "best_feedback": feedback.headline(best.verdict) if best else "",
    }
    return _render_next(templates, opened_with, last.verdict.correct, context)


def follow_up(
    templates: Templates, opened_with: str, problem: Problem, last_source: str, verdict: str, target: str = "sm_90",
    backend: str = DEFAULT_BACKEND,
) -> tuple[Message, ...]:
    """As :func:`next_prompt`, of a version and what was said of it: what a model is trained with to take verdicts."""
    told = {"last_source": last_source.strip(), "verdict": verdict, "feedback": verdict, "best_source": "", "best_feedback": ""}
    context = {**_context(problem, target, open_backend(backend)), **told}
    return _render_next(templates, opened_with, verdict.startswith("correct"), context)


def _render_next(templates: Templates, opened_with: str, correct: bool, context: dict[str, Any]) -> tuple[Message, ...]:
    """A template may have its own form of later rounds: ``NAME-next``."""
    own = f"{opened_with}-next"
    name = own if own in templates.names() else "improve" if correct else "repair"
    return templates.render(name, kind=templates.info(opened_with).kind, **context)


def _context(problem: Problem, target: str, backend: Backend) -> dict[str, Any]:
    return {
        "problem": problem,
        "source": problem.source.strip(),
        "gpu": gpus.of(target),
        "family": family(problem.source),
        "backend": backend,
        "example": lambda name: example(name, backend),
    }
