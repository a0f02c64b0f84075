"""Results: from the wire, to the OpenAI Batch format, and back."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from docmill.errors import (
    IntakeError,
    InvalidDocument,
    JobDeadLettered,
    JobFailed,
    NonFiniteLogits,
    Reason,
)
from docmill.report import Division, Finding, Near, Report, Truncation
from docmill.results import Result
from docmill.results_file import read_results, write_results
from docmill.wire import Body, Failure, Header, Timings, Usage

HEADER = Header(
    request_id="r-1",
    job_id="j",
    custom_id="a",
    spec="s",
    submitted_at=1.0,
    source={"file": "f", "line": 3},
)
ANSWER = Body(
    text="Yes.\u2028\u0085\u2029\x1c",
    finish_reason="stop",
    usage=Usage(prompt_tokens=10, cached_tokens=4, completion_tokens=3),
    timings=Timings(queue_s=0.5),
    truncation=Truncation(policy="head", original_tokens=9, kept_tokens=8),
    warnings=("w",),
    model="m",
    model_version="v",
    config_version="c",
)
REPORT = Report(
    findings=(Finding(rule="bidi_overrides", action="repair", count=2, at=7),),
    truncation=Truncation(policy="tail", original_tokens=9, kept_tokens=8, dropped=((0, 4),)),
    near=Near(custom_id="b", job_id="k", similarity=0.93, is_reused=True),
    division=Division(parts=3, rounds=2, prompt_tokens=50, completion_tokens=5),
)
FAILURE = Body(outcome="failed", error=Failure(code="bad_line", message="cut", line=3))


def result(body: Body = ANSWER, how: bytes = b"run", report: Report | None = None) -> Result:
    """Return a result as it is read from a stream."""
    header = HEADER.model_copy(update={"report": report})
    fields = {b"h": header.encode(), b"b": body.encode(), b"d": how}
    return Result.from_wire(b"1796024866123-0", fields)


def test_an_answer_reads_like_a_chat_completion() -> None:
    """Tools for the OpenAI Batch format find everything where they expect it."""
    record = result().to_openai()

    body = record["response"]["body"]
    assert ("a", None, 200) == (
        record["custom_id"],
        record["error"],
        record["response"]["status_code"],
    )
    assert ("chat.completion", "m", 1796024866) == (body["object"], body["model"], body["created"])
    [choice] = body["choices"]
    assert (ANSWER.text, "stop") == (choice["message"]["content"], choice["finish_reason"])
    assert {
        "prompt_tokens": 10,
        "completion_tokens": 3,
        "total_tokens": 13,
        "prompt_tokens_details": {"cached_tokens": 4},
    } == body["usage"]
    assert {"file": "f", "line": 3} == body["docmill"]["source"]


def test_a_failure_reads_like_a_batch_error() -> None:
    """Code, message and line stand in the error."""
    record = result(FAILURE).to_openai()

    assert record["response"] is None
    assert ("bad_line", "cut", 3) == tuple(
        record["error"][name] for name in ("code", "message", "line")
    )


@pytest.mark.parametrize("body", [ANSWER, FAILURE, Body(outcome="expired"), Body(text="")])
@pytest.mark.parametrize("how", [b"run", b"cached"])
@pytest.mark.parametrize("report", [None, REPORT, Report(findings=REPORT.findings)])
def test_a_record_reads_back_as_it_was(body: Body, how: bytes, report: Report | None) -> None:
    """Nothing is lost on the way through a file, whatever the outcome."""
    written = result(body, how, report)

    read = Result.from_openai(json.loads(written.to_json()))

    if body.outcome == "expired":  # it gets an error that says so
        assert read.error is not None
        assert ("expired", "job_failed") == (read.outcome, read.error.code)
    else:
        assert written == read


def test_a_report_is_the_document_s_own() -> None:
    """It comes with the header: of an answer that is shared, each document has its own report."""
    read = result(report=REPORT)

    assert (REPORT.truncation, REPORT.division) == (read.truncation, read.division)
    assert (REPORT.findings, REPORT.near) == (read.findings, read.near)
    assert ("bidi_overrides",) == read.warnings
    nothing = result(report=Report())
    assert (None, ()) == (nothing.truncation, nothing.warnings)


def test_services_without_reports_are_understood() -> None:
    """What was cut and found then stands in the body."""
    read = result()

    assert (ANSWER.truncation, ("w",), ()) == (read.truncation, read.warnings, read.findings)


def test_a_record_is_one_line_for_every_reader() -> None:
    """Separators that careless readers cut at are escaped; other letters stay readable."""
    line = result(Body(text="é\u2028\u0085\u2029\x1c\n")).to_json()

    assert 1 == len(line.splitlines())
    assert "é" in line


def test_errors_are_raised_as_their_class() -> None:
    """An answer is returned; a failure raises what its code names."""
    assert result().raise_for_error() is not None

    with pytest.raises(InvalidDocument, match="a: cut") as refused:
        result(FAILURE).raise_for_error()
    assert Reason.BAD_LINE == refused.value.reason

    codes: dict[str, Any] = {
        "delivery_limit": JobDeadLettered,
        "non_finite_logits": NonFiniteLogits,
        "not_known_here": JobFailed,
    }
    for code, expected in codes.items():
        body = Body(outcome="failed", error=Failure(code=code, message="m"))
        with pytest.raises(expected) as caught:
            result(body).raise_for_error()
        assert code == caught.value.context["code"]
    with pytest.raises(JobFailed, match="the document expired"):
        result(Body(outcome="expired")).raise_for_error()


def test_a_body_that_cannot_be_read_fails_its_document_alone() -> None:
    """A reader older than the service still gets every other result."""
    fields = {b"h": HEADER.encode(), b"b": b"\x81\xa1v\x63", b"d": b"run"}

    read = Result.from_wire(b"5-0", fields)

    assert read.error is not None
    assert ("a", "failed", "unsupported_schema") == (read.custom_id, read.outcome, read.error.code)


def test_a_header_that_cannot_be_read_harms_no_other_result() -> None:
    """A result of nobody knows whom is told by the name of its entry."""
    read = Result.from_wire(
        b"5-0", {b"h": b"garbage", b"b": Body(text="x").encode(), b"d": b"\xff"}
    )

    assert ("unreadable-5-0", "failed", "5-0") == (read.custom_id, read.outcome, read.cursor)
    assert read.error is not None
    assert read.error.code == "decode_error"
    assert json.loads(read.to_json())["error"]["code"] == "decode_error"


def test_the_place_is_named_once() -> None:
    """A message that opens with the document's name does not get it again when it is raised."""
    body = Body(outcome="failed", error=Failure(code="bad_line", message="a: cut"))

    with pytest.raises(InvalidDocument) as refused:
        result(body).raise_for_error()

    assert "a: cut" == str(refused.value)


