"""The command line and the few functions that wire everything below into one path.

Start with ``main.py`` for the command line, ``python_api.py`` for Python; both lead to ``pipeline.py``, the main path.
"""
