"""The HTML report: charts, data and one self-contained page.

Start with ``build.py``.
"""
