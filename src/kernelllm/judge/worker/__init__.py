"""Runs the untrusted side: a forkserver, a supervisor for each worker, and the worker that holds one candidate.

Start with ``worker_main.py``; ``server.py`` forks it, ``recorder.py`` notes what candidate code does.
"""
