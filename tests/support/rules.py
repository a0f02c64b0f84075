"""What one rule says about a text."""

from docmill.rules import Policy
from preprocess.rules import RULES, inspect
from preprocess.rules.scan import Scan


def spells(text: str) -> bool:
    """Whether a text spells out a control token of a ChatML model."""
    return "<|im_start|>" in text or "<|im_end|>" in text


def look(rule: str, text: str) -> tuple[int, int] | None:
    """Return how often a rule finds something and where first, or None."""
    hits = RULES[rule].find(Scan(text, spells))
    return (hits.count, hits.at) if hits else None


def found(text: str) -> list[str]:
    """Return the rules that find something."""
    return [finding.rule for finding in inspect(text, {}, spells).findings]


def repaired(rule: str, text: str) -> str:
    """Return the text as one rule repairs it, while the others may do nothing."""
    policies: dict[str, Policy] = {**dict.fromkeys(RULES, "allow"), rule: "repair"}
    return inspect(text, policies, spells).text
