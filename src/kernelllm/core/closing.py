"""A base class for objects that have to be closed after use."""

from __future__ import annotations

from typing import Self


class Closing:
    """An object that a ``with`` statement closes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> object:
        """Free what the object holds."""
        raise NotImplementedError
