"""Compares two outputs: structure, shapes, dtypes and values, within what rounding explains.

Start with ``compare.py``, which holds the tolerances.
"""
