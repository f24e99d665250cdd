"""Graph to scheduled kernels: Inductor run for a described CUDA device, with no GPU."""
