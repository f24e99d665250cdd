"""Strategies over (problem, writer, judge, budget): which candidates to ask for, and with what feedback."""

from __future__ import annotations

from kernelllm.search.base import Budget, Strategy, Task
from kernelllm.search.loop import Search, run

__all__ = ["Budget", "Search", "Strategy", "Task", "run"]
