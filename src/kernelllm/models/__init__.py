"""Language models: messages in, text out, one file a provider, all imported lazily.

``open_model("hf/facebook/KernelLLM")``: the part before the first slash names the provider (a row of the
registry ``models``), the rest is the provider's own business. Start with ``language_model.py``, the interface.
"""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import msgspec

from kernelllm.core import registry
from kernelllm.core.errors import UnknownName, UsageError
from kernelllm.models.language_model import Completion, LanguageModel, Message, SamplingParams

__all__ = ["Completion", "LanguageModel", "Message", "SamplingParams", "open_model"]


def _split(name: str) -> tuple[str, str]:
    """``hf/facebook/KernelLLM`` to (``hf``, ``facebook/KernelLLM``)."""
    provider, _, model = name.partition("/")
    return provider, model


def provider_class(provider: str) -> type[LanguageModel]:
    """The class behind a provider's name. Raises UnknownName; ``compiler`` is no language model."""
    found = registry.resolve("models", provider)
    if not (isinstance(found, type) and issubclass(found, LanguageModel)):
        raise UnknownName(f"{provider!r} is not a language model.", fix="Name one as provider/name, for example hf/facebook/KernelLLM.")
    return found


def open_model(name: str, **options: Any) -> LanguageModel:
    """The model behind ``provider/name``; weights and SDKs are loaded when it is first asked.

    ``options`` go to the provider (``base_url``, ``dtype``, ``adapter``, ...); None values are dropped.
    Raises UnknownName for an unknown provider and UsageError for an option that it does not have.
    """
    provider, model = _split(name)
    cls = provider_class(provider)
    given = {key: value for key, value in options.items() if value is not None}
    known = options_of(name)
    for key in given:
        if key not in known:
            raise UsageError(f"The provider {provider!r} has no option {key!r}.", fix=f"It has: {', '.join(known) or 'none'}.")
    return cls(model, **{key: _typed(cls, provider, key, value) for key, value in given.items()})


def _typed(cls: type[LanguageModel], provider: str, key: str, value: Any) -> Any:
    """An option from a command line as the type that the provider declares. Raises UsageError where it does not fit."""
    hint = get_type_hints(cls.__init__).get(key, Any)
    if not isinstance(value, str) or hint in (str, str | None, Any):
        return value
    try:
        return msgspec.convert(value, hint, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"The option {key!r} of {provider!r} does not fit: {error}.", fix=f"Got {value!r}.") from error


def options_of(name: str) -> list[str]:
    """Names of the options that the provider of ``name`` takes."""
    return [p for p in inspect.signature(provider_class(_split(name)[0])).parameters if p != "model"]
