"""Live modules: an ``nn.Module`` in memory becomes one that runs verified kernels."""
