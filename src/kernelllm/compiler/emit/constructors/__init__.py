"""The class ``ModelNew`` and its constructor: layers, parameters and buffers, and what the constructor checks."""
