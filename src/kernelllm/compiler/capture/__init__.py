"""Problem to graph: an ATen graph with symbolic sizes, on fake tensors, and what is known of its arguments.

Start with ``capture.py``; ``captured.py`` is its result, ``passes.py`` the order of all rewrites.
"""
