"""Runs the processes that hold candidates: the forkserver, the sandbox around a worker, its limits, and the judge's end of one worker.

Start with ``candidate_process.py``; ``sandbox.py`` says what a worker may not do, ``limits.py`` how much it may use.
"""
