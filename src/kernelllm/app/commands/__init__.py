"""One file a verb. Each imports click alone at the top; what does the work is imported when the verb runs.

Start with ``optimize.py``.
"""
