"""Whether a candidate is wrong because of masked lanes that a load gives no value: it runs again with numbers in them."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from kernelllm.judge.isolation.candidate_failure import CandidateFailure
from kernelllm.judge.isolation.candidate_process import CandidateProcess, CandidateRun

_MOST = 8
"""Loads that are looked at one by one."""
_FILLS = (0.0, -inf, inf)


def explanation(
    process: CandidateProcess, again: Callable[[tuple[str, ...], float], CandidateRun], right: Callable[[CandidateRun], bool]
) -> str:  # fmt: skip
    """Which loads a wrong result depends on; empty where it is wrong with other numbers there too.

    ``again``: the wrong run once more, where the lanes of the loads at these places stay undefined and others hold a number.
    """

    def good(places: tuple[str, ...], fill: float) -> bool:
        try:
            return right(again(places, fill))
        except CandidateFailure:
            return False

    try:
        places = process.report().undefined_lanes
    except CandidateFailure:  # the worker is gone
        return ""
    fill = next((fill for fill in _FILLS if good((), fill)), None) if places else None
    if fill is None or good(places, fill) or good(places, fill):  # a run as the wrong one was must be wrong again
        return ""
    named = " and ".join([place for place in places[:_MOST] if not good((place,), fill)][:3]) or places[0]
    return (
        f"The result depends on lanes that are masked off in a load of {named}, which gives them no value: they may hold anything. "
        'Pass other= (0.0 for a sum, -inf for a maximum; padding_option="zero" for a block pointer), or replace them by tl.where before '
        "they count."
    )
