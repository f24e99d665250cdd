"""Carries what crosses between judge and worker: commands, replies, values, and the arenas that hold tensors.

Start with ``protocol.py``, the messages.
"""
