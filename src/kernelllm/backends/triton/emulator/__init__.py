"""Triton's interpreter made fit for real kernels, and the driver of a GPU that is not there.

Start with ``emulated_launches.py``; ``interpreter.py`` has what is changed in Triton's own.
"""
