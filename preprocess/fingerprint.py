"""The identity of an answer: equal fingerprints may share one.

Covers all that decides the answer and what is reported with it: the model's version, the whole
prompt in tokens, how tokens are chosen and when they end, and the reports on the document itself.
Fields are framed by their lengths, so that no two sets of fields give the same bytes. May import
blake3 and docmill.wire.
"""

import struct

import msgpack
from blake3 import blake3

from docmill.report import Truncation
from docmill.wire import Spec

#: Raised when the fields change, so that answers stored under the old ones are not served.
_VERSION = 1
_DIGEST_BYTES = 16


class Fingerprints:
    """The fingerprints of all documents of one spec on one model version."""

    def __init__(self, spec: Spec, model_version: str) -> None:
        self.is_shareable = spec.temperature == 0 or spec.seed is not None
        # greedy answers depend on neither
        top_p, seed = (spec.top_p, spec.seed) if spec.temperature > 0 else (1.0, None)
        self._start = blake3(b"docmill answer")
        for field in (
            *(_VERSION, model_version, spec.max_tokens),
            *(spec.temperature, top_p, seed, list(spec.stop)),
        ):
            self._start.update(_frame(msgpack.packb(field)))

    def of(self, tokens: bytes, truncation: Truncation | None, warnings: tuple[str, ...]) -> str:
        """Return 32 hex digits, or '' when every answer is a fresh sample.

        Args:
            tokens: The whole prompt, packed.
            truncation: What was cut: the report belongs to the answer.
            warnings: Likewise.
        """
        if not self.is_shareable:
            return ""
        digest = self._start.copy()
        digest.update(_length(tokens))  # two updates, because joining would copy the prompt
        digest.update(tokens)
        if truncation or warnings:
            report = (truncation.model_dump() if truncation else None, warnings)
            digest.update(_frame(msgpack.packb(report)))
        return digest.hexdigest(length=_DIGEST_BYTES)


def _frame(field: bytes) -> bytes:
    return _length(field) + field


def _length(field: bytes) -> bytes:
    return struct.pack("<Q", len(field))
