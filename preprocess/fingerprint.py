"""The identity of an answer: equal fingerprints may share one.

Covers all that decides the answer: whose it is, the model's version, the prompt, how tokens are
chosen and when they end. The document counts by its tokens, or by its canonical text where the
request allows that and nothing was cut. Fields are framed by their lengths, so that no two sets of
fields give the same bytes. May import blake3, msgpack, docmill.wire and preprocess.canonical.
"""

import struct

import msgpack
from blake3 import blake3

from docmill.wire import Spec
from preprocess import canonical

#: Raised when the fields change, so that answers stored under the old ones are not served.
_VERSION = 2
_DIGEST_BYTES = 16


class Fingerprints:
    """The fingerprints of all documents of one spec, on one model version, for one tenant.

    Args:
        spec: What is asked. A request that takes answers of almost equal documents shares with
            requests of the same threshold alone, because its stored answers may be such.
        model_version: All that is behind the numbers: weights, quantization, template.
        tenant: Nothing is shared between two of them.
        leading: The packed tokens in front of the document.
        trailing: The packed tokens behind it.
    """

    def __init__(
        self, spec: Spec, model_version: str, tenant: str, leading: bytes, trailing: bytes
    ) -> None:
        is_repeatable = spec.temperature == 0 or spec.seed is not None
        self.is_shareable = is_repeatable and spec.dedup != "off"
        self._takes_text = spec.dedup == "text"
        # greedy answers depend on neither
        top_p, seed = (spec.top_p, spec.seed) if spec.temperature > 0 else (1.0, None)
        self._start = blake3(b"docmill answer")
        for field in (
            *(_VERSION, tenant, model_version, leading, trailing, spec.max_tokens),
            *(spec.temperature, top_p, seed, list(spec.stop), spec.near_threshold),
        ):
            self._start.update(_frame(msgpack.packb(field)))

    def of(self, tokens: bytes, text: str | None) -> str:
        """Return 32 hex digits, or '' when the answer must not be shared.

        Args:
            tokens: The document's, packed, as the model reads them.
            text: The whole document as text; None when only a part of it is kept.

        Cost: some 1 ns a byte; with text beyond ASCII some 10.
        """
        if not self.is_shareable:
            return ""
        kind, document = "tokens", tokens
        if self._takes_text and text is not None:
            kind = f"text {canonical.VERSION}"
            document = canonical.canonical(text).encode("utf-8", "surrogatepass")
        digest = self._start.copy()
        digest.update(_frame(kind.encode()))
        digest.update(_length(document))  # two updates, because joining would copy the document
        digest.update(document)
        return digest.hexdigest(length=_DIGEST_BYTES)


def _frame(field: bytes) -> bytes:
    return _length(field) + field


def _length(field: bytes) -> bytes:
    return struct.pack("<Q", len(field))
