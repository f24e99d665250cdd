"""Folders to the Hugging Face hub: sets of pairs, and models that were trained on them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from kernelllm.core.errors import UsageError
from kernelllm.models.extras import need


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
