"""Triton: how its kernels are loaded, watched, compiled and emulated, and how a model is told to write them.

Start with ``triton_backend.py``.
"""
