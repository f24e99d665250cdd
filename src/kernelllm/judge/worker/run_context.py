"""Enters what a run's command says of gradients, autocast, hooks, the thread, and how often to call."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from kernelllm.judge.caller_settings import FUNCTIONAL, INFERENCE, MOVED, OWN, RESULTS, THREAD, functional, move, own_results, setting
from kernelllm.judge.caller_settings import given as as_given
from kernelllm.judge.hooks import hooked, parts_hooked
from kernelllm.judge.transport import protocol as p
from kernelllm.judge.transport import values
from kernelllm.judge.worker import fake_cuda

_Thread = threading.Thread  # taken before any candidate code runs


@contextlib.contextmanager
def run_context(command: p.RunOnce, model: Any, inputs: Any) -> Iterator[None]:
    """A context manager for the call."""
    asking = [t for t in values.flatten(inputs) if t.is_floating_point() and not t.requires_grad] if command.grad else []
    for tensor in asking:
        tensor.requires_grad_(True)
    grad = command.grad or command.setting == RESULTS
    inference = command.inference or command.setting == INFERENCE
    mode = torch.inference_mode() if inference else torch.enable_grad() if grad else torch.no_grad()
    cudnn: Any = torch.backends.cudnn
    exact = cudnn.flags(enabled=True, allow_tf32=False) if command.exact_products else contextlib.nullcontext()
    try:
        with (
            mode,
            exact,
            fake_cuda.autocast() if command.autocast else contextlib.nullcontext(),
            hooked(model) if command.hooked else contextlib.nullcontext(),
            parts_hooked(model, command.hooked_parts) if command.hooked_parts else contextlib.nullcontext(),
            setting(command.setting, model) if command.setting else contextlib.nullcontext(),
        ):
            yield
    finally:
        for tensor in asking:
            tensor.requires_grad_(False)


def last_call(model: Callable[..., Any], inputs: Any, command: p.RunOnce) -> Any:
    """What the last of the calls returns."""
    given = len(inputs) - len(command.by_name)
    named = command.named | dict(zip(command.by_name, inputs[given:], strict=True))
    inputs = as_given(command.setting, inputs)
    if command.setting == MOVED:
        move(model)
    if command.setting == OWN:
        inputs = own_results(model, inputs)
    if command.setting == FUNCTIONAL:
        model = functional(model)
    for _ in range(command.times - 1):
        model(*inputs[:given], **named)
    return model(*inputs[:given], **named)


def in_its_thread(run: Callable[[p.RunOnce], p.Reply]) -> Callable[[p.RunOnce], p.Reply]:
    """Does the command in a new thread where it says so. All of it: torch's modes are those of a thread."""

    def answer(command: p.RunOnce) -> p.Reply:
        if command.setting != THREAD:
            return run(command)
        replies, errors = list[p.Reply](), list[BaseException]()

        def work() -> None:
            try:
                replies.append(run(command))
            except BaseException as error:  # noqa: BLE001 (handed to the thread that waits)
                errors.append(error)

        thread = _Thread(target=work)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return replies[0]

    return answer
