"""Decides whether a candidate is right: which trials are made, the reference's side of them, and the comparison."""
