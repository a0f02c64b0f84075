"""What a rule is: a name, how grave it is, what is done by default, and a function that looks.

Decides the vocabulary only. May import docmill.rules and `preprocess.rules.scan`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from docmill.rules import Policy
from preprocess.rules.scan import Scan

#: low: untidy, or odd. medium: costs tokens or hides something. high: somebody's intent is likely.
Severity = Literal["low", "medium", "high"]


@dataclass(frozen=True, slots=True)
class Hits:
    """What a rule found: how often, and the character at which the first one begins."""

    count: int
    at: int


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing to look for in a text.

    `find` takes time linear in the text, whatever the text is. `repair` is there only where the
    mended text says the same to a reader; it returns the whole text.
    """

    id: str
    severity: Severity
    summary: str
    find: Callable[[Scan], Hits | None]
    repair: Callable[[Scan], str] | None = None
    repair_summary: str = ""
    default: Policy = "flag"
