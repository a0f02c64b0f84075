"""The output file: what is kept of an earlier run, and what is tried again."""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from docmill.cli.resume import Earlier, OutputFile
from docmill.errors import IntakeError
from docmill.results import Result
from docmill.results_file import read_results
from docmill.wire import Failure

GOOD = Result(
    "good", "succeeded", text="Yes\u2028no.", finish_reason="stop", model="m", spec="5bec"
)
BAD = Result("bad", "failed", error=Failure(code="empty_document", message="empty"))


def _write(path: Path, *results: Result, tail: str = "") -> None:
    lines = [result.to_json() + "\n" for result in results]
    path.write_text("".join(lines) + tail, encoding="utf-8")


def _touched(folder: Path) -> Path:
    path = folder / "cleaned"
    path.touch()
    return path


def test_a_later_result_replaces_a_failure(tmp_path: Path) -> None:
    """A document that was retried while its results were written has its last record alone."""
    path = tmp_path / "out.jsonl"
    again = Result("bad", "failed", error=Failure(code="delivery_limit", message="died"))
    other = Result("other", "failed", error=Failure(code="delivery_limit", message="died"))
    output = OutputFile(path)
    for result in (BAD, other, GOOD, again, other, Result("bad", "succeeded", text="Now yes.")):
        output.write(result)
    output.close()

    records = list(read_results(path))
    assert [("good", True), ("other", False), ("bad", True)] == [
        (record.custom_id, record.ok) for record in records
    ]
    assert [path] == list(tmp_path.iterdir())


def test_a_new_file_starts_empty(tmp_path: Path) -> None:
    """Without an earlier run nothing is answered, and results are readable as soon as written."""
    path = tmp_path / "out.jsonl"
    output = OutputFile(path)
    output.write(GOOD)
    lines = path.read_text(encoding="utf-8").split("\n")
    output.close()

    assert output.earlier.answered == {}
    assert Result.from_openai(json.loads(lines[0])).text == GOOD.text
    assert lines[1:] == [""]


def test_failures_of_other_documents_stay(tmp_path: Path) -> None:
    """A run over some documents takes the records of no others out, failures among them."""
    path = tmp_path / "out.jsonl"
    other = Result("other", "failed", error=Failure(code="too_long", message="long"))
    _write(path, BAD, other, GOOD)
    output = OutputFile(path)
    output.write(Result("bad", "failed", error=Failure(code="too_long", message="still")))
    output.write(Result("new", "succeeded", text="New."))
    during = [record.custom_id for record in read_results(path)]
    output.close()

    assert ["bad", "other", "good", "bad", "new"] == during
    assert ["other", "good", "bad", "new"] == [record.custom_id for record in read_results(path)]


def test_what_a_killed_run_left_is_put_in_order(tmp_path: Path) -> None:
    """A failure whose later answer was written, but which was not taken out, goes next time."""
    path = tmp_path / "out.jsonl"
    _write(path, BAD, Result("bad", "succeeded", text="Now yes."), BAD)
    output = OutputFile(path)
    output.close()

    assert {"bad"} == set(output.earlier.answered)
    assert [True, False] == [record.ok for record in read_results(path)]


def test_a_last_line_that_only_lacks_its_end_is_kept(tmp_path: Path) -> None:
    """Some editors leave the last line feed out; the record is whole without it."""
    path = tmp_path / "out.jsonl"
    path.write_text(f"{BAD.to_json()}\n{GOOD.to_json()}", encoding="utf-8")
    output = OutputFile(path)
    output.write(Result("new", "succeeded", text="New."))
    output.close()

    assert {"good"} == set(output.earlier.answered)
    assert ["bad", "good", "new"] == [record.custom_id for record in read_results(path)]


def test_a_link_to_the_file_stays_one(tmp_path: Path) -> None:
    """Putting the file in order changes the file, not the name that leads to it."""
    path, link = tmp_path / "out.jsonl", tmp_path / "link.jsonl"
    _write(path, BAD)
    link.symlink_to(path)
    output = OutputFile(link)
    output.write(Result("bad", "succeeded", text="Now yes."))
    output.close()

    assert link.is_symlink()
    assert [True] == [record.ok for record in read_results(path)]


def test_answers_stay_and_errors_go(tmp_path: Path) -> None:
    """Answers of an earlier run stay byte for byte; error records make room for another try."""
    path = tmp_path / "out.jsonl"
    _write(path, GOOD, BAD)
    before = path.read_bytes().split(b"\n")[0]
    output = OutputFile(path)
    output.write(Result("bad", "succeeded", text="Now yes."))
    output.close()
    lines = path.read_bytes().split(b"\n")

    assert output.earlier.answered == {"good": ("5bec", "m")}
    assert lines[0] == before
    assert json.loads(lines[1])["custom_id"] == "bad"
    assert len(lines) == 3


def test_a_torn_last_line_is_dropped(tmp_path: Path) -> None:
    """What a killed run left of its last line goes; the rest stays."""
    path = tmp_path / "out.jsonl"
    _write(path, GOOD, tail='{"id": "batch_req_1", "custom_i')
    output = OutputFile(path)
    output.write(GOOD)
    output.close()

    assert output.earlier.answered == {"good": ("5bec", "m")}
    assert path.read_text(encoding="utf-8") == 2 * (GOOD.to_json() + "\n")
    assert [path] == list(tmp_path.iterdir())


