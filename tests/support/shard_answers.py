"""The model of the answers that a shard keeps for later duplicates."""

#: As in lua/_answers.lua: what Redis takes for an answer beside its bytes.
ANSWER_OVERHEAD = 800


class Answers:
    """Answers by fingerprint, the least recently used first."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}
        #: Of all that are counted, also of those whose lifetime has ended since.
        self.sizes: dict[str, int] = {}
        self._used: dict[str, int] = {}
        self._now = 0

    def touch(self, fps: set[str]) -> None:
        """Note that these were used, at one moment."""
        self._now += 1
        self._used |= dict.fromkeys(fps, self._now)

    def keep(self, bodies: dict[str, bytes], max_bytes: int) -> int:
        """Keep the answers of one call; returns how many had to go for them."""
        sizes = {fp: len(body) + ANSWER_OVERHEAD for fp, body in bodies.items()}
        kept = {fp: body for fp, body in bodies.items() if sizes[fp] <= max_bytes}
        if not kept:
            return 0
        self.bodies |= kept
        self.sizes |= {fp: sizes[fp] for fp in kept}
        self.touch(set(kept))
        return self.evict(max_bytes)

    def evict(self, max_bytes: int) -> int:
        """Forget the least recently used until the others take so much; returns how many."""
        oldest = sorted(self._used, key=lambda fp: (self._used[fp], fp))
        num_evicted = 0
        while sum(self.sizes.values()) > max_bytes:
            self.forget(oldest[num_evicted])
            num_evicted += 1
        return num_evicted

    def forget(self, fp: str) -> None:
        """Forget one."""
        for of_answers in (self.bodies, self.sizes, self._used):
            of_answers.pop(fp, None)
