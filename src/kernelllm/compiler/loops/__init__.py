"""Loops over a tensor's dimension: what one step does is compiled on its own and called for each step."""
