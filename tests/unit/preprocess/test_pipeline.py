"""Batches of documents, and the verdict on each."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from docmill.errors import Reason
from docmill.keys import parts_job
from docmill.report import Division, Report, Truncation
from docmill.wire import Body, Header, Message, Prepared, Spec, Truncate, Usage
from preprocess.base import Divided, Ready, Refused, Submission, Verdict
from preprocess.pipeline import Preprocessor
from preprocess.plans import Served
from preprocess.tokenizer import ModelTokenizer
from tests.support.cases import documents
from tests.support.small_tokenizer import decode

NOW = 1_796_000_000.0
CONTEXT_LEN = 8192


@pytest.fixture(scope="session")
def preprocessor(tokenizer: ModelTokenizer) -> Preprocessor:
    """A preprocessor that serves the model `small`."""
    return _preprocessor(tokenizer)


def _preprocessor(
    tokenizer: ModelTokenizer,
    *,
    context_len: int = CONTEXT_LEN,
    max_document_bytes: int = 1_000_000,
    clock: Callable[[], float] = lambda: 0.0,
) -> Preprocessor:
    served = Served("small", "v1", context_len, max_document_bytes)
    return Preprocessor(tokenizer, served, clock=clock)


def _submit(document: bytes, **fields: Any) -> Submission:
    """Build a submission; `fields` are the header's `encoding` and so on, or the spec's."""
    of_header = {
        name: fields.pop(name) for name in ("encoding", "deadline_at", "source") if name in fields
    }
    fields.setdefault("messages", (Message(role="user", content=("Summarise:\n\n", None)),))
    spec = Spec(**({"max_tokens": 16} | fields))
    ids = {"request_id": "r1", "job_id": "j1", "custom_id": "c1"}
    header = Header(spec=spec.digest(), submitted_at=1.0, **ids, **of_header)
    return Submission(header, spec, document)


def _ready(preprocessor: Preprocessor, submission: Submission) -> Prepared:
    verdict = preprocessor.prepare([submission], NOW)[0]
    assert isinstance(verdict, Ready), verdict
    return verdict.prepared


def _refused(preprocessor: Preprocessor, submission: Submission) -> Refused:
    verdict = preprocessor.prepare([submission], NOW)[0]
    assert isinstance(verdict, Refused), verdict
    return verdict


def _all(preprocessor: Preprocessor, batch: list[Submission]) -> list[Verdict]:
    return preprocessor.prepare(batch, NOW)


def _token_ids(prepared: Prepared) -> list[int]:
    ids: list[int] = np.frombuffer(prepared.tokens, dtype="<u4").tolist()
    return ids


def _document_ids(prepared: Prepared) -> list[int]:
    return _token_ids(prepared)[prepared.prefix_len :][: prepared.document_len]


def _words_of(num_tokens: int, tokenizer: ModelTokenizer) -> bytes:
    """Return a text of exactly that many tokens."""
    text = "!" * num_tokens
    tokens = tokenizer.encode_documents([text])[0]
    assert tokens is not None
    assert num_tokens == len(tokens)
    return text.encode()


def test_a_document_becomes_a_prompt(preprocessor: Preprocessor) -> None:
    """Template, instruction, document, end of turn and the assistant's header, in this order."""
    prepared = _ready(preprocessor, _submit(b"The pump house log.", seed=7, stop=("\n",)))

    expected = (
        "<|im_start|>system\nYou are helpful.<|im_end|>\n<|im_start|>user\nSummarise:\n\n"
        "The pump house log.<|im_end|>\n<|im_start|>assistant\n"
    )
    assert expected == decode(_token_ids(prepared))
    assert "The pump house log." == decode(_document_ids(prepared))
    assert (16, 7, ("\n",)) == (prepared.max_tokens, prepared.seed, prepared.stop)


def test_all_documents_of_a_request_share_their_leading_tokens(preprocessor: Preprocessor) -> None:
    """Whatever a document begins with, the tokens before it are the same."""
    prompts = [
        _ready(preprocessor, _submit(text)) for text in (b"\n\nA", b" b", "é".encode(), b"\n\n")[:3]
    ]

    assert 1 == len({tuple(_token_ids(item)[: item.prefix_len]) for item in prompts})


