"""Values of tensors that a forward reads on the host, in conditions for example: how the trace goes on without them.

Start with ``branches.py``.
"""
