"""The command line's entry point: finds the verb, runs it, and turns errors into a few lines and an exit code."""

from __future__ import annotations

import errno
import gc
import json
import re
import signal
import traceback
from importlib import import_module
from typing import Any

import click

from kernelllm import __version__
from kernelllm.app.known_commands import KnownCommands
from kernelllm.core.errors import KernelLLMError
from kernelllm.core.garbage_collection import collect_seldom
from kernelllm.core.quiet import quiet_libraries, results_only
from kernelllm.core.text import printable

COMMANDS = {
    "optimize": "kernelllm.app.commands.optimize:optimize",
    "check": "kernelllm.app.commands.check:check",
    "bench": "kernelllm.app.commands.bench:bench",
    "report": "kernelllm.app.commands.report:report",
    "compare": "kernelllm.app.commands.report:compare",
    "pairs": "kernelllm.app.commands.pairs:pairs",
    "train": "kernelllm.app.commands.train:train",
    "prompt": "kernelllm.app.commands.prompt:prompt",
    "repl": "kernelllm.app.commands.repl:repl",
    "runs": "kernelllm.app.commands.runs:runs",
    "list": "kernelllm.app.commands.list:list_",
    "problems": "kernelllm.app.commands.problems:problems",
    "doctor": "kernelllm.app.commands.doctor:doctor",
}
"""Verb to ``module:attribute``, in the order in which ``--help`` shows them."""

INTERRUPTED = 130
"""Exit code after Ctrl-C: 128 + SIGINT, as shells expect."""

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""What the system says where a disk, a quota or a limit on files is used up."""
ALSO_FULL = (
    "No space left on device", "Disk quota exceeded", "PytorchStreamWriter failed writing", "] . unexpected pos",
    "No usable temporary directory",
)  # fmt: skip
"""What safetensors, torch.save and tempfile say then, in errors of their own."""


REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS}
"""What the system says where a person may not write or read."""


class Verbs(KnownCommands):
    """A click group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        ctx.meta["kernelllm.json"] = "--json" in args  # also for what click itself finds wrong, before it has read the option
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; every error that leaves it ends here."""
        quiet_libraries()
        try:
            with results_only():
                return super().invoke(ctx)
        except KernelLLMError as error:
            fail(ctx, str(error), error)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            click.echo("Interrupted before there was anything to keep.", err=True)
            ctx.exit(INTERRUPTED)
        except click.UsageError as error:
            if ctx.meta.get("kernelllm.json"):
                click.echo(_error_json(error, error.format_message()))
            raise
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:  # the outermost border: a person gets a paragraph, not a traceback
            if isinstance(error, OSError) and error.errno == errno.EPIPE:
                raise
            if (isinstance(error, OSError) and error.errno in FULL) or any(said in str(error) for said in ALSO_FULL):
                fail(ctx, f"Nothing more can be written: {error}. Free some space (see 'kernelllm doctor') or raise the limit.", error)
                ctx.exit(1)
            if isinstance(error, OSError) and error.filename and error.errno in REFUSED:
                fail(ctx, f"{error.filename} cannot be used: {error.strerror}. Choose another place, or change its permissions.", error)
                ctx.exit(2)
            if isinstance(error, ModuleNotFoundError) and error.name in _required():
                text = f"{error.name} is not installed, and kernelllm needs it: pip install {error.name}. See 'kernelllm doctor'."
                fail(ctx, text, error)
                ctx.exit(2)
            text = f"This is a fault in kernelllm: {type(error).__name__}: {error}. Please report it with the output of 'kernelllm doctor'"
            text += "." if ctx.meta.get("kernelllm.verbose") else " and the traceback that --verbose shows."
            fail(ctx, text, error)
            ctx.exit(1)


def _required() -> set[str]:
    """Packages without which kernelllm does not work: those that it was to be installed with."""
    from importlib import metadata

    try:
        lines = metadata.requires("kernelllm") or []
    except metadata.PackageNotFoundError:
        return set()
    return {re.split(r"[^\w-]", line, maxsplit=1)[0] for line in lines if "extra ==" not in line}


def fail(ctx: click.Context, text: str, error: BaseException) -> None:
    """Say on standard error what was wrong, where, and what to do; with ``--json`` an object on standard output as well."""
    if ctx.meta.get("kernelllm.verbose"):
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    said = {"Error": error.what, "  In": error.where, "  Fix": error.fix} if isinstance(error, KernelLLMError) else {"Error": text}
    for label, part in said.items():
        if part:
            click.echo(f"{label}: {' '.join(printable(part).split())}", err=True)
    if ctx.meta.get("kernelllm.json"):
        click.echo(_error_json(error, str(error)))


def _error_json(error: BaseException, text: str) -> str:
    told = error if isinstance(error, KernelLLMError) else KernelLLMError(text)
    return json.dumps({"error": {"kind": type(error).__name__, "what": told.what, "where": told.where, "fix": told.fix}}, indent=2)


@click.command(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="kernelllm", message="%(prog)s %(version)s")
def cli() -> None:
    """PyTorch module in, verified Triton kernel out.

    Begin with 'kernelllm optimize FILE.py', and with 'kernelllm doctor' where that fails.

    Exit codes: 0 what was asked holds, 1 it does not, 2 wrong use, 130 interrupted.
    """


def main() -> None:
    """What the ``kernelllm`` script calls once it is loaded."""
    collect_seldom()
    try:
        cli.main(prog_name="kernelllm")
    except SystemExit as end:
        if end.code == INTERRUPTED:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # what is left is putting away
        raise
    finally:
        gc.freeze()  # otherwise Python looks through all of torch for garbage before it ends