def test_a_run_that_writes_nothing_changes_nothing(tmp_path: Path) -> None:
    """Without a result the error records and the torn line stay, and the file is not replaced."""
    path = tmp_path / "out.jsonl"
    _write(path, GOOD, BAD, tail="{")
    before = (path.stat().st_ino, path.read_bytes())
    OutputFile(path).close()

    assert (path.stat().st_ino, path.read_bytes()) == before


def test_a_run_that_writes_nothing_leaves_no_file(tmp_path: Path) -> None:
    """A file that was made for nothing goes again; one that was there stays, though empty."""
    made, found = tmp_path / "made.jsonl", tmp_path / "found.jsonl"
    found.touch()
    for path in (made, found):
        OutputFile(path).close()

    assert [found] == list(tmp_path.iterdir())


def test_a_clean_file_is_not_rewritten(tmp_path: Path) -> None:
    """A file with nothing but answers keeps its inode: it is only added to."""
    path = tmp_path / "out.jsonl"
    _write(path, GOOD)
    before = path.stat().st_ino
    OutputFile(path).close()

    assert path.stat().st_ino == before


def test_a_cleaned_file_keeps_its_mode(tmp_path: Path) -> None:
    """Permissions survive the rewrite."""
    path = tmp_path / "out.jsonl"
    _write(path, BAD)
    path.chmod(0o640)
    output = OutputFile(path)
    output.write(Result("bad", "succeeded", text="Now yes."))
    output.close()

    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    "content", ["plain text\n", "no line feed", "[1]\n", '{"custom_id": "a", "response": 3}\n']
)
def test_a_file_with_something_else_is_left_alone(tmp_path: Path, content: str) -> None:
    """A file that docmill did not write is refused by line, and not changed."""
    path = tmp_path / "notes.txt"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(IntakeError, match=r"notes\.txt, line 1"):
        OutputFile(path)

    assert path.read_text(encoding="utf-8") == content


@pytest.mark.parametrize("start", [[GOOD], [BAD]], ids=["answers", "failures"])
def test_two_runs_cannot_write_one_file(tmp_path: Path, start: list[Result]) -> None:
    """The second run is refused for as long as the first one writes."""
    path = tmp_path / "out.jsonl"
    _write(path, *start)
    first = OutputFile(path)
    first.write(GOOD)
    with pytest.raises(IntakeError, match="another run"):
        OutputFile(path)
    first.close()
    OutputFile(path).close()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A missing folder is refused with its path and what to do."""
    words = rf"out\.jsonl cannot be written: there is no folder {tmp_path}/nowhere; create it"
    with pytest.raises(IntakeError, match=words):
        OutputFile(tmp_path / "nowhere" / "out.jsonl")


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/full")])
def test_what_cannot_be_read_back_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """A pipe or a device holds no answers of an earlier run, and may give bytes for ever."""
    make(tmp_path / "out.jsonl")

    with pytest.raises(IntakeError, match=r"out\.jsonl is no file"):
        OutputFile(tmp_path / "out.jsonl")


def test_answers_may_be_thrown_away() -> None:
    """The null device takes results, as anywhere."""
    output = OutputFile(Path(os.devnull))
    output.write(BAD)
    output.write(Result("bad", "succeeded", text="Now yes."))
    output.close()

    assert output.earlier.answered == {}
    assert Path(os.devnull).is_char_device()


@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.with_name("new").replace(path)])
def test_a_file_that_is_taken_away_is_noticed(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    """Results that nobody could find are not written on and on."""
    path = tmp_path / "out.jsonl"
    path.with_name("new").touch()
    output = OutputFile(path)
    output.write(GOOD)
    change(path)

    with pytest.raises(IntakeError, match="removed or replaced"):
        output.write(GOOD)
    output.close()


def test_a_full_disk_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing, which tries to write what is left once more, does not hide what was said."""
    output = OutputFile(tmp_path / "out.jsonl")
    full = Path("/dev/full").open("wb")  # noqa: SIM115 - closed as the output's file
    output._file.close()
    monkeypatch.setattr(output, "_file", full)

    with pytest.raises(IntakeError, match="No space left on device"):
        output.write(GOOD)
    output.close()

    assert full.closed


def test_a_full_disk_keeps_every_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without room to take failures out, nothing is lost and nothing else is left behind."""
    path = tmp_path / "out.jsonl"
    _write(path, GOOD, BAD)
    output = OutputFile(path)
    output.write(Result("bad", "succeeded", text="Now yes."))
    before = path.read_bytes()
    full = Path("/dev/full").open("wb")  # noqa: SIM115 - closed as the new file
    monkeypatch.setattr(os, "fdopen", lambda handle, mode: full)
    monkeypatch.setattr(tempfile, "mkstemp", lambda **kwargs: (-1, str(_touched(tmp_path))))
    output.close()

    assert [path] == list(tmp_path.iterdir())
    assert path.read_bytes() == before


def test_a_mixture_of_models_is_told_once(tmp_path: Path) -> None:
    """Whose answers are there, beside which another model's come; nothing of the same model."""
    path = tmp_path / "out.jsonl"
    _write(path, GOOD)
    output = OutputFile(path)
    told = [output.mixture(model) for model in ("m", "fake", "fake", None)]
    output.close()

    assert [False, True, False, False] == [bool(line) for line in told]
    assert "holds answers of another model (m)" in str(told[1])
    assert "those of fake alone" in str(told[1])


def test_other_models_are_named() -> None:
    """Those that answers are of, but for the one that is asked; unknown ones are left out."""
    earlier = Earlier({"a": ("", "m"), "b": ("", "other"), "c": ("", None), "d": ("", "other")})

    assert ["other"] == earlier.models_beside("m")
