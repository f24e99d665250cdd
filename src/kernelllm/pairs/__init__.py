"""(torch, triton) pairs: rows out of judged attempts, without duplicates, without the benchmarks' problems, split by family.

Start with ``from_runs.py`` and ``cleaning.py``; ``harvest.py`` finds modules in installed packages.
"""
