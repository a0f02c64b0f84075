"""What policies make of findings."""

import pytest

from docmill.errors import Reason
from docmill.report import Finding
from docmill.rules import RULES as NAMES
from docmill.rules import Policy, policies_of
from preprocess.rules import RULES, Inspection, inspect, unknown_rules
from tests.support.cases import documents
from tests.support.rules import found, spells


def test_clients_and_service_know_the_same_rules() -> None:
    """In the same order, with the same policies."""
    repairable = [rule for rule in NAMES if "repair" in policies_of(rule)]

    assert list(NAMES) == list(RULES)
    assert repairable == [rule.id for rule in RULES.values() if rule.repair]
    assert [] == [rule.id for rule in RULES.values() if rule.default not in policies_of(rule.id)]


def test_every_repair_says_what_it_does() -> None:
    """The page and the messages name it."""
    assert [] == [
        each.id for each in RULES.values() if bool(each.repair) != bool(each.repair_summary)
    ]


def test_findings_are_flagged_by_default() -> None:
    """The text goes on as it is, with what was found in it."""
    text = "a\0b pаypal"

    assert Inspection(
        text,
        (
            Finding(rule="control_characters", action="flag", count=1, at=1),
            Finding(rule="mixed_scripts", action="flag", count=1, at=4),
        ),
    ) == inspect(text, {}, spells)


def test_what_is_allowed_is_not_mentioned() -> None:
    """Somebody who knows about it need not hear of it."""
    assert Inspection("a\0b") == inspect("a\0b", {"control_characters": "allow"}, spells)


def test_repairs_work_together() -> None:
    """Several repairs of one text each find their place."""
    policies: dict[str, Policy] = {"control_characters": "repair", "zero_width": "repair"}
    text = "\0a\u200bb\0" + "c" * 300

    inspection = inspect(text, {**policies, "repeated_character": "repair"}, spells)

    assert "abccc" == inspection.text
    assert ["repair"] * 3 == [finding.action for finding in inspection.findings]


def test_a_rejection_says_what_where_and_what_to_do() -> None:
    """The text stays as it was, and the other findings are told as well."""
    policies: dict[str, Policy] = {"zero_width": "reject", "control_characters": "repair"}

    inspection = inspect("\0 a\u200bb", policies, spells)

    assert "\0 a\u200bb" == inspection.text
    assert ["repair", "reject"] == [finding.action for finding in inspection.findings]
    assert inspection.failure
    assert Reason.REJECTED_BY_RULE == inspection.failure.code
    assert (
        "rule zero_width found 1, the first at character 3; --rule zero_width=repair (removes "
        "these) or zero_width=flag answers it all the same"
    ) == inspection.failure.message


def test_lone_surrogates_are_never_let_through() -> None:
    """No tokenizer takes them, so that the rule mends or refuses."""
    refused = inspect("a\ud800", {}, spells)
    mended = inspect("a\ud800", {"lone_surrogates": "repair"}, spells)

    assert refused.failure
    assert "a\ufffd" == mended.text


@pytest.mark.parametrize("policies", [{"no_such": "flag"}, {"data_url": "repair"}])
def test_unknown_rules_of_a_request_are_refused(policies: dict[str, str]) -> None:
    """A request from elsewhere may hold what no client would send."""
    failure = unknown_rules(policies)

    assert failure
    assert Reason.BAD_REQUEST == failure.code


def test_known_rules_are_no_failure() -> None:
    """Every rule takes its own default."""
    assert None is unknown_rules({rule.id: rule.default for rule in RULES.values()})


def test_text_that_scripts_need_passes_byte_for_byte() -> None:
    """Joiners, marks, flags, jamo and formulas that others stripped pass without a finding."""
    texts = [document.decode() for document in documents("v05_scripts_keep.jsonl").values()]

    assert [Inspection(text) for text in texts] == [inspect(text, {}, spells) for text in texts]


def test_documents_with_hardly_anything_in_them_get_a_verdict() -> None:
    """Blank, invisible and control-only texts are inspected like others."""
    for document in documents("v08_empty_documents.jsonl").values():
        assert None is inspect(document.decode(), {}, spells).failure


@pytest.mark.parametrize("text", ["", " ", "\ud800", "\U0010ffff", "\0"])
def test_the_smallest_texts_get_a_verdict(text: str) -> None:
    """Nothing is too short."""
    assert set(found(text)) <= set(NAMES)
