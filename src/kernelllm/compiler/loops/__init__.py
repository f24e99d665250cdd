"""Loops over a tensor's dimension: what one step does is compiled on its own and called for each step.

Start with ``loop_file.py``, which says in which order the rewrites run; ``loop.py`` is the analysis.
"""
