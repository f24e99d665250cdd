"""Functions and operators of torch in simpler operators, for which Inductor has rules and whose sizes stay symbolic.

Start with :mod:`kernelllm.compiler.capture.intercept`, which puts them in torch's place while a module is traced.
"""
