"""Chaos: real processes, a real Redis, and everything that may break breaking at once.

A storm (`storm.py`, `make chaos`) kills a thousand processes at random: at any moment between,
before, after and within the Redis commands of every step (`mortal.py`), and from outside, where it
also freezes, cuts, stalls and starves (`injuries.py`). Customers (`customer.py`) submit piles of
documents (`piles.py`) and read their results meanwhile, and are killed as well. Then the audit
(`audit.py`) holds the promises against what is there. The seed that a run prints draws the same
again (`CHAOS_SEED=… make chaos`); how the processes interleave, no seed decides.

The tests beside it let single things go wrong, one at a time, on a scene of their own (`scene.py`).
"""
