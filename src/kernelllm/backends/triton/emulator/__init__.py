"""Triton's interpreter made fit for real kernels, and the driver of a GPU that is not there."""
