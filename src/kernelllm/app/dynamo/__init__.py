"""``torch.compile(model, backend="kernelllm")``."""
