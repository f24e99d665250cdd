"""Text from candidates and models, made safe to show."""

from __future__ import annotations

_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))
_BIDIRECTIONAL = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_REMOVED = {code: None for code in (*_CONTROLS, *_BIDIRECTIONAL) if chr(code) not in "\n\t"}
_SURROGATES = dict.fromkeys(range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}")
_TABLE: dict[int, str | None] = {**_REMOVED, **_SURROGATES}


def printable(text: str) -> str:
    """``text`` without what a terminal obeys or cannot show: control characters (newlines and tabs stay), changes of the direction of
    writing, and halves of surrogate pairs."""
    return text if text.isascii() and text.isprintable() else text.translate(_TABLE)
