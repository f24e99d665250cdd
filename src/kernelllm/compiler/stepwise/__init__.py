"""Files that go through a module step by step: each line of its forward is a line of the file's, or of a kernel.

What is a function of an element is gathered into kernels with one step a line; all else is one call of a host function
(:mod:`kernelllm.compiler.stepwise.library`). The text is regular, so that a model learns it from few examples: a new chain of operators is
made of lines that it knows. A module that needs more is left to the compiler. Start with ``steps_writer.py``.
"""
