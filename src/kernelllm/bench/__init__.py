"""A suite through a model: every sample is judged and stored as it comes.

Start with ``runner.py``; ``metrics.py`` has pass@k and fast_p, ``summary.py`` the tables.
"""
