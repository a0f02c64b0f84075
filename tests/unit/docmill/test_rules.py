"""Which rules there are, and which policies they know."""

from typing import Any

import pytest

from docmill.errors import JobRejected
from docmill.rules import RULES, check_policies, policies_of


def test_policies_come_back_in_the_order_of_their_names() -> None:
    """The same policies are the same request, however they were written."""
    policies = check_policies({"zero_width": "repair", "data_url": "reject"})

    assert [("data_url", "reject"), ("zero_width", "repair")] == list(policies.items())


@pytest.mark.parametrize(
    ("policies", "words"),
    [
        ("flag", "must map rules to policies, got str"),
        (["data_url"], "must map rules to policies, got list"),
        ({"no_such": "flag"}, "there is no rule 'no_such'; known are lone_surrogates, "),
        ({"zero-width": "flag"}, "no rule 'zero-width'; is 'zero_width' meant? known are lone_"),
        ({"data_url": "explode"}, "data_url must be one of allow, flag, reject, got 'explode'"),
        ({"data_url": "repair"}, "data_url must be one of allow, flag, reject, got 'repair'"),
        ({"lone_surrogates": "flag"}, "must be one of repair, reject, got 'flag'"),
        ({"data_url": ["flag"]}, "got ['flag']"),
        ({3: "flag"}, "there is no rule 3"),
    ],
)
def test_what_no_rule_knows_is_refused(policies: Any, words: str) -> None:
    """A misspelt rule or policy is named, with what could be meant."""
    with pytest.raises(JobRejected) as refusal:
        check_policies(policies)

    assert words in refusal.value.message


def test_every_rule_can_refuse() -> None:
    """Whatever is found can be a reason to answer nothing."""
    assert [] == [rule for rule in RULES if "reject" not in policies_of(rule)]
