"""The writer that needs no model: torch.export and Inductor's code generation, turned into readable Triton.

``capture/`` makes a graph of a problem, ``inductor/`` makes kernels of a graph, ``emit/`` makes a readable file of kernels;
``loops/`` compiles one step of a loop, ``templates/`` holds kernels of our own for what Inductor leaves to libraries. Start with
``compiler_writer.py``.
"""
