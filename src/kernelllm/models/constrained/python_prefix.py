"""Whether a text is a prefix of valid Python, token by token: brackets, strings and indentation.

Nothing that needs a parser is checked. A text that is refused here has no continuation that parses (quotes of the same kind
inside an f-string, new in Python 3.12, are the exception).
"""

from __future__ import annotations

from typing import Self

_PAIRS = {")": "(", "]": "[", "}": "{"}


class PythonPrefix:
    """The state behind a text. :meth:`after` gives the state behind a longer one, or None where nothing valid begins with it."""

    __slots__ = ("_brackets", "_comment", "_escaped", "_indent", "_indents", "_last", "_opens", "_quote", "_run", "_start")

    def __init__(self) -> None:
        self._brackets = ""
        self._indents: tuple[int, ...] = (0,)
        self._indent = 0
        self._start = True  # in the indentation of a logical line
        self._opens = False  # the line before ended with a colon: this one is deeper
        self._last = ""  # last character of the logical line that is no space and no comment
        self._quote = ""  # ' or " or three of them: inside of a string
        self._run = ""  # quotes in a row that may open or close a string
        self._escaped = False
        self._comment = False

    def after(self, piece: str) -> Self | None:
        """The state behind a further piece."""
        state = object.__new__(type(self))
        for name in self.__slots__:
            setattr(state, name, getattr(self, name))
        return state if all(state._take(c) for c in piece) else None

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for states behind which the same texts are valid."""
        return tuple(getattr(self, name) for name in self.__slots__)

    @property
    def may_end(self) -> bool:
        """Whether the text may stop here."""
        inside = self._quote and not (len(self._run) == 3 == len(self._quote))
        half = self._run and not self._quote and len(self._run) == 1
        opened = self._opens or (self._last == ":" and not self._start)
        return not (self._brackets or inside or half or opened or self._escaped)

    @property
    def open(self) -> bool:
        """Whether a logical line goes on behind the end of this one."""
        return bool(self._brackets or self._escaped or (len(self._quote) == 3 and len(self._run) != 3))

    def _take(self, c: str) -> bool:
        if self._run and not self._quote:  # one or two quotes: an open string, an empty one, or the start of three
            if c == self._run[0] and len(self._run) < 3:
                self._run += c
                if len(self._run) == 3:
                    self._quote, self._run = self._run, ""
                return True
            self._quote = self._run if len(self._run) == 1 else ""
            self._run = ""
        if self._quote:
            return self._in_string(c)
        if self._escaped:  # a backslash outside of strings joins lines
            self._escaped = False
            return c == "\n"
        if self._comment and c != "\n":
            return True
        return self._in_code(c)

    def _in_string(self, c: str) -> bool:
        if len(self._run) == 3:  # three closing quotes have come
            self._quote = self._run = ""
            return self._take(c)
        if self._escaped:
            self._escaped = False
            self._run = ""
            return True
        if c == "\\":
            self._escaped = True
            self._run = ""
        elif len(self._quote) == 1:
            if c == "\n":
                return False
            if c == self._quote:
                self._quote = ""
        else:
            self._run = self._run + c if c == self._quote[0] else ""
        return True

    def _in_code(self, c: str) -> bool:
        if c == "\n":
            return self._line_end()
        if self._start and not self._brackets:
            if c == " ":
                self._indent += 1
                return True
            if c == "#":
                self._comment = True
                return True
            if c.isspace() or not self._placed():
                return False
            self._start = False
        if c == "#":
            self._comment = True
        elif c == "\\":
            self._escaped = True
        elif c in "\"'":
            self._run = self._last = c
        elif not c.isspace():
            self._last = c
            if c in "([{":
                self._brackets += c
            elif c in _PAIRS:
                if self._brackets[-1:] != _PAIRS[c]:
                    return False
                self._brackets = self._brackets[:-1]
        return True

    def _line_end(self) -> bool:
        self._comment = False
        if self._brackets:
            return True
        if not self._start:
            self._opens = self._last == ":"
        self._start, self._indent, self._last = True, 0, ""
        return True

    def _placed(self) -> bool:
        """Whether a logical line may begin at this indentation."""
        if self._opens:
            if self._indent <= self._indents[-1]:
                return False
            self._indents += (self._indent,)
            self._opens = False
            return True
        while self._indents and self._indents[-1] > self._indent:
            self._indents = self._indents[:-1]
        return bool(self._indents) and self._indents[-1] == self._indent
