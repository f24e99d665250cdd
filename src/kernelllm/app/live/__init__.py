"""Live modules: an ``nn.Module`` in memory becomes one that runs verified kernels.

Start with ``optimize_module.py``; ``dispatch.py`` is the module that a user gets.
"""
