"""Tries the candidate as users use a module: other calls, modes, settings, attributes and gradients than the problem's own.

Start with ``usage_trials.py``.
"""
