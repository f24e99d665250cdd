"""Draws the inputs of trials, and tries shapes, layouts and values that the problem itself does not draw.

Start with ``input_distribution.py``.
"""
