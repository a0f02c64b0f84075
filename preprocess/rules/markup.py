"""Rules about markup that is meant for a browser or for a chat template, not for readers.

May import this package.
"""

import re

from preprocess.rules.base import Hits, Rule
from preprocess.rules.scan import Scan

#: Nothing in it is tried twice, and a tag ends at the next bracket: linear.
_ACTIVE = re.compile(
    r"<(?:(?:script|iframe)[\s>/]|(?:object|embed)\s)"
    r"|<[a-z][^<>]{0,200}?[\s/\"']on(?:error|load|click|mouseover|focus)\s?="
)
#: Prose has a space in front.
_SCRIPT_URL = re.compile(r"(?<=[\"'(=<])javascript:")
#: <|im_start|> and its like, and those of other chat formats; apart from _INST, because a pattern
#: that begins with a plain string is much faster.
_CHAT = re.compile(r"<(?:\|[a-z][^\s|<>]{1,40}+\||<\/?sys>|(?:start|end)_of_turn|[be]os|pad|unk)>")
_INST = re.compile(r"\[\/?inst\]")


def _find_active(scan: Scan) -> Hits | None:
    lowered = scan.lowered
    found: list[int] = []
    if "<" in lowered:
        found += (match.start() for match in _ACTIVE.finditer(lowered))
    if "javascript:" in lowered:
        found += (match.start() for match in _SCRIPT_URL.finditer(lowered))
    return _hits(scan, found)


def _find_chat(scan: Scan) -> Hits | None:
    lowered = scan.lowered
    found: list[int] = []
    if "<" in lowered:
        found += (match.start() for match in _CHAT.finditer(lowered))
    if "inst]" in lowered:
        found += (match.start() for match in _INST.finditer(lowered))
    return _hits(scan, found)


def _hits(scan: Scan, found: list[int]) -> Hits | None:
    """Return hits in the folded text as ones in the text."""
    return Hits(len(found), scan.origin(min(found))) if found else None


RULES = (
    Rule(
        "active_markup",
        "low",
        "HTML that runs something: <script>, <iframe>, event handlers, javascript: URLs.",
        _find_active,
    ),
    Rule(
        "chat_markup",
        "medium",
        "Markers of chat formats, such as <|im_start|> or [INST], whatever the model's own are; "
        "also in full-width letters or with invisible characters in between. They stay text.",
        _find_chat,
    ),
)
