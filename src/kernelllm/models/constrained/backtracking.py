"""Backtracking while an answer is sampled: after an invalid line, sampling resumes at an earlier token, which is then excluded.

The token is the one with the least probability: within the line at first, then within the function, then anywhere. A helper function
that is called but not yet defined is started before its caller. A line that the prompt gives is copied from the prompt.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from kernelllm.models.constrained.prompt_module import PromptModule, plain_name
from kernelllm.models.constrained.python_lines import Instead, PythonLines

_KNOWN: Final = 200_000
"""Texts that are remembered."""
_UNDONE: Final = 32
"""Times that an answer goes back, at most; then it goes on as it is."""
_DROPPED: Final = 800
"""Tokens that an answer gives up by going back, at most."""
_ON: Final = 512
"""Tokens for which an answer goes on in which a line cannot stand: it is wrong, and may never end."""
_BEGUN: Final = 12
"""Lines and functions that are begun for an answer, at most."""
_TOKENS: Final = 6
"""Tokens that are not taken at one place, at most."""
_SAME: Final = 3
"""Times that a line is drawn again before those above it are."""
_SURE: Final = 0.02
"""Where all other tokens have less than this together, another one does not help."""
_MODEL: Final = "class ModelNew"
_FUNCTION: Final = re.compile(r"\ndef (\w+)\(")
_GAP: Final = "\n\n\n"


class LineStates:
    """What texts of whole lines lead to. It is found out once for all rows: their answers have most lines in common."""

    def __init__(self) -> None:
        self._known: dict[tuple[PythonLines, str, PromptModule | None], tuple[PythonLines | None, str]] = {}

    def after(self, found: PythonLines, text: str, asked: PromptModule | None = None) -> tuple[PythonLines | None, str]:
        """(the state behind the whole lines of a text, what stands behind them). The state is None where a line cannot stand: each holds
        a statement, or the head of one, as the files do that ``mini`` learns from."""
        asked = asked if found.model or _MODEL in text else None
        key = found, text, asked
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            known = self._known[key] = self._found(found, text, asked)
        return known

    @staticmethod
    def _found(found: PythonLines, text: str, asked: PromptModule | None) -> tuple[PythonLines | None, str]:
        *whole, rest = text.split("\n")
        for line in whole:
            then = found.after(line)
            if then is None or then.missing(asked):
                return None, rest
            found = then.following(asked)
        return found, rest


class Backtracking:
    """One answer: its tokens, what is bound behind its lines, and which tokens it does not take again."""

    def __init__(self, behind: LineStates, first: PythonLines, pieces: Sequence[str], asked: PromptModule | None) -> None:
        self._behind, self._first, self._pieces, self._asked = behind, first, pieces, asked
        self._found, self._text = first, ""
        self._tokens: list[int] = []
        self._states: list[int] = []
        self._chances: list[float] = []
        self._refused: dict[int, dict[int, float]] = {}
        self._tries: Counter[int] = Counter()
        self._begun: set[str] = set()
        self._undone = self._dropped = self._on = 0
        self._new_line = -1  # where the token that was not taken again began a line
        self.wanted = ""
        """The text with which the answer has to go on."""

    @property
    def refused(self) -> dict[int, float]:
        """The tokens that are not taken here, with their chances."""
        return self._refused.get(len(self._tokens), {}) if self._undone <= _UNDONE else {}

    @property
    def lost(self) -> bool:
        """Whether nothing is to be had from going on."""
        return self._on > _ON

    def suitable(self) -> list[int]:
        """The tokens that have most of what is wanted, from its beginning; they may go on behind it."""
        shared = {
            token: min(len(piece), len(self.wanted))
            for token, piece in enumerate(self._pieces)
            if piece and (piece.startswith(self.wanted) or (self.wanted.startswith(piece) and not self._before_line(piece)))
        }
        longest = max(shared.values(), default=0)
        return [token for token, length in shared.items() if length == longest]

    def _before_line(self, piece: str) -> bool:
        """Whether a token has line ends alone, the last one before a line that is wanted: tokens of whole lines begin with that."""
        return not piece.strip("\n") and self.wanted[len(piece) : len(piece) + 1] not in ("", " ", "\n")

    def refuses(self, token: int, ends: bool) -> bool:
        """Whether a token is not taken here: it was, and a line could not stand, or it goes on with a line that had ended."""
        return token in self.refused or (self._undone <= _UNDONE and len(self._tokens) == self._new_line and not self._breaks(token, ends))

    def _breaks(self, token: int, ends: bool) -> bool:
        return ends or self._pieces[token].startswith("\n")

    def takes(self, token: int, ends: bool, chance: float, state: int) -> tuple[int, int] | None:
        """Look at the next token and the state of the text before it. Where a line cannot stand: (tokens that stay, the text's state
        behind them)."""
        if self._undone > _UNDONE:
            self._on, self.wanted = self._on + 1, ""
            return None
        piece = "\n" if ends else self._pieces[token]
        self._tokens.append(token)
        self._states.append(state)
        self._chances.append(1.0 if self.wanted else chance)
        self.wanted = self.wanted[len(piece) :]
        self._text += piece
        if "\n" not in piece:
            return None
        then, rest = self._behind.after(self._found, self._text, self._asked)
        if then is None or (ends and not then.may_end):
            self._undone, self.wanted = self._undone + 1, ""
            return self._goes_back(ends) if self._undone <= _UNDONE else None
        self._found, self._text = then, rest
        return None

    def _goes_back(self, ends: bool) -> tuple[int, int] | None:
        pieces = [self._pieces[token] for token in self._tokens]
        if ends:
            pieces[-1] = "\n"
        whole = "".join(pieces)
        starts = [0, *accumulate(map(len, pieces))]
        state, line, at = self._wrong(whole)
        instead = (state.instead(line) or self._missing(state, line)) if line else None
        if instead is not None and instead.text not in self._begun and len(self._begun) < _BEGUN and self._can_write(instead):
            return self._begins(instead, line, whole, starts, at)
        self._tries[at] += 1
        margin = max(whole.rfind(_GAP, 0, at), 0)
        for begin in (at - 1, margin, 0)[min((self._tries[at] - 1) // _SAME, 2) :]:
            first = _token_at(starts, max(begin, 0))
            place = max(range(first, len(self._tokens)), key=self._open)
            if self._open(place) >= _SURE:
                break
        else:  # the model is sure of all tokens of the line
            self._undone = _UNDONE + 1
            return None
        self._new_line = place if pieces[place].startswith("\n") else -1
        self._refused.setdefault(place, {})[self._tokens[place]] = self._chances[place]
        return self._cut(place)

    def _wrong(self, whole: str) -> tuple[PythonLines, str, int]:
        """(the state before the line that cannot stand, the line, where it begins); an end that comes too early is an empty line."""
        state, at = self._found, len(whole) - len(self._text)
        for line in self._text.split("\n")[:-1]:
            then = state.after(line)
            if then is None or then.missing(self._asked):
                return state, line, at
            state, at = then.following(self._asked), at + len(line) + 1
        return state, "", len(whole)

    def _begins(self, instead: Instead, line: str, whole: str, starts: Sequence[int], at: int) -> tuple[int, int]:
        self._begun.add(instead.text)
        to = whole.rfind(f"{_GAP}@triton.jit" if line.startswith("class") else _GAP, 0, at) if instead.before else at
        to = to if to >= 0 else whole.rfind(_GAP, 0, at)
        place = _token_at(starts, max(to - (not instead.before), 0))
        self.wanted = whole[starts[place] : max(to, 0)] + (_GAP if instead.before else "") + instead.text
        return self._cut(place)

    def _missing(self, state: PythonLines, line: str) -> Instead | None:
        """The beginning of a function that the model has to have, as far as it is known how it begins."""
        then = state.after(line)
        for name in sorted(then.missing(self._asked)) if then is not None else ():
            for match in (m for piece in self._pieces if "def " in piece for m in _FUNCTION.finditer(piece)):
                text = f"@triton.jit\ndef {match[1]}("
                if plain_name(match[1]) == name and text not in self._begun:
                    return Instead(text, before=True)
        return None

    def _can_write(self, instead: Instead) -> bool:
        """Whether it is a line, or a function that many files have: the model knows those that are in tokens of its own."""
        head = instead.text.rpartition("\n")[2]
        return not instead.before or any(head in piece for piece in self._pieces)

    def _open(self, place: int) -> float:
        """How much other tokens have together that were not tried at a place."""
        refused = self._refused.get(place, {})
        if len(refused) >= _TOKENS:
            return 0.0
        return 1 - self._chances[place] - sum(refused.values())

    def _cut(self, place: int) -> tuple[int, int]:
        state = self._states[place]
        self._dropped += len(self._tokens) - place
        if self._dropped > _DROPPED:
            self._undone = _UNDONE + 1
        del self._tokens[place:], self._states[place:], self._chances[place:]
        self._refused = {at: tokens for at, tokens in self._refused.items() if at <= place}
        self._found, self._text = self._first, ""
        for token in self._tokens:
            self._text += self._pieces[token]
            if "\n" in self._pieces[token]:
                found, self._text = self._behind.after(self._found, self._text, self._asked)
                assert found is not None
                self._found = found
        return place, state


def _token_at(starts: Sequence[int], place: int) -> int:
    """The token in which a character stands."""
    return max(min(bisect_right(starts, place), len(starts) - 1) - 1, 0)
