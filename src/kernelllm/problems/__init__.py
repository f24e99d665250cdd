"""What a problem is made of: instantiate, trace, relate sizes, shrink, draw inputs, lint. It knows no source of problems.

Start with ``instance.py``; ``sizes.py`` and ``shrink.py`` change its sizes.
"""
