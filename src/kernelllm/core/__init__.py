"""What all other packages share: types, errors, settings, the registry, the store. Nothing here imports torch or an SDK.

Start with ``types.py``: Problem, Candidate, Verdict, Attempt.
"""
