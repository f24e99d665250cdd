"""Layer 1: kernel languages, one file each. A backend says how its code is fenced, written, found and loaded."""
