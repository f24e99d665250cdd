"""Tiles of attention whose kernel has a score function of its own (:mod:`kernelllm.compiler.scored_text`)."""


def scored_attention_tiles(t, s, width, element_size):
    """(BLOCK_T, BLOCK_S, num_warps, num_stages)."""
    if element_size == 4:
        return (64, 64, 4, 2) if width <= 64 else (64, 32, 4, 2)
    if width <= 64 and s <= 128:
        return 128, 32, 4, 3
    return (64, 64, 4, 3) if width <= 128 else (128, 64, 8, 2)


def scored_gradient_tiles(width, element_size):
    """(BLOCK of queries and keys, num_warps, num_stages)."""
    if element_size == 4:
        return (32, 4, 2) if width <= 64 else (32, 8, 1)
    return (64, 4, 3 if width <= 64 else 2) if width <= 128 else (32, 8, 2)
