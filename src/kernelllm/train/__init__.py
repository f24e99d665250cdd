"""Training: recipes over verified pairs, and reinforcement learning whose reward is the verdict."""
