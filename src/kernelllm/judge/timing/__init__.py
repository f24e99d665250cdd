"""Measures how fast a candidate is: rounds of measurements, baselines, the floor, and whether the worker's clock tells the truth.

Start with ``measure.py``; ``rounds.py`` decides how often to measure, ``roofline.py`` computes the floor.
"""
