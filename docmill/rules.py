"""The names of the rules that documents are checked by, and of what may be done about a finding.

Decides which names a caller may use; what each rule looks for is decided in the service
(`preprocess.rules`, and docs/preprocessing.md). May import nothing but the standard library.
"""

from collections.abc import Mapping
from typing import Any, Literal, get_args

from docmill.errors import JobRejected

#: allow: say nothing. flag: process as it is and say so. repair: mend the text and say so; only
#: some rules can. reject: no answer.
Policy = Literal["allow", "flag", "repair", "reject"]
POLICIES: tuple[Policy, ...] = get_args(Policy)

#: Every rule that a job may set a policy for.
RULES: tuple[str, ...] = ()


def check_policies(policies: Any) -> dict[str, Policy]:
    """Return the policies by rule, in the order of their names.

    Raises:
        JobRejected: It is no mapping, or names a rule or a policy that there is not.
    """
    if not isinstance(policies, Mapping):
        raise JobRejected(f"rules must map rules to policies, got {type(policies).__name__}")
    for rule, policy in policies.items():
        if rule not in RULES:
            raise JobRejected(f"rules: there is no rule {rule!r:.60}; known are {', '.join(RULES)}")
        if policy not in POLICIES:
            raise JobRejected(
                f"rules: {rule} must be one of {', '.join(POLICIES)}, got {policy!r:.60}"
            )
    return {rule: policies[rule] for rule in sorted(policies)}
