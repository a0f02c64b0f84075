"""What a command was asked: refused in its own words, and hints at what was likely meant."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from docmill.cli.asked import (
    check_question,
    check_reading,
    check_service_reading,
    hints,
    ignored_hints,
)
from docmill.errors import IntakeError, JobRejected


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"top_p": 7.0}, "--top-p: Input should be less than or equal to 1"),
        ({"rules": {"zero-width": "flag"}}, "--rule: there is no rule 'zero-width'; is 'zero_w"),
        ({"combine_prompt": "Join."}, "--combine-prompt is asked about the parts of a document"),
        ({"prompt": "{document} {document}"}, "{document} stands 2 times"),
    ],
)
def test_an_option_is_named_as_it_is_typed(options: dict[str, Any], words: str) -> None:
    """The client's name for it is of no use to whoever types a command."""
    with pytest.raises(JobRejected) as refusal:
        check_question(options)

    assert refusal.value.message.startswith(words)


@pytest.mark.parametrize(
    "mark", ["{Document}", "{text}", "{doc}", "{ document }", "{DOCUMENTS}", "{docment}", "{Input}"]
)
def test_another_mark_than_the_documents_place_is_hinted_at(mark: str) -> None:
    """It stands in the prompt as it is, which nobody means."""
    [hint] = hints({"prompt": f"Sum up: {mark}"})

    assert hint.startswith(f"--prompt holds {mark}, ")
    assert "{document} marks the document's place" in hint


@pytest.mark.parametrize(
    "prompt",
    [
        "Sum up.",
        "Sum up {text}: {document}",
        'Answer as {"text": "…"}',
        "Write {name} for every name.",
        "{}" * 50_000,
    ],
)
def test_other_braces_are_no_hint(prompt: str) -> None:
    """A prompt may hold braces, beside the document's place anything."""
    assert [] == list(hints({"prompt": prompt}))


def test_the_prompt_that_combines_is_looked_at_too() -> None:
    """It has a place of its own."""
    [hint] = hints({"prompt": "{document}", "combine_prompt": "Join {answers} of {texts}"})

    assert hint.startswith("--combine-prompt holds {texts}")


def test_columns_are_of_tables(tmp_path: Path) -> None:
    """An option that no file could use is refused; one table among others is enough."""
    (tmp_path / "a.txt").write_text("x", encoding="utf-8")
    with pytest.raises(IntakeError, match="--column is for"):
        check_reading([str(tmp_path)], {"text_column": "body"})
    with pytest.raises(IntakeError, match="--id-column is for"):
        check_reading([str(tmp_path / "a.txt")], {"id_column": "key"})
    with pytest.raises(IntakeError, match="--separator is for"):
        check_reading([str(tmp_path / "a.txt")], {"separator": "|"})
    (tmp_path / "b.csv.gz").write_bytes(b"")
    check_reading([str(tmp_path)], {"text_column": "body"})
    check_reading([str(tmp_path / "a.txt")], {"encoding": "cp1252"})


def test_columns_of_the_services_files_are_refused_where_names_tell() -> None:
    """What lies in a folder there is not known here."""
    with pytest.raises(IntakeError, match=r"none in a\.txt, b\.jsonl"):
        check_service_reading(["a.txt", "b.jsonl"], {"text_column": "body"})
    for inputs in (["a.txt", "b.tsv"], ["folder"], ["*.gz"]):
        check_service_reading(inputs, {"text_column": "body"})


def test_keys_that_were_passed_over_are_told_once() -> None:
    """With how many lines have them, and the option that reads like it."""
    ignored = Counter({("max_token", "max_tokens"): 3, ("rule", "rules"): 1})

    assert [
        "3 lines with the key 'max_token', which is ignored: is 'max_tokens' meant?",
        "1 line with the key 'rule', which is ignored: is 'rules' meant?",
    ] == list(ignored_hints(ignored))
