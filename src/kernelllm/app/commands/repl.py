"""``kernelllm repl``: the interactive loop."""

from __future__ import annotations

from typing import Any

import click

from kernelllm.app.cli_options import Sectioned, base_url_option, judge_options, max_tokens_option, verbose_option


@click.command(cls=Sectioned)
@click.option(
    "-m", "--model", metavar="NAME", help="Who writes: provider/name, or compiler.  [default: the weights of KernelLLM(), or else mini]"
)
@max_tokens_option
@base_url_option
@judge_options
@verbose_option
def repl(model: str | None, max_tokens: int | None, base_url: str | None, **judging: Any) -> None:
    """Paste a module, see the kernel and its verdict.

    End the module with Ctrl-D or a line END. Works on a pipe too: the end of the input ends the loop.

    \b
    kernelllm repl -m compiler < examples/hinge_loss.py
    """
    from kernelllm.app.interactive import Repl
    from kernelllm.app.judge_options import judge_settings
    from kernelllm.app.kernelllm_api import KernelLLM

    loop = Repl(model or KernelLLM().model, judge=judge_settings(**judging), max_tokens=max_tokens, base_url=base_url)
    loop.writer.prepare()  # missing weights are found before anything is typed
    loop.run()
