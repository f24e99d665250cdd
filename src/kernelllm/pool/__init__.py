"""Where work runs: the processes of this machine, and who may use a GPU when.

Start with ``local.py``, the process pool; ``locks.py`` has the locks on a device.
"""
