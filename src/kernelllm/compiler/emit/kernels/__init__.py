"""One kernel of Inductor as plain Triton: passes over its syntax tree, names, block sizes, and its text.

Start with ``clean.py``, the passes; ``kernel_text.py`` prints the result.
"""
