"""Templates to learn from: the same host functions in one way for all sizes and settings, with few decisions; what is fast comes second.

A file that is written with the option ``short`` has these as they stand here, wherever they serve for all that it calls. Start
with ``products.py``.
"""
