"""Graph to scheduled kernels: Inductor run for a described CUDA device, with no GPU.

Start with ``lower.py``; most other files each change one thing that Inductor does.
"""
