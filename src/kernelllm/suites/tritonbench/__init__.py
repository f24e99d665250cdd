"""TritonBench and KernelBench-X: problems made from calls of operators that their files test and time.

Start with ``suite.py``.
"""
