"""Training: recipes over verified pairs, and reinforcement learning whose reward is the verdict.

Start with ``config.py``, what a recipe says, and ``sft.py``; ``rl.py`` and ``dpo.py`` learn from verdicts.
"""
