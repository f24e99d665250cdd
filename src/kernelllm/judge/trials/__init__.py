"""Decides whether a candidate is right: which trials are made, the reference's side of them, and the comparison.

Start with ``all_trials.py``; ``schedule.py`` lists the trials, ``trial.py`` makes one.
"""
