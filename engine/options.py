"""How much an engine takes on at once. Decides the names and defaults; imports nothing else."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one running batch.

    `max_batch_tokens` counts prompt plus output tokens over all rows; a single row may exceed it.
    `chunk_tokens` bounds the prompt tokens of one pass, and so the gap between two tokens of the
    rows that run meanwhile: on a CPU 512 costs 2 % of throughput beside 2048 and 256 7 %, for a
    third and a fifth of the longest gap. `refill_share` is the share of slots that must be free
    before rows join a running batch; 0: they join as soon as one is, which measured fastest (24
    documents in 8 slots: 13 % less time than once all were free). `max_drafts` bounds the guesses
    at a row's next tokens that a pass computes where they pay; 0: none.
    """

    max_rows: int = 32
    max_batch_tokens: int = 65_536
    chunk_tokens: int = 1024
    refill_share: float = 0.0
    max_drafts: int = 7
