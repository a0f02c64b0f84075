"""How much an engine takes on at once. Decides the names and defaults; imports nothing else."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one running batch.

    `max_batch_tokens` counts prompt plus output tokens over all rows; a single row may exceed it.
    `chunk_tokens` bounds one prefill pass. `refill_share` is the share of slots that must be free
    before rows join a running batch: joining interrupts decoding and re-lays the slab.
    """

    max_rows: int = 32
    max_batch_tokens: int = 65_536
    chunk_tokens: int = 2048
    refill_share: float = 0.25
