"""What a pass has to compute and to read, counted from a model's configuration.

Decides what counts as work: the multiplications of the linear layers and of causal attention, the
head and most of the last layer only where a token is chosen, and each weight and each held key and
value read once. Models like Llama (gated MLP, no biases, no experts). May import the standard
library.
"""

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a model; weights, keys and values take `item_bytes` each."""

    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    item_bytes: int = 2

    @classmethod
    def read(cls, model: Path) -> "Shape":
        """Read the sizes from a model directory."""
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
        heads = config["num_attention_heads"]
        return cls(
            num_layers=config["num_hidden_layers"],
            hidden_size=config["hidden_size"],
            intermediate_size=config["intermediate_size"],
            num_heads=heads,
            num_kv_heads=config.get("num_key_value_heads", heads),
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            vocab_size=config["vocab_size"],
        )

    @property
    def linears(self) -> tuple[tuple[int, int], ...]:
        """The (outputs, inputs) of a layer's linears, those of the same input as one."""
        qkv = (self.num_heads + 2 * self.num_kv_heads) * self.head_dim
        return (
            (qkv, self.hidden_size),
            (self.hidden_size, self.num_heads * self.head_dim),
            (2 * self.intermediate_size, self.hidden_size),
            (self.hidden_size, self.intermediate_size),
        )

    @property
    def body_weights(self) -> int:
        """Weights of all layers' linears."""
        return self.num_layers * sum(outputs * inputs for outputs, inputs in self.linears)

    @property
    def head_weights(self) -> int:
        """Weights of the output head."""
        return self.vocab_size * self.hidden_size

    @property
    def norm_weights(self) -> int:
        """Weights of the norms: two a layer and the last."""
        return (2 * self.num_layers + 1) * self.hidden_size

    def prefill_flops(self, num_tokens: int) -> int:
        """Return the operations of one document's prefill, with its first token's head.

        Token i attends i + 1 tokens: a score and a weighted sum, two operations each per element.
        Of the last layer only keys and values are needed of every token; the rest of the last one.
        """
        keys_and_values = 2 * self.num_kv_heads * self.head_dim * self.hidden_size
        spared = self.body_weights // self.num_layers - keys_and_values
        weights = self.body_weights * num_tokens - spared * (num_tokens - 1)
        pairs = num_tokens * (num_tokens + 1) // 2
        attended = (self.num_layers - 1) * pairs + num_tokens
        return 2 * (weights + self.head_weights) + self._attention_flops(attended)

    def decode_flops(self, num_rows: int, row_len: float) -> float:
        """Return the operations of one step of rows that attend `row_len` tokens on average."""
        linears = 2 * (self.body_weights + self.head_weights) * num_rows
        return linears + self._attention_flops(self.num_layers) * num_rows * row_len

    def _attention_flops(self, pairs: int) -> int:
        """Return the operations of so many pairs of a token and one it attends, layers included."""
        return 4 * self.num_heads * self.head_dim * pairs

    def decode_bytes(self, num_rows: int, row_len: float) -> float:
        """Return what one step has to read: every weight once, and the rows' keys and values."""
        weights = self.body_weights + self.head_weights + self.norm_weights
        keys_and_values = 2 * self.num_layers * self.num_kv_heads * self.head_dim
        return self.item_bytes * (weights + keys_and_values * num_rows * row_len)
