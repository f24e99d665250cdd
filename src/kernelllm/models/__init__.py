"""Language models: messages in, text out, one file a provider, all imported lazily.

``open_model("hf/facebook/KernelLLM")``: the part before the first slash names the provider (a row of the
registry ``models``), the rest is the provider's own business.
"""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import msgspec

from kernelllm.core import registry
from kernelllm.core.errors import UnknownName, UsageError
from kernelllm.models.base import Completion, LanguageModel, Message, Provider, SamplingParams

__all__ = ["Available", "Completion", "LanguageModel", "Message", "SamplingParams", "available", "open_model"]


class Available(msgspec.Struct, frozen=True, kw_only=True):
    """One line of ``kernelllm list models``."""

    name: str
    summary: str
    example: str
    usable: bool
    lacks: str = ""


def split(name: str) -> tuple[str, str]:
    """``hf/facebook/KernelLLM`` to (``hf``, ``facebook/KernelLLM``)."""
    provider, _, model = name.partition("/")
    return provider, model


def provider_class(provider: str) -> type[Provider]:
    """The class behind a provider's name. Raises UnknownName; ``compiler`` is no language model."""
    found = registry.resolve("models", provider)
    if not (isinstance(found, type) and issubclass(found, Provider)):
        raise UnknownName(f"{provider!r} is not a language model.", fix="Name one as provider/name, for example hf/facebook/KernelLLM.")
    return found


def open_model(name: str, **options: Any) -> LanguageModel:
    """The model behind ``provider/name``; weights and SDKs are loaded when it is first asked.

    ``options`` go to the provider (``base_url``, ``dtype``, ``adapter``, ...); None values are dropped.
    Raises UnknownName for an unknown provider and UsageError for an option that it does not have.
    """
    provider, model = split(name)
    cls = provider_class(provider)
    given = {key: value for key, value in options.items() if value is not None}
    known = [p for p in inspect.signature(cls.__init__).parameters if p not in ("self", "model")]
    for key in given:
        if key not in known:
            raise UsageError(f"The provider {provider!r} has no option {key!r}.", fix=f"It has: {', '.join(known) or 'none'}.")
    return cls(model, **{key: _typed(cls, provider, key, value) for key, value in given.items()})


def _typed(cls: type[Provider], provider: str, key: str, value: Any) -> Any:
    """An option from a command line as the type that the provider declares. Raises UsageError where it does not fit."""
    hint = get_type_hints(cls.__init__).get(key, Any)
    if not isinstance(value, str) or hint in (str, str | None, Any):
        return value
    try:
        return msgspec.convert(value, hint, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"The option {key!r} of {provider!r} does not fit: {error}.", fix=f"Got {value!r}.") from error


def accepts(name: str, option: str) -> bool:
    """Whether the provider of ``name`` takes this option."""
    return option in inspect.signature(provider_class(split(name)[0]).__init__).parameters


def available() -> list[Available]:
    """Every provider, whether it is usable on this machine, and what it lacks. Imports no SDK."""
    rows: list[Available] = []
    for name in registry.names("models"):
        found = provider_class(name)
        lacks = found.lacks()
        rows.append(Available(name=name, summary=found.summary, example=found.example, usable=not lacks, lacks=lacks))
    return rows
