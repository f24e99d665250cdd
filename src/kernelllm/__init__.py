"""kernelllm: PyTorch module in, verified Triton kernel out."""

__version__ = "0.1.0"
