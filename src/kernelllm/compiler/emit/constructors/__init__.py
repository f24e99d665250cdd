"""The class ``ModelNew`` and its constructor: layers, parameters and buffers, and what the constructor checks.

Start with ``model_class.py``.
"""
