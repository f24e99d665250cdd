"""Problem to graph: an ATen graph with symbolic sizes, on fake tensors, and what is known of its arguments."""
