"""Runs the reference model in the judge's process, and finds the other results of it that are as right.

Start with ``reference.py``; ``tf32_allowance.py`` says where TF32 is allowed.
"""
