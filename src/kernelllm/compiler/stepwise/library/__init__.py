"""What files that are written step by step are made of: functions of an element, and one host function for each layer and operator.

They lean on the plain templates. As there, any set of them can be pasted into one file. Start with ``step_layers.py``.
"""
