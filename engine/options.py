"""How much an engine takes on at once. Decides the names and defaults; imports nothing else."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one running batch.

    `max_batch_tokens` counts prompt plus output tokens over all rows; a single row may exceed it.
    `chunk_tokens` bounds the prompt tokens of one pass. `refill_share` is the share of slots that
    must be free before rows join a running batch. `max_drafts` bounds the guesses at a row's next
    tokens that a pass computes where they pay; 0: none.
    """

    max_rows: int = 32
    max_batch_tokens: int = 65_536
    chunk_tokens: int = 2048
    refill_share: float = 0.25
    max_drafts: int = 7
