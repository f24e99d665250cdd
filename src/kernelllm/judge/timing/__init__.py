"""How fast is the candidate? Rounds of measurements, baselines, the floor, and whether the worker's clock tells the truth."""