def test_control_tokens_in_documents_change_no_template_place(
    preprocessor: Preprocessor, tokenizer: ModelTokenizer
) -> None:
    """Every document of the case file has the control ids of a plain one, at the same places."""
    texts = documents("v01_special_tokens.jsonl")
    controls = {}
    for custom_id, text in texts.items():
        prepared = _ready(preprocessor, _submit(text))
        ids = _token_ids(prepared)
        around = ids[: prepared.prefix_len] + ids[prepared.prefix_len + prepared.document_len :]
        controls[custom_id] = (around, [i for i in ids if i in tokenizer.control_ids])
        assert text.decode() == decode(_document_ids(prepared))

    assert [controls["sp-control"]] * len(texts) == list(controls.values())


def test_control_tokens_in_documents_are_reported(preprocessor: Preprocessor) -> None:
    """The result will say that the document spells out control tokens; others say nothing."""
    texts = documents("v01_special_tokens.jsonl")

    (usage, control) = preprocessor.prepare(
        [_submit(texts["sp-usage"]), _submit(texts["sp-control"])], NOW
    )

    assert usage.report is not None
    assert ("control_tokens_in_text",) == usage.report.warnings
    assert None is control.report


def test_one_bad_document_harms_no_neighbour(preprocessor: Preprocessor) -> None:
    """Verdicts come in the batch's order, each on its own document."""
    texts = [b"first", b"\xff", b"", b"%PDF-1.4", b"last"]

    verdicts = preprocessor.prepare([_submit(text) for text in texts], NOW)

    codes = [v.failure.code if isinstance(v, Refused) else "ready" for v in verdicts]
    assert ["ready", "encoding", "empty_document", "not_text", "ready"] == codes


def test_empty_documents_never_become_prompts(preprocessor: Preprocessor) -> None:
    """No prompt without a document token, whatever the emptiness is made of."""
    for document in documents("v08_empty_documents.jsonl").values():
        verdict = preprocessor.prepare([_submit(document)], NOW)[0]

        assert not isinstance(verdict, Divided)
        assert isinstance(verdict, Refused) or verdict.prepared.document_len > 0


@pytest.mark.parametrize("is_chat", [True, False])
def test_truncation_is_exact_at_the_limit(
    tokenizer: ModelTokenizer, bare_tokenizer: ModelTokenizer, is_chat: bool
) -> None:
    """One token below the limit and the limit pass whole; one above loses exactly one."""
    served = Served("small", "v1", 256, max_document_bytes=1_000_000)
    preprocessor = Preprocessor(tokenizer if is_chat else bare_tokenizer, served, clock=lambda: 0.0)
    around = len(_token_ids(_ready(preprocessor, _submit(b"!")))) - 1
    limit = 256 - around - 16

    batch = [_submit(_words_of(limit + extra, tokenizer)) for extra in (-1, 0, 1)]
    reports = [
        verdict.report and verdict.report.truncation for verdict in _all(preprocessor, batch)
    ]

    expected = Truncation(
        policy="head",
        original_tokens=limit + 1,
        kept_tokens=limit,
        dropped=((limit, limit + 1),),
    )
    assert [None, None, expected] == reports


def test_only_the_document_is_cut(preprocessor: Preprocessor) -> None:
    """A very long document keeps its beginning, and the template stays whole."""
    text = "".join(f"Line {number} of the log. " for number in range(3000))

    prepared = _ready(preprocessor, _submit(text.encode()))

    assert CONTEXT_LEN == prepared.prompt_len + prepared.max_tokens
    whole = decode(_token_ids(prepared))
    assert whole.startswith("<|im_start|>system\nYou are helpful.<|im_end|>")
    assert whole.endswith("<|im_end|>\n<|im_start|>assistant\n")
    assert text.startswith(decode(_document_ids(prepared)))


