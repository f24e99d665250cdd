"""Kernel languages, one folder each. A backend knows how its code is written, loaded, launched, compiled and emulated.

Start with ``base.py``, the interface.
"""
