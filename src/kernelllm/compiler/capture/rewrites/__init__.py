"""Rewrites of the captured graph: operators become template operators, or forms that need fewer kernels or less memory traffic.

:mod:`kernelllm.compiler.capture.passes` says in which order they run.
"""
