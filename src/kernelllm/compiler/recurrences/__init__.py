"""Loops as operators: a loop over time becomes one kernel with a program for each row, and its gradients another that goes back.

Start with ``loop_calls.py``.
"""
