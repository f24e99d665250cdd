"""Is the candidate right? Which trials are made, the reference's side of them, and the comparison."""
