"""Strategies over (problem, writer, judge, budget): which candidates to ask for, and with what feedback.

Start with ``search_loop.py``; ``sample.py`` and ``refine.py`` are the strategies.
"""

from __future__ import annotations

from kernelllm.search.refine import is_over
from kernelllm.search.search_loop import Search, run
from kernelllm.search.strategy import Enough, SearchBudget, Strategy, Task

__all__ = ["Enough", "Search", "SearchBudget", "Strategy", "Task", "is_over", "run"]
