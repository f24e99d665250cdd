"""Errors that a way of tracing raises where it does not fit the module."""


class Untraceable(Exception):
    """This way of tracing does not fit; says which operator or construct."""

    def __init__(self, cause: str, *, way: str = "") -> None:
        self.cause = cause
        super().__init__(f"{way}: {cause}" if way else cause)


class UnknownSize(Untraceable):
    """A size depends on the values of a tensor: no way of tracing fits."""