def test_who_forbids_truncation_gets_a_refusal(preprocessor: Preprocessor) -> None:
    """With `truncate="refuse"` a long document fails with the figures."""
    verdict = _refused(preprocessor, _submit(b"word " * 3000, truncate="refuse"))

    assert Reason.TOO_LONG == verdict.failure.code


def test_an_answer_longer_than_the_context_is_refused(preprocessor: Preprocessor) -> None:
    """A request whose answer alone fills the context fails before anything is tokenised."""
    verdict = _refused(preprocessor, _submit(b"word", max_tokens=CONTEXT_LEN))

    assert Reason.CONTEXT_TOO_SMALL == verdict.failure.code
    assert f"max_tokens {CONTEXT_LEN:,}" in verdict.failure.message


def test_another_model_is_refused_by_name(preprocessor: Preprocessor) -> None:
    """The message says what was asked for and what is served; the served name itself is fine."""
    verdict = _refused(preprocessor, _submit(b"word", model="gpt-9"))

    assert Reason.UNKNOWN_MODEL == verdict.failure.code
    assert verdict.failure.message.startswith("unknown model 'gpt-9'; served here: 'small'")
    assert _ready(preprocessor, _submit(b"word", model="small")).prompt_len > 0


def test_a_request_the_template_does_not_take_is_refused(preprocessor: Preprocessor) -> None:
    """A request without a place for the document is a bad request."""
    spec = {"messages": (Message(role="user", content=("no place",)),)}

    assert Reason.BAD_REQUEST == _refused(preprocessor, _submit(b"word", **spec)).failure.code


def test_too_late_is_expired(preprocessor: Preprocessor) -> None:
    """A document whose deadline has passed is not prepared."""
    assert "expired" == _refused(preprocessor, _submit(b"word", deadline_at=NOW - 1)).outcome
    assert _ready(preprocessor, _submit(b"word", deadline_at=NOW + 1)).prompt_len > 0


def test_a_refusal_names_the_line(preprocessor: Preprocessor) -> None:
    """A document read from a line of a file is refused with that line's number."""
    verdict = _refused(preprocessor, _submit(b"", source={"path": "in.jsonl", "line": 3}))

    assert 3 == verdict.failure.line


def test_time_is_shared_out_by_bytes(tokenizer: ModelTokenizer) -> None:
    """The batch's seconds go to its documents in proportion, beside what each took by itself."""
    ticks = iter([10.0, 14.0, 14.0, 15.0, 15.0, 15.5])
    preprocessor = _preprocessor(tokenizer, clock=lambda: next(ticks))

    verdicts = preprocessor.prepare([_submit(b"a" * 30), _submit(b"a" * 10)], NOW)

    prepared = [verdict.prepared for verdict in verdicts if isinstance(verdict, Ready)]
    assert [4.0, 1.5] == [item.preprocess_s for item in prepared]
    assert [NOW + 5.0, NOW + 5.5] == [item.ready_at for item in prepared]


def test_equal_documents_of_a_request_share_a_fingerprint(preprocessor: Preprocessor) -> None:
    """Duplicates are found whatever their encoding; fresh samples are never shared."""
    one = _ready(preprocessor, _submit("é".encode()))
    same = _ready(preprocessor, _submit(b"\xe9", encoding="latin-1"))
    sampled = _ready(preprocessor, _submit("é".encode(), temperature=1.0))

    assert one.fingerprint == same.fingerprint
    assert "" == sampled.fingerprint


