"""Graphs of live modules as problems: operators become the lines of a forward that a person would write.

Start with ``graph_problem.py``.
"""
