"""All rules, in the order in which they look and repair.

Decides the order alone. May import this package.
"""

from preprocess.rules import (
    bidi,
    characters,
    control_tokens,
    injection,
    markup,
    mojibake,
    payloads,
    runs,
    words,
)
from preprocess.rules.base import Rule

_FAMILIES = (characters, bidi, words, mojibake, runs, payloads, markup, injection, control_tokens)

#: By id.
RULES: dict[str, Rule] = {rule.id: rule for family in _FAMILIES for rule in family.RULES}
