"""Fake tensors, in any thread."""

from __future__ import annotations

import threading
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode


def fake_mode(**options: Any) -> FakeTensorMode:
    """A FakeTensorMode that allows real tensors beside fake ones."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode(allow_non_fake_inputs=True, **options)
    mode.cache_enabled = False  # a mode lives for one problem: making keys takes longer than what is found again
    if mode.avoid_device_init:
        _keep_device_guard()
    return mode


@cache
def _keep_device_guard() -> None:
    """Set torch's stand-in for the guard of a GPU that is not there, in a thread that never ends.

    Without this the first thread that enters a FakeTensorMode sets it, in memory of its own: once that thread ends, the next mode crashes.
    """
    set_guard = getattr(torch._C, "_ensureCUDADeviceGuardSet", lambda: None)
    if threading.current_thread() is threading.main_thread():
        set_guard()
        return
    done = threading.Event()

    def keep() -> None:
        set_guard()
        done.set()
        threading.Event().wait()

    threading.Thread(target=keep, name="kernelllm-device-guard", daemon=True).start()
    done.wait()
