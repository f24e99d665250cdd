"""Runs the reference model in the judge's process, and finds the other results of it that are as right."""
