"""The names of the rules that documents are checked by, and of what may be done about a finding.

Decides which names a caller may use; what each rule looks for is decided in the service
(`preprocess.rules`, and docs/preprocessing.md). May import docmill.errors.
"""

import difflib
from collections.abc import Mapping
from typing import Any, Literal, get_args

from docmill.errors import JobRejected

#: allow: say nothing. flag: process as it is and say so. repair: mend the text and say so; only
#: some rules can. reject: no answer.
Policy = Literal["allow", "flag", "repair", "reject"]
POLICIES: tuple[Policy, ...] = get_args(Policy)

#: Rules whose findings can be repaired.
_REPAIRABLE = frozenset(
    {
        "lone_surrogates",
        "control_characters",
        "noncharacters",
        "bidi_controls",
        "tag_characters",
        "variation_selectors",
        "zero_width",
        "stacked_marks",
        "mojibake",
        "overlong_whitespace",
        "repeated_character",
    }
)
#: Rules about what no model can read: it is mended or refused.
_UNREADABLE = frozenset({"lone_surrogates"})

#: Every rule that a job may set a policy for, in the order in which findings are reported.
RULES: tuple[str, ...] = (
    "lone_surrogates",
    "control_characters",
    "noncharacters",
    "private_use",
    "tag_characters",
    "variation_selectors",
    "zero_width",
    "stacked_marks",
    "bidi_controls",
    "mixed_scripts",
    "mojibake",
    "overlong_whitespace",
    "repeated_character",
    "repeated_pattern",
    "encoded_payload",
    "escaped_text",
    "data_url",
    "active_markup",
    "chat_markup",
    "prompt_injection",
    "control_tokens_in_text",
)


def policies_of(rule: str) -> tuple[Policy, ...]:
    """Return the policies that a rule knows."""
    if rule in _UNREADABLE:
        return ("repair", "reject")
    return POLICIES if rule in _REPAIRABLE else ("allow", "flag", "reject")


def check_policies(policies: Any) -> dict[str, Policy]:
    """Return the policies by rule, in the order of their names.

    Raises:
        JobRejected: It is no mapping, or names a rule that there is not, or a policy that the rule
            does not know.
    """
    if not isinstance(policies, Mapping):
        raise JobRejected(f"rules must map rules to policies, got {type(policies).__name__}")
    for rule, policy in policies.items():
        if rule not in RULES:
            raise JobRejected(f"rules: there is no rule {rule!r:.60}; {_known_rules(rule)}")
        known = policies_of(rule)
        if policy not in known:
            raise JobRejected(
                f"rules: {rule} must be one of {', '.join(known)}, got {policy!r:.60}"
            )
    return {rule: policies[rule] for rule in sorted(policies)}


def _known_rules(given: Any) -> str:
    meant = str(given).casefold().replace("-", "_")[:60]
    close = difflib.get_close_matches(meant, RULES, n=1)
    guess = f"is {close[0]!r} meant? " if close else ""
    return f"{guess}known are {', '.join(RULES)}"
