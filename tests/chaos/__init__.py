"""Chaos: real processes, a real Redis, and everything that may break breaking at once."""
