"""Options that several commands take together."""

import inspect

import pytest
import typer
from typer.testing import CliRunner

from docmill.cli.app import app, run, submit
from docmill.cli.ask import ingest
from docmill.cli.document_options import parse_separator
from docmill.cli.shared import question, reading
from docmill.request import build_spec
from docmill.rules import RULES


def test_a_command_has_the_options_of_its_groups() -> None:
    """All that ask something take all that can be asked, and say the same of it."""
    options = inspect.signature(question).parameters | inspect.signature(reading).parameters

    for command in (run, submit, ingest):
        taken = inspect.signature(command).parameters
        assert {} == {
            name: one
            for name, one in options.items()
            if taken[name] != one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        }
        assert {"question", "reading"}.isdisjoint(taken)


def test_a_question_is_what_the_client_takes() -> None:
    """Options have the client's names, and one that is not given is not asked."""
    asked = question(
        prompt="Sum up.", truncate="split", combine_prompt="Join.", rule=["zero_width=repair"]
    )
    spec = build_spec(asked)

    assert {"prompt", "truncate", "combine_prompt", "rules"} == set(asked)
    assert ("split", {"zero_width": "repair"}) == (spec.truncate, spec.rules)
    assert ("Join.\n\n", None) == spec.combine[0].content


def test_reading_is_what_intake_takes() -> None:
    """As it is asked for on the command line, so it is called in Python."""
    assert {} == reading()
    assert {
        "encoding": "cp1252",
        "text_column": "body",
        "id_column": "key",
        "separator": "|",
    } == reading(encoding="cp1252", column="body", id_column="key", separator="|")


@pytest.mark.parametrize(
    ("typed", "separator"), [("tab", "\t"), (r"\t", "\t"), ("\t", "\t"), ("|", "|"), (" ", " ")]
)
def test_a_tab_can_be_typed(typed: str, separator: str) -> None:
    """As a word, an escape or itself."""
    assert separator == parse_separator(typed)


def test_a_separator_is_one_character() -> None:
    """Anything else is wrong usage."""
    with pytest.raises(typer.BadParameter, match="is not one character"):
        parse_separator("||")


@pytest.mark.parametrize(
    ("rules", "words"),
    [(["a"], "is no RULE=POLICY"), (["a=flag", "a=reject"], "a is given two policies")],
)
def test_a_policy_is_given_once_and_whole(rules: list[str], words: str) -> None:
    """Half of one, or two for the same rule, are wrong usage."""
    with pytest.raises(typer.BadParameter, match=words):
        question(rule=rules)


def test_wrong_usage_of_a_group_is_wrong_usage_of_the_command() -> None:
    """It ends with status 2 and names the option."""
    finished = CliRunner().invoke(app, ["submit", "a.txt", "--rule", "x"])

    assert 2 == finished.exit_code
    assert "RULE=POLICY" in finished.stderr


def test_the_help_names_every_rule() -> None:
    """Nobody has to look a rule's name up elsewhere."""
    [described] = [
        option.help
        for option in inspect.signature(question).parameters["rule"].annotation.__metadata__
    ]

    assert [] == [rule for rule in RULES if rule not in described]
