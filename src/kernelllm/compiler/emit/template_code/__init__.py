"""Copies of templates in a file, specialised for it: constants are substituted, and dead code is removed.

Start with ``specialise.py``.
"""
