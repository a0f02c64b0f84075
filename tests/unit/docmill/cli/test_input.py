"""Looking through the command line's input before anything starts."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from docmill.cli.asked import check_reading
from docmill.cli.input import Work, count_left, documents, look_through, read_prompt
from docmill.errors import IntakeError, Reason
from docmill.intake import Document, Refusal
from docmill.request import SpecBook

ASKED = {"prompt": "Sum up.", "max_tokens": 9}


def _lines(folder: Path, *lines: dict[str, Any]) -> list[str]:
    path = folder / "in.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return [str(path)]


def _digest(options: dict[str, Any], own: dict[str, Any] | None = None) -> str:
    return SpecBook(options).spec(own).digest


def test_bad_lines_do_not_stop_the_good_ones(tmp_path: Path) -> None:
    """A line that cannot be used is counted; what could run does."""
    inputs = _lines(tmp_path, {"id": "a", "text": "x"}, {"id": "b"})
    found = look_through(Work(inputs, ASKED))

    assert (found.count, found.num_problems) == (1, 1)


def test_what_was_likely_not_meant_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A key or a mark that means nothing is told in a line, and what can be asked is."""
    inputs = _lines(tmp_path, {"id": "a", "text": "x", "max_token": 9})
    found = look_through(Work(inputs, {"prompt": "Sum up {text}"}))

    said = capsys.readouterr().err.splitlines()
    assert 1 == found.count
    assert ["--prompt holds {text}", "1 line with the key 'max_token'"] == [
        line.partition(",")[0] for line in said
    ]


