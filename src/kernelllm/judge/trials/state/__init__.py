"""Sets the parameters and buffers that both models have in a trial.

Start with ``parameter_states.py``.
"""
