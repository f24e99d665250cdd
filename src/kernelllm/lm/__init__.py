"""Language models as writers of candidates: prompt, answer, parse."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from kernelllm.core.settings import Price
    from kernelllm.lm.writer import Limit, LMWriter
    from kernelllm.models.base import LanguageModel
    from kernelllm.models.cached import Answers

LOCAL_TOKENS = 4096
SERVED_TOKENS = 16384
"""Default limits of new tokens: a served model may think at length before it answers."""


def open_writer(
    model: str | LanguageModel,
    *,
    template: str | None = None,
    templates: str | Path | None = None,
    target: str = "sm_90",
    answers: Answers | None = None,
    run: str = "",
    cache: bool = True,
    prices: Mapping[str, Price] | None = None,
    limit: Limit | None = None,
    options: Mapping[str, Any] | None = None,
    **sampling: Any,
) -> LMWriter:
    """A writer around a language model.

    ``model`` is ``provider/name`` or a model; ``options`` go to the provider; ``sampling`` are fields of
    :class:`kernelllm.models.SamplingParams` (None: its default). With ``answers`` (a Store) every answer is
    recorded before it is used; those of other runs serve again unless ``cache`` is False. Raises UsageError,
    UnknownName, MissingExtra.
    """
    from kernelllm.core import settings
    from kernelllm.core.errors import UsageError
    from kernelllm.lm.prompt import Templates
    from kernelllm.lm.writer import LMWriter, price_of
    from kernelllm.models import SamplingParams, open_model
    from kernelllm.models.cached import Cached

    opened = open_model(model, **(options or {})) if isinstance(model, str) else model
    given = {name: value for name, value in sampling.items() if value is not None}
    for name in given:
        if name not in SamplingParams.__struct_fields__:
            raise UsageError(f"There is no sampling parameter {name!r}.", fix=f"Known: {', '.join(SamplingParams.__struct_fields__)}.")
    given.setdefault("max_tokens", LOCAL_TOKENS if getattr(opened, "local", False) else SERVED_TOKENS)
    params = msgspec.convert({**given, "stop": tuple(given.get("stop", ()))}, SamplingParams)
    wrapped: Any = opened if answers is None else Cached(opened, answers, salt="" if cache else run, run=run)
    price = price_of(opened.name, prices if prices is not None else settings.load().prices)
    if limit is not None and limit.usd is not None and price is None and not getattr(opened, "local", False):
        raise UsageError(
            f"The price of {opened.name} is not known, so its cost cannot be limited.",
            fix=f'Add it to kernelllm.toml: [prices."{opened.name}"] input = ..., output = ... (dollars for a million tokens).',
        )
    return LMWriter(wrapped, template=template, templates=Templates(templates), params=params, target=target, price=price, limit=limit)
