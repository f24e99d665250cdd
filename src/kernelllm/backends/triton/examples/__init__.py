"""Worked examples that prompts show: each a reference and its kernel, both of them real, tested files.

``NAME_reference.py`` is a problem in KernelBench's format, ``NAME_kernel.py`` its candidate.
"""
