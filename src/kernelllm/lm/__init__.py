"""Language models as writers of candidates: prompt, answer, parse.

Start with ``lm_writer.py``.
"""
