"""Late imports of optional packages, and keys that are read where they are needed and never shown."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from kernelllm.core.errors import MissingExtra, ModelError, UsageError

log = logging.getLogger(__name__)

_SECRET_SHAPES = re.compile(r"\b(?:sk|pk|rk|hf|gsk|xai|key|AIza)[-_][\w-]{12,}|(?<=Bearer )\S+|(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")


def need(package: str, extra: str) -> Any:
    """The imported package. Raises MissingExtra naming the extra that brings it."""
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name is not None and not package.startswith(error.name):
            raise
        raise MissingExtra(package, extra) from None


def installed(package: str) -> bool:
    """Whether a package could be imported; imports nothing."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def lacking(package: str, extra: str, key: str = "") -> str:
    """What keeps a provider from working here: its package, or its key."""
    if not installed(package):
        return f"pip install 'kernelllm[{extra}]'"
    if key and not find_key(key):
        return f"{key} in the environment or the keyring"
    return ""


def find_key(variable: str) -> str | None:
    """A key from the environment, else from the system's keyring (service ``kernelllm``), else None."""
    value = os.environ.get(variable)
    if value:
        return value
    if not installed("keyring"):
        return None
    keyring = import_module("keyring")
    try:
        found = keyring.get_password("kernelllm", variable)
    except keyring.errors.KeyringError as error:
        log.info("The keyring cannot be read: %s", error)
        return None
    return found or None


def key_or_error(variable: str, provider: str) -> str:
    """A key. Raises ModelError that says where to put one."""
    found = find_key(variable)
    if found is None:
        raise ModelError(
            f"There is no key for {provider}.",
            fix=f"Set {variable} in the environment, or store it with: keyring set kernelllm {variable}",
        )
    return found


def scrubbed(text: str, *secrets: str | None) -> str:
    """A text with the given secrets, and what looks like one, replaced by ``***``."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    return _SECRET_SHAPES.sub("***", text)


def upload(
    folder: Path, repository: str, kind: Literal["dataset", "model"], *, private: bool = False, message: str = "", leave: Sequence[str] = ()
) -> str:
    """Upload a folder, without the patterns to ``leave``, with the login of the ``hf`` command; its address.

    Raises UsageError where the hub refuses it, MissingExtra.
    """
    hub = need("huggingface_hub", "hf")
    try:
        api = hub.HfApi()
        address = api.create_repo(repository, repo_type=kind, private=private, exist_ok=True)
        api.upload_folder(repo_id=repository, repo_type=kind, folder_path=folder, commit_message=message, ignore_patterns=list(leave))
    except (hub.errors.HfHubHTTPError, hub.errors.HFValidationError, OSError) as error:
        why = str(error).strip().splitlines()[0]
        raise UsageError(f"{folder} was not uploaded: {why}", where=repository, fix="Log in with: hf auth login.") from error
    return str(address)