def test_a_shared_body_is_the_result_s() -> None:
    """An entry that only names its body has what is found under that name."""
    fields = {b"h": HEADER.encode(), b"b": b"", b"d": b"follower", b"s": b"fp"}

    assert ANSWER.text == Result.from_wire(b"5-0", fields, ANSWER.encode()).text
    gone = Result.from_wire(b"5-0", fields)
    assert gone.error is not None
    assert ("failed", "result_expired") == (gone.outcome, gone.error.code)


def test_results_go_through_a_file(tmp_path: Path) -> None:
    """Written one record a line, read back equal; a torn last line is no record."""
    path = tmp_path / "out.jsonl"

    assert 2 == write_results([result(), result(FAILURE)], path)
    with path.open("ab") as file:
        file.write(b'{"id": "torn')

    assert [result(), result(FAILURE)] == list(read_results(path))
    assert 2 == path.read_bytes().count(b"\n")


def test_a_file_keeps_what_it_has_of_other_documents(tmp_path: Path) -> None:
    """A document's record is replaced, all others stay, and what was torn makes room."""
    path = tmp_path / "out.jsonl"
    other, again = replace(result(), custom_id="other"), replace(result(), custom_id="again")
    write_results([replace(result(FAILURE), custom_id="again"), other], path)
    with path.open("ab") as file:
        file.write(b'{"id": "torn')

    assert 1 == write_results([again], path)
    assert [other, again] == list(read_results(path))
    assert [path] == list(tmp_path.iterdir())


def test_results_that_break_off_cost_no_record(tmp_path: Path) -> None:
    """What was there stays, and so does what came."""
    path = tmp_path / "out.jsonl"
    ids = ("a", "b", "c")
    write_results((replace(result(), custom_id=name) for name in ids), path)

    def broken() -> Iterator[Result]:
        yield replace(result(FAILURE), custom_id="b")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_results(broken(), path)

    assert [("a", True), ("c", True), ("b", False)] == [
        (record.custom_id, record.ok) for record in read_results(path)
    ]


def test_results_are_not_mixed_with_something_else(tmp_path: Path) -> None:
    """A file that holds something else stays as it is, also without a line feed at its end."""
    path = tmp_path / "notes.txt"
    path.write_text("a note")

    with pytest.raises(IntakeError, match=r"notes\.txt, line 1 is not a result"):
        write_results([result()], path)

    assert "a note" == path.read_text()


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    """The file, the line and the reason are named."""
    path = tmp_path / "out.jsonl"
    path.write_text(result().to_json() + "\n[1]\n")

    with pytest.raises(IntakeError, match="line 2 is not a result"):
        list(read_results(path))
    with pytest.raises(IntakeError, match="No such file"):
        list(read_results(tmp_path / "missing"))
    with pytest.raises(IntakeError, match="cannot be written"):
        write_results([], tmp_path / "no" / "such")


def test_a_record_of_another_service_gives_what_it_has() -> None:
    """Results from an OpenAI Batch read as well."""
    record = {
        "id": "batch_req_9",
        "custom_id": "x",
        "response": {
            "status_code": 200,
            "body": {"created": 5, "choices": [{"message": {"content": "Yes"}}]},
        },
        "error": None,
    }

    read = Result.from_openai(record)

    assert ("x", "Yes", 5.0, True) == (read.custom_id, read.text, read.finished_at, read.ok)


def test_an_error_prints_as_one_line() -> None:
    """Printing what went wrong shows the code and the message, not the record's fields."""
    assert str(Failure(code="bad_line", message="cut", line=3)) == "bad_line: cut"
