"""What a run came to, in numbers and in words."""

from docmill.cli.summary import Tally
from docmill.report import Action, Division, Finding, Near, Truncation
from docmill.results import Result
from docmill.wire import Failure, Usage


def _answer(custom_id: str, shared: str = "run") -> Result:
    usage = Usage(prompt_tokens=100, cached_tokens=30, completion_tokens=7)
    return Result(custom_id, "succeeded", usage=usage, shared=shared)  # type: ignore[arg-type]


def _found(**actions: Action) -> tuple[Finding, ...]:
    return tuple(Finding(rule=rule, action=action) for rule, action in actions.items())


def _tally(*results: Result) -> Tally:
    tally = Tally()
    for result in results:
        tally.add(result)
    return tally


def test_repeats_are_hits_and_cost_no_tokens() -> None:
    """A document answered from another counts as a hit; its tokens were computed once."""
    tally = _tally(_answer("a"), _answer("b", "follower"), _answer("c", "cached"))

    assert tally.answered == 3
    assert tally.repeats == 2
    assert (tally.prompt_tokens, tally.cached_tokens, tally.completion_tokens) == (100, 30, 7)
    assert tally.saved_tokens == 200


def test_failures_are_told_by_kind_with_the_first_of_each() -> None:
    """Each error code has its count and the message of its first document."""
    failures = [
        Result(name, "failed", error=Failure(code=code, message=f"{name} is bad"))
        for name, code in (("a", "empty_document"), ("b", "too_long"), ("c", "empty_document"))
    ]
    lines = _tally(*failures).lines(2.0, "out.jsonl", 0)

    assert "2 x empty_document, first: a: a is bad" in lines
    assert "1 x too_long, first: b: b is bad" in lines


def test_the_words_hold_what_a_person_asks_for() -> None:
    """Documents by outcome, cache hits, tokens, time and the file are all told."""
    cut = Truncation(policy="head", original_tokens=9, kept_tokens=5)
    tally = _tally(_answer("a"), Result("b", "cancelled"), Result("c", "succeeded", truncation=cut))

    assert tally.lines(4.0, "out.jsonl", 5) == [
        "documents   2 answered, 0 failed, 1 cancelled or expired, 5 answered before",
        "truncated   1 document longer than fits, 4 tokens cut",
        "cache hits  0 documents answered as repeats, 30 prompt tokens not computed again",
        "tokens      100 in, 7 out",
        "time        4 s (0.75 documents/s, start included)",
        "output      out.jsonl",
    ]


def test_nothing_is_told_of_nothing() -> None:
    """A run without repeats, cuts and findings has no lines about them."""
    lines = _tally(Result("a", "succeeded"), Result("b", "succeeded")).lines(1.0, "out.jsonl", 0)

    assert ["documents", "tokens", "time", "output"] == [line.split()[0] for line in lines]


def test_what_became_of_documents_is_told() -> None:
    """Parts, findings by rule, and likenesses; documents in parts cost what all of them did."""
    usage = Usage(prompt_tokens=40, completion_tokens=4)
    tally = _tally(
        Result(
            "a",
            "succeeded",
            usage=usage,
            division=Division(parts=3, rounds=1, prompt_tokens=400, completion_tokens=50),
        ),
        Result("b", "failed", findings=_found(mojibake="flag", zero_width="reject"), usage=usage),
        Result(
            "c",
            "succeeded",
            findings=_found(zero_width="repair"),
            near=Near(custom_id="a", job_id="j", similarity=0.9),
        ),
    )

    assert [
        "split       1 document answered in 3 parts",
        "flagged     1 document: mojibake 1",
        "repaired    1 document: zero_width 1",
        "rejected    1 document: zero_width 1",
        "alike       1 document almost equal to another, answered by itself",
        "tokens      480 in, 58 out",
    ] == tally.lines(1.0, "out.jsonl", 0)[1:7]
    told = tally.to_dict(1.0, "out.jsonl", 0)
    assert (1, 3, 1) == tuple(told[name] for name in ("split", "parts", "alike"))
    assert (1, 1, 1) == tuple(told[name] for name in ("flagged", "repaired", "rejected"))
    assert {"zero_width": 2, "mojibake": 1} == told["findings"]


def test_a_near_duplicate_is_a_repeat_and_not_alike() -> None:
    """Whose answer is taken over is told apart from what was only noticed."""
    near = Near(custom_id="a", job_id="j", similarity=0.9, is_reused=True)
    taken = Result("b", "succeeded", shared="cached", near=near)
    # the one whose answer it was to get failed, so it was computed after all
    computed = Result("c", "succeeded", shared="run", near=near)
    tally = _tally(taken, computed, _answer("d", "follower"))

    assert (2, 1, 1) == (tally.repeats, tally.near_duplicates, tally.alike)
    assert "2 documents answered as repeats (1 near duplicate), " in tally.lines(1.0, "o", 0)[1]


def test_warnings_of_old_services_were_flags() -> None:
    """A result without a report counts as well."""
    told = _tally(Result("a", "succeeded", warnings=("mojibake",))).to_dict(1.0, "o", 0)

    assert (1, {"mojibake": 1}) == (told["flagged"], told["findings"])


def test_one_is_not_told_in_the_plural() -> None:
    """A single repeat is one document."""
    lines = _tally(_answer("b", "follower")).lines(1.0, "out.jsonl", 0)

    assert (
        "cache hits  1 document answered as a repeat, 100 prompt tokens not computed again" in lines
    )


def test_a_place_is_named_once() -> None:
    """A message that opens with the document's name does not get it again."""
    failure = Failure(code="bad_line", message="in.jsonl:3: not JSON")
    lines = _tally(Result("in.jsonl:3", "failed", error=failure)).lines(1.0, "out.jsonl", 0)

    assert lines[-1] == "1 x bad_line, first: in.jsonl:3: not JSON"


def test_a_program_gets_the_same_numbers() -> None:
    """The JSON summary names every count."""
    told = _tally(_answer("a"), _answer("b", "follower")).to_dict(1.5, "out.jsonl", 0)

    assert (told["answered"], told["repeats"], told["prompt_tokens"]) == (2, 1, 100)
    assert told["seconds"] == 1.5


def test_a_later_result_replaces_a_failure() -> None:
    """A document that was retried while its results were read counts once."""
    failures = [
        Result(name, "failed", error=Failure(code="delivery_limit", message="died"))
        for name in ("a", "b", "a")
    ]
    tally = _tally(*failures, _answer("a"))

    assert (tally.answered, tally.failed, tally.done) == (1, 1, 2)
    assert {"delivery_limit": 1} == tally.to_dict(1.0, "out.jsonl", 0)["errors"]


def test_rates_have_digits_that_one_can_use() -> None:
    """Large ones none behind the point, and all of them thousands separators."""
    tally = _tally(*(_answer(str(number)) for number in range(5000)))

    assert "(2,500 documents/s, start included)" in " ".join(tally.lines(2.0, "out.jsonl", 0))
