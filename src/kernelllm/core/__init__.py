"""The words of the house. Nothing here imports torch or an SDK."""
