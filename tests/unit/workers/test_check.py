"""What would happen to documents, told without queues and models."""

from collections.abc import Iterable
from typing import Any

from docmill.errors import Reason
from docmill.intake import Document, Refusal
from docmill.intake.base import Item
from docmill.request import SpecBook
from preprocess.fake_tokenizer import FakeTokenizer
from preprocess.pipeline import Preprocessor
from preprocess.plans import Served
from workers.check import Checker, Row

WORDS = "Every sentence has six plain words. "


def rows(items: Iterable[Item], **options: Any) -> list[Row]:
    """Return what would happen to documents where 200 tokens fit."""
    served = Served("fake", "fake", 300, 10_000)
    preprocessor = Preprocessor(FakeTokenizer(), served, clock=lambda: 0.0)
    specs = SpecBook({"prompt": "{document}", "max_tokens": 100, **options})
    return list(Checker(preprocessor, specs, 10_000).check(items))


def test_every_document_gets_a_row_in_its_place() -> None:
    """Usable or not, however many there are."""
    items = [
        Refusal(f"d{at}", Reason.BAD_LINE, "cut", {"file": "f", "line": at})
        if at % 3 == 0
        else Document(f"d{at}", f"text {at}")
        for at in range(200)
    ]

    found = rows(items)

    assert [item.custom_id for item in items] == [row.custom_id for row in found]
    assert ["refused", "ready", "ready"] == [row.verdict for row in found[:3]]
    assert (None, 6) == (found[0].characters, found[1].characters)
    assert found[0].error is not None
    assert ("bad_line", 0) == (found[0].error.code, found[0].error.line)


def test_reasons_are_those_of_the_service() -> None:
    """A document is refused by the client's rules, the service's checks or its own options."""
    found = rows(
        [
            Document("a", "x" * 10_001),
            Document("b", " "),
            Document("c", b"\xff", "utf-8"),
            Document("d", "text", options={"max_tokens": 0}),
            Document("e", "text", options={"model": "other"}),
            Document("f", "text", options={"max_tokens": 300}),
        ]
    )

    assert ["too_large", "empty_document", "encoding", "bad_request", "unknown_model"] == [
        row.error.code for row in found[:5] if row.error
    ]
    assert found[5].error is not None
    assert "context_too_small" == found[5].error.code


def test_what_does_not_fit_is_cut_or_split_or_refused() -> None:
    """The policy decides, and the row tells the figures."""
    long = Document("a", f"Größe. {100 * WORDS}".encode("cp1252"), "cp1252")
    [cut], [split], [refused] = (rows([long], truncate=how) for how in ("head", "split", "refuse"))

    assert ("truncated", "refused", "split") == (cut.verdict, refused.verdict, split.verdict)
    assert cut.truncation is not None
    assert cut.truncation.original_tokens == cut.tokens
    assert refused.error is not None
    assert "too_long" == refused.error.code
    assert split.parts is not None
    assert split.parts > 1
    assert split.tokens == cut.tokens


def test_prompts_are_counted_with_what_stands_around_the_document() -> None:
    """What the model would read: the template, and of the document what is kept, or all parts."""
    prompt = "Sum up what follows.\n{document}"
    long = Document("a", 100 * WORDS)
    [bare], [asked] = rows([Document("a", WORDS)]), rows([Document("a", WORDS)], prompt=prompt)
    [cut], [split] = (rows([long], truncate=how, prompt=prompt) for how in ("head", "split"))

    assert bare.tokens == asked.tokens
    around = (asked.prompt_tokens or 0) - (asked.tokens or 0)
    assert around > (bare.prompt_tokens or 0) - (bare.tokens or 0)
    assert cut.truncation is not None
    assert cut.truncation.kept_tokens + around == cut.prompt_tokens
    assert cut.tokens == split.tokens
    # parts overlap, and each has the template around it
    assert (split.prompt_tokens or 0) >= (split.tokens or 0) + around * (split.parts or 0)


def test_saved_tokens_are_those_that_the_results_name() -> None:
    """A repeat gets the answer to another document, and with it that one's count of tokens."""
    first = f"{20 * WORDS}It ends here."
    copy, near = first, first.removesuffix(".") + " at last!"
    items = [Document("a", first), Document("b", copy), Document("c", near)]
    own, exact, almost = rows(items, near_threshold=0.8)

    assert ["ready", "duplicate", "near_duplicate"] == [row.verdict for row in (own, exact, almost)]
    assert (None, own.prompt_tokens, own.prompt_tokens) == (
        own.saved_tokens,
        exact.saved_tokens,
        almost.saved_tokens,
    )
    assert own.prompt_tokens != almost.prompt_tokens


def test_equal_parts_are_counted_once() -> None:
    """The parts of a copy share the answers to those of the first."""
    items = [Document(name, 100 * WORDS) for name in ("a", "b")]
    first, copy = rows(items, truncate="split")

    assert first.prompt_tokens == copy.prompt_tokens == copy.saved_tokens
    assert (first.saved_tokens or 0) < (first.prompt_tokens or 0)


def test_a_duplicate_names_the_first_of_its_kind() -> None:
    """Equal documents share an answer, unless they are asked something else or nothing may be."""
    items = [
        Document("a", "The same text."),
        Document("b", "The same text."),
        Document("c", "The same text.", options={"prompt": "Other"}),
        Document("d", "The same text."),
    ]

    assert [None, "a", None, "a"] == [row.same_as for row in rows(items)]
    assert {None} == {row.same_as for row in rows(items, dedup="off")}


def test_an_almost_equal_document_is_named() -> None:
    """Its answer is taken where the job allows it, and no number, name or date differs."""
    first, second, third = (f"{20 * WORDS}It ends {end}" for end in ("here.", "here!", "in 1999."))
    items = [Document("a", first), Document("b", second), Document("c", third)]

    noticed, reused = rows(items), rows(items, near_threshold=0.8)

    assert ["ready", "ready", "ready"] == [row.verdict for row in noticed]
    assert ["ready", "near_duplicate", "ready"] == [row.verdict for row in reused]
    assert ["a", "a"] == [row.near.custom_id for row in (noticed[1], reused[1]) if row.near]
    assert [None, None, None] == [row.same_as for row in reused]


def test_a_custom_id_is_used_once() -> None:
    """The later document of two is refused, both places named."""
    found = rows([Document("a", "x"), Document("a", "y")])

    assert ["ready", "refused"] == [row.verdict for row in found]
    assert found[1].error is not None
    assert "document 1 and document 2" in found[1].error.message
    assert [None, "document 1"] == [row.same_id_as for row in found]


def test_keys_that_were_passed_over_are_told() -> None:
    """Beside what happens to their documents, refused or not."""
    ignored = {"rule": "rules"}
    found = rows([Document("a", "x", ignored=ignored), Document("b", " ", ignored=ignored)])

    assert ["ready", "refused"] == [row.verdict for row in found]
    assert [ignored, ignored] == [row.ignored for row in found]


def test_what_a_rule_finds_is_told() -> None:
    """Also of a document that is refused for it."""
    item = Document("a", "A \x00 in the text, which is long enough.")

    [flagged] = rows([item], rules={"control_characters": "flag"})
    [rejected] = rows([item], rules={"control_characters": "reject"})

    assert ("ready", "refused") == (flagged.verdict, rejected.verdict)
    assert ["control_characters"] == [finding.rule for finding in flagged.findings]
    assert rejected.error is not None
    assert "rejected_by_rule" == rejected.error.code
