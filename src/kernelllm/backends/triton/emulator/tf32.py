"""Whether interpreted products round as tensor cores do."""


class Tf32:
    """Whether products that ask for TF32, or do not ask for more, have their operands rounded to it."""

    rounds = True
