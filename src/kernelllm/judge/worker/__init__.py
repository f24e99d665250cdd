"""Runs the untrusted side: a forkserver, a supervisor for each worker, and the worker that holds one candidate."""