def test_files_of_other_kinds_are_said_to_be_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a line, by their suffix; the output is none of them."""
    for name in ("a.txt", "b.png", "c.doc", "out"):
        (tmp_path / name).write_text("x", encoding="utf-8")
    found = look_through(Work([str(tmp_path)], ASKED, output=tmp_path / "out"))

    assert {".doc": 1, ".png": 1} == found.skipped.by_suffix
    assert "skipped 2 files of other kinds (1 .png, 1 .doc)\n" == capsys.readouterr().err


def test_a_sample_is_the_first_documents(tmp_path: Path) -> None:
    """What lies behind them is not looked at, and the output is none of them."""
    output = tmp_path / "a.jsonl"
    output.write_text('{"custom_id": "x", "text": "x"}\n', encoding="utf-8")
    inputs = _lines(tmp_path, *({"id": name, "text": "x"} for name in "abca"))
    for given in (inputs, [str(tmp_path)]):
        work = Work(given, ASKED, output=output, limit=2)

        assert 2 == look_through(work).count
        assert ["a", "b"] == [item.custom_id for item in documents(work)]
        assert 1 == count_left(work, {"a": ("", None)}, output="OUT")


def test_a_separator_is_passed_on(tmp_path: Path) -> None:
    """As other things that are said of how files are read."""
    table = tmp_path / "a.csv"
    table.write_text("id|text\n7|one\n", encoding="utf-8")

    assert 1 == look_through(Work([str(table)], ASKED, {"separator": "|"})).count
    with pytest.raises(IntakeError, match="--separator"):
        look_through(Work([str(table)], ASKED))


def test_the_output_is_no_input(tmp_path: Path) -> None:
    """Beside the documents, it is passed over; named as one of them, it is refused."""
    _lines(tmp_path, {"id": "a", "text": "x"})
    output = tmp_path / "out.jsonl"
    output.write_text('{"id": "a", "text": "x"}\n', encoding="utf-8")

    for inputs in ([str(tmp_path)], [f"{tmp_path}/*.jsonl"]):
        work = Work(inputs, ASKED, output=output)
        assert 1 == look_through(work).count
        assert ["a"] == [item.custom_id for item in documents(work)]
    with pytest.raises(IntakeError, match="is also an input"):
        look_through(Work([str(tmp_path), str(output)], ASKED, output=output))


def test_nothing_is_extracted_before_its_turn(tmp_path: Path) -> None:
    """Looking through a pile does not read what takes time to read."""
    (tmp_path / "a.html").write_text("<p>text</p>", encoding="utf-8")
    work = Work([str(tmp_path)], ASKED)

    assert 1 == look_through(work).count
    assert 1 == count_left(work, {"b": ("", None)}, output="OUT")
    for extract in (False, lambda name: name != "a.html", True):
        [item] = documents(work, extract=extract)
        assert isinstance(item, Document)
        assert (extract is True) == bool(item.text)


def test_a_document_without_a_prompt_is_refused_alone(tmp_path: Path) -> None:
    """Beside documents with prompts of their own, one without becomes an error record."""
    inputs = _lines(tmp_path, {"id": "a", "text": "x"}, {"id": "b", "text": "x", "prompt": "Own?"})
    found = look_through(Work(inputs, {}))
    refused, taken = documents(Work(inputs, {}))

    assert (found.count, found.num_problems) == (1, 1)
    assert isinstance(taken, Document)
    assert isinstance(refused, Refusal)
    assert (refused.custom_id, refused.code, refused.line) == ("a", Reason.BAD_REQUEST, 1)
    assert refused.message.startswith(f"{inputs[0]}:1: there is no prompt")


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    """What can be read only once would be empty, or never end, at the second look."""
    os.mkfifo(tmp_path / "in.jsonl")

    inputs = [str(tmp_path / "in.jsonl")]
    for look in (lambda: look_through(Work(inputs, ASKED)), lambda: check_reading(inputs, {})):
        with pytest.raises(IntakeError, match=r"in\.jsonl is no file and no folder"):
            look()


def test_answers_to_the_same_question_are_done(tmp_path: Path) -> None:
    """Documents whose answers fit are not asked again; one without is left."""
    inputs = _lines(tmp_path, {"id": "a", "text": "x"}, {"id": "b", "text": "x", "prompt": "Own?"})
    answered = {
        "a": (_digest(ASKED), "m"),
        "b": (_digest(ASKED, {"prompt": "Own?"}), "m"),
    }
    first = dict(list(answered.items())[:1])

    assert count_left(Work(inputs, ASKED), answered, output="OUT") == 0
    assert count_left(Work(inputs, ASKED), first, output="OUT") == 1


def test_answers_to_another_question_are_not_taken_for_these(tmp_path: Path) -> None:
    """Another prompt for the same output file is refused by its name, not skipped in silence."""
    inputs = _lines(tmp_path, {"id": "a", "text": "x"})
    answered = {"a": (_digest({"prompt": "Translate."}), "m")}
    with pytest.raises(IntakeError, match=r"^OUT holds answers to another prompt or other"):
        count_left(Work(inputs, ASKED), answered, output="OUT")


def test_answers_of_any_model_are_answers(tmp_path: Path) -> None:
    """Whichever model answered, and whether it was named then: what is left may ask another."""
    inputs = _lines(tmp_path, {"id": "a", "text": "x"}, {"id": "b", "text": "x"})
    named = {"a": (_digest(ASKED | {"model": "m"}), "m")}
    unnamed = {"a": (_digest(ASKED), "m")}

    assert [1, 1] == [
        count_left(Work(inputs, ASKED), answered, output="OUT") for answered in (named, unnamed)
    ]


def test_foreign_records_are_taken_as_they_are(tmp_path: Path) -> None:
    """A record that does not say what was asked counts as an answer."""
    inputs = _lines(tmp_path, {"id": "a", "text": "x"})

    assert count_left(Work(inputs, ASKED), {"a": ("", None)}, output="OUT") == 0


def test_a_prompt_is_text_or_a_file(tmp_path: Path) -> None:
    """`@file` is read, anything else is taken as it stands."""
    (tmp_path / "p.txt").write_text("Sum up.\n", encoding="utf-8")

    assert read_prompt(f"@{tmp_path}/p.txt") == "Sum up."
    assert read_prompt("Mail me @home.") == "Mail me @home."
    assert read_prompt(None) is None


@pytest.mark.parametrize("content", ["", " \n"])
def test_an_empty_prompt_is_refused(tmp_path: Path, content: str) -> None:
    """Nothing to ask is a mistake, whether on the command line or in a file."""
    (tmp_path / "p.txt").write_text(content, encoding="utf-8")

    for prompt in (content, f"@{tmp_path}/p.txt"):
        with pytest.raises(IntakeError, match="the prompt is empty"):
            read_prompt(prompt)