def test_long_runs_pass_in_a_moment(preprocessor: Preprocessor) -> None:
    """300,000 bytes of one repeated pattern take under 2 s, whatever the pattern."""
    started = time.monotonic()
    for run in ("a", " ", "\n", "=", "\u200b ", "あ", "<|im_"):
        preprocessor.prepare([_submit((run * (300_000 // len(run))).encode())], NOW)

    assert 7 * 2.0 > time.monotonic() - started


@given(
    batch=st.lists(st.binary(max_size=200), max_size=4),
    encoding=st.sampled_from(["utf-8", "utf-16", "latin-1", "nonsense"]),
    max_tokens=st.integers(1, 300),
    truncate=st.sampled_from(get_args(Truncate)),
)
def test_any_batch_gets_verdicts_that_fit(
    tokenizer: ModelTokenizer, batch: list[bytes], **fields: Any
) -> None:
    """Whatever comes in: one verdict each, never above the context, never a forged control."""
    preprocessor = _preprocessor(tokenizer, context_len=128, max_document_bytes=150)

    verdicts = preprocessor.prepare([_submit(document, **fields) for document in batch], NOW)

    assert len(batch) == len(verdicts)
    for verdict in verdicts:
        if isinstance(verdict, Refused):
            assert Reason(verdict.failure.code) in Reason
        elif isinstance(verdict, Divided):
            assert len(verdict.parts) > 1
        else:
            assert verdict.prepared.prompt_len + verdict.prepared.max_tokens <= 128
            assert verdict.prepared.document_len >= 1
            assert tokenizer.control_ids.isdisjoint(_document_ids(verdict.prepared))
            assert Prepared.decode(verdict.prepared.encode()) == verdict.prepared


LONG = " ".join(f"Sentence number {number} tells of valve {number}." for number in range(400))


def _answered(custom_id: str, text: str, **usage: int) -> bytes:
    return Body(text=f"{custom_id}: {text}", usage=Usage(**usage)).encode()


def test_a_long_document_is_divided_into_parts_that_fit(tokenizer: ModelTokenizer) -> None:
    """Each part is a document that passes whole; together they hold all of the text."""
    preprocessor = _preprocessor(tokenizer, context_len=512)
    whole = _submit(LONG.encode(), truncate="split")

    (divided,) = preprocessor.prepare([whole], NOW)

    assert isinstance(divided, Divided)
    assert LONG.startswith(divided.parts[0])
    assert LONG.endswith(divided.parts[-1])
    header = whole.header.model_copy(update={"spec": divided.spec.digest()})
    parts = [Submission(header, divided.spec, part.encode()) for part in divided.parts]
    verdicts = preprocessor.prepare(parts, NOW)
    assert [None] * len(parts) == [verdict.report for verdict in verdicts]
    assert all(isinstance(verdict, Ready) for verdict in verdicts)


def test_answers_to_parts_become_one_prompt(tokenizer: ModelTokenizer) -> None:
    """The last pass sees all answers in order and the first request; the report says the cost."""
    preprocessor = _preprocessor(tokenizer, context_len=2048)
    whole = _submit(LONG.encode(), truncate="split")
    usage = {"prompt_tokens": 100, "completion_tokens": 3}
    answers = tuple(_answered(f"answer {n}", "it tells", **usage) for n in (1, 2, 3))

    (verdict,) = preprocessor.prepare([replace(whole, answers=answers, rounds=1)], NOW)

    assert isinstance(verdict, Ready)
    prompt = decode(_token_ids(verdict.prepared))
    places = [prompt.index(text) for text in ("Summarise", "answer 1", "answer 2", "answer 3")]
    assert sorted(places) == places
    division = Division(parts=3, rounds=1, prompt_tokens=300, completion_tokens=9)
    assert Report(division=division) == verdict.report


def test_answers_that_do_not_fit_together_are_combined_in_rounds(tokenizer: ModelTokenizer) -> None:
    """Groups of answers are asked first, and the costs of all rounds add up."""
    preprocessor = _preprocessor(tokenizer, context_len=512)
    asked = (Message(role="user", content=("Summarise the answers:", None)),)
    whole = _submit(LONG.encode(), truncate="split", combine=asked)
    answers = tuple(_answered(f"{n}", "it tells of a valve. " * 8) for n in range(12))

    (first,) = preprocessor.prepare([replace(whole, answers=answers, rounds=1)], NOW)

    assert isinstance(first, Divided)
    assert 1 < len(first.parts) < 12
    header = whole.header.model_copy(update={"report": first.report})
    fewer = tuple(_answered(f"{n}", "short") for n in range(len(first.parts)))
    (second,) = preprocessor.prepare([replace(whole, header=header, answers=fewer, rounds=2)], NOW)
    assert Report(division=Division(parts=12, rounds=2)) == second.report


def test_what_passed_as_a_whole_passes_in_parts(tokenizer: ModelTokenizer) -> None:
    """A part is not refused for what its document has little of; a document like it still is."""
    preprocessor = _preprocessor(tokenizer, context_len=512)
    whole = _submit((LONG + "escape \x1b\x06" * 100).encode(), truncate="split")

    (divided,) = preprocessor.prepare([whole], NOW)

    assert isinstance(divided, Divided)
    text = divided.parts[-1].encode()
    header = whole.header.model_copy(update={"spec": divided.spec.digest()})
    of_whole = header.model_copy(update={"job_id": parts_job("j1", "r1", 0)})
    batch = [Submission(each, divided.spec, text) for each in (of_whole, header)]
    part, alike = preprocessor.prepare(batch, NOW)
    assert isinstance(part, Ready)
    assert isinstance(alike, Refused)
    assert Reason.NOT_TEXT == alike.failure.code


def test_no_part_is_asked_in_vain(tokenizer: ModelTokenizer) -> None:
    """Where no answers can be combined, what fits is ready, and what does not fails at once."""
    asked = (Message(role="user", content=("Combine. " * 1000, None)),)
    batch = [_submit(text, truncate="split", combine=asked) for text in (b"short", LONG.encode())]

    fits, too_long = _preprocessor(tokenizer, context_len=512).prepare(batch, NOW)

    assert isinstance(fits, Ready)
    assert isinstance(too_long, Refused)
    assert "context_too_small" == too_long.failure.code
    assert "parts cannot be combined" in too_long.failure.message


def test_unreadable_answers_fail_their_document_alone(preprocessor: Preprocessor) -> None:
    """Whatever lies in the place of a body."""
    whole = _submit(LONG.encode(), truncate="split")

    (verdict,) = preprocessor.prepare([replace(whole, answers=(b"junk", b""), rounds=1)], NOW)

    assert isinstance(verdict, Refused)
    assert "decode_error" == verdict.failure.code


def test_a_repeat_is_not_prepared_again(tokenizer: ModelTokenizer) -> None:
    """The same bytes under the same request get the same verdict; others are looked at."""
    preprocessor = _preprocessor(tokenizer)
    batch = [_submit(b"one document"), _submit(b""), _submit(b"one document", max_tokens=17)]

    first = preprocessor.prepare(batch, NOW)

    assert 0 == preprocessor.take_num_seen()
    assert first == preprocessor.prepare(batch, NOW)
    assert 3 == preprocessor.take_num_seen()
    assert 0 == preprocessor.take_num_seen()


@pytest.mark.parametrize("fields", [{"dedup": "off"}, {"temperature": 0.7}])
def test_equal_documents_that_share_nothing_are_each_told_what_they_are_near_to(
    tokenizer: ModelTokenizer, fields: dict[str, Any]
) -> None:
    """Where every document is answered by itself, a copy is one more near duplicate."""
    preprocessor = _preprocessor(tokenizer)
    text = PROSE * 4
    named = {"a": text, "b": text + b"More.", "c": text, "d": text}
    batch = [_named(custom_id, document, **fields) for custom_id, document in named.items()]

    verdicts = _all(preprocessor, batch) + _all(preprocessor, batch[2:])

    near = [each.report and each.report.near for each in verdicts]
    assert [None, "a", "a", "a", "a", "a"] == [each and each.custom_id for each in near]
    assert [1.0] * 4 == [each.similarity for each in near[2:] if each]
    assert 0 == preprocessor.take_num_seen()


PROSE = (
    b"The pump house log of the week lists three valves, two of them sealed and one of them open. "
)


def _named(custom_id: str, document: bytes, **fields: Any) -> Submission:
    submission = _submit(document, **fields)
    header = submission.header.model_copy(update={"custom_id": custom_id})
    return replace(submission, header=header)


def test_almost_equal_documents_are_told(tokenizer: ModelTokenizer) -> None:
    """They are named and run all the same, unless the job takes each other's answers."""
    batch = [_named("a", PROSE * 8), _named("b", PROSE * 8 + b"That is all.")]

    a, b = _preprocessor(tokenizer).prepare(batch, NOW)

    assert isinstance(a, Ready)
    assert isinstance(b, Ready)
    assert None is a.report
    assert b.report is not None
    assert b.report.near is not None
    assert ("a", "j1", False) == (
        b.report.near.custom_id,
        b.report.near.job_id,
        b.report.near.is_reused,
    )
    assert a.prepared.fingerprint != b.prepared.fingerprint


def test_a_job_may_reuse_the_answers_of_almost_equal_documents(tokenizer: ModelTokenizer) -> None:
    """Only above its threshold, and never where a number differs."""
    asks = {"near_threshold": 0.8}
    batch = [
        _named("a", PROSE * 8, **asks),
        _named("b", PROSE * 8 + b"That is all.", **asks),
        _named("c", PROSE * 8 + b"That is all 7.", **asks),
    ]

    verdicts = _preprocessor(tokenizer).prepare(batch, NOW)

    a, b, c = (verdict.prepared.fingerprint for verdict in verdicts if isinstance(verdict, Ready))
    assert a == b != c
    assert [None, True, False] == [
        verdict.report and verdict.report.near and verdict.report.near.is_reused
        for verdict in verdicts
    ]


def test_a_rejected_document_says_what_was_found(tokenizer: ModelTokenizer) -> None:
    """A job's policy wins over the service's, and the refusal comes with its findings."""
    served = Served("small", "v1", CONTEXT_LEN, 1_000_000, {"control_characters": "reject"})
    preprocessor = Preprocessor(tokenizer, served, clock=lambda: 0.0)
    text = b"The log of the week\x01 lists three valves."

    refused, allowed = preprocessor.prepare(
        [_submit(text), _submit(text, rules={"control_characters": "allow"})], NOW
    )

    assert isinstance(refused, Refused)
    assert Reason.REJECTED_BY_RULE == refused.failure.code
    assert refused.report is not None
    assert ("control_characters",) == refused.report.warnings
    assert isinstance(allowed, Ready)
    assert None is allowed.report


def test_lone_surrogates_are_repaired_on_request(preprocessor: Preprocessor) -> None:
    """A document that no tokenizer takes as it is goes on with U+FFFD, and says so."""
    text = "left \ud800 right".encode("utf-8", "surrogatepass")

    refused, mended = preprocessor.prepare(
        [_submit(text), _submit(text, rules={"lone_surrogates": "repair"})], NOW
    )

    assert isinstance(refused, Refused)
    assert Reason.REJECTED_BY_RULE == refused.failure.code
    assert "lone_surrogates=repair" in refused.failure.message
    assert refused.report is not None
    assert ("lone_surrogates",) == refused.report.warnings
    assert isinstance(mended, Ready)
    assert mended.report is not None
    assert [("lone_surrogates", "repair")] == [
        (each.rule, each.action) for each in mended.report.findings
    ]
    assert "left \ufffd right" in decode(_document_ids(mended.prepared))


def test_nothing_is_shared_across_tenants(preprocessor: Preprocessor) -> None:
    """One text has a fingerprint for each tenant, and is near nothing of another's."""
    batch = [_named(name, PROSE * 8) for name in ("a", "b")]
    batch.append(_named("c", PROSE * 8 + b"More."))
    for at, tenant in enumerate(("north", "south", "west")):
        header = batch[at].header.model_copy(update={"tenant": tenant})
        batch[at] = replace(batch[at], header=header)

    verdicts = preprocessor.prepare(batch, NOW)

    assert 3 == len({each.prepared.fingerprint for each in verdicts if isinstance(each, Ready)})
    assert [None] * 3 == [each.report for each in verdicts]
