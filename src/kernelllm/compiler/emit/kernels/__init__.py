"""One kernel of Inductor as plain Triton: passes over its syntax tree, names, block sizes, and its text."""
