"""Constrained decoding: which tokens, lines and calls an answer of ``mini`` may go on with, so that it is Python and fits the prompt.

Start with ``python_lines.py``; ``python_prefix.py`` rules single tokens.
"""
