"""Settings: command line over environment over ``./kernelllm.toml`` over the user's file over defaults."""

from __future__ import annotations

import difflib
import os
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from kernelllm.core.errors import UsageError

_REFERENCE = "docs/reference/settings.md has them all."


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """Dollars for a million tokens."""

    input: float
    output: float


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set outside a command line."""

    model: str = "compiler"
    """What ``-m`` falls back to."""
    kernelllm_weights: str = "facebook/KernelLLM"
    """Repository or folder that ``KernelLLM()`` loads."""
    mini_weights: str | None = None
    """Folder of weights that ``-m mini`` takes in place of the package's own; ``kernelllm train`` makes such folders."""
    target: str = "sm_90"
    """What a machine with no GPU compiles for."""
    kernelbench: str | None = None
    """Folder of a KernelBench checkout."""
    kernelbench_x: str | None = None
    """Folder of a KernelBench-X checkout."""
    tritonbench: str | None = None
    """Folder of a TritonBench checkout."""
    base_url: str | None = None
    """OpenAI-compatible server for ``openai/NAME``."""
    db: str | None = None
    """SQLAlchemy URL of the attempt store; None means SQLite in ``data_dir``."""
    data_dir: str = ""
    """Where runs live; empty means ``$XDG_DATA_HOME/kernelllm``."""
    cache_dir: str = ""
    """Where verdicts and measured ceilings are kept; empty means ``$XDG_CACHE_HOME/kernelllm``. Can be deleted at any time."""
    verdict_cache: bool = True
    """Whether commands keep verdicts on disk and take them from there (``--no-cache`` switches it off for one command)."""
    prices: dict[str, Price] = {}
    """Model name to price; a model that is not here costs an unknown amount."""

    @property
    def data(self) -> Path:
        """The data folder, as a path (not created)."""
        if self.data_dir:
            return Path(self.data_dir).expanduser()
        base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
        return Path(base) / "kernelllm"

    @property
    def cache(self) -> Path:
        """The cache folder, as a path (not created)."""
        if self.cache_dir:
            return Path(self.cache_dir).expanduser()
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernelllm"


def user_file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "kernelllm" / "kernelllm.toml"


def load(overrides: dict[str, Any] | None = None) -> Settings:
    """Resolve all sources into one Settings. Raises UsageError naming the source and the wrong key."""
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for file in (user_file(), Path("kernelllm.toml")):
        if file.is_file():
            found = _of_file(file)
            values.update(found)
            sources.update(dict.fromkeys(found, str(file)))
    for field in Settings.__struct_fields__:
        variable = f"KERNELLLM_{field.upper()}"
        from_env = os.environ.get(variable)
        if from_env is not None and field != "prices":
            values[field], sources[field] = from_env, f"the variable {variable}"
    given = {k: v for k, v in (overrides or {}).items() if v is not None}
    values.update(given)
    sources.update(dict.fromkeys(given, "the call"))
    try:
        return msgspec.convert(values, Settings, strict=False)  # variables are text
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$.")
        key = next((k for k in values if place.startswith(k)), "")
        name = f"The setting {place.rstrip('`')}" if place else "A setting"
        raise UsageError(f"{name} does not fit: {what}.", where=sources.get(key, ""), fix=_REFERENCE) from error


def _of_file(file: Path) -> dict[str, Any]:
    """What a settings file sets. Raises UsageError where it cannot be read, or sets what is no setting."""
    try:
        found = tomllib.loads(file.read_text())
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        kind = "cannot be read" if isinstance(error, OSError) else "is not valid TOML"
        fix = f"Correct it (lines such as target = 'sm_90'), or remove it. {_REFERENCE}"
        raise UsageError(f"The settings file {kind}: {error}.", where=str(file), fix=fix) from error
    for key in found:
        if key not in Settings.__struct_fields__:
            near = difflib.get_close_matches(key, Settings.__struct_fields__, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            known = ", ".join(Settings.__struct_fields__)
            raise UsageError(f"There is no setting {key!r}.{hint}", where=str(file), fix=f"Known: {known}. {_REFERENCE}")
    return found
