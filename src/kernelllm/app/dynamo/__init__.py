"""``torch.compile(model, backend="kernelllm")``.

Start with ``backend.py``, the entry point; ``choice.py`` decides what runs each graph.
"""
