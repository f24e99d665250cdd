"""Compares two outputs: structure, shapes, dtypes and values, within what rounding explains."""
