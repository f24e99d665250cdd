"""Rewrites of the captured graph: operators become template operators, or forms that need fewer kernels or less memory traffic.

Start with :mod:`kernelllm.compiler.capture.passes`, which says in which order they run.
"""
