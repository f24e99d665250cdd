"""Runs the processes that hold candidates: the forkserver, the sandbox around a worker, its limits, and the judge's end of one worker."""
