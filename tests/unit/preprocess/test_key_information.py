"""What is kept of a document because it matters."""

from statistics import mean

from bench import planted
from preprocess.base import Tokenizer
from preprocess.tokenizer import ModelTokenizer
from preprocess.truncate import Fit, Policy, Room, fit

FILLER = "Water level steady and nothing else to report on day {}. "


def _fit(text: str, share: float, instruction: str, tokenizer: Tokenizer, policy: Policy) -> Fit:
    tokens = tokenizer.encode_documents([text])[0]
    assert tokens is not None
    room = Room(int(share * len(tokens)) + 2, 1, 1)
    outcome = fit(text, tokens, room, policy, instruction, tokenizer)
    assert isinstance(outcome, Fit)
    return outcome


def _kept(text: str, share: float, instruction: str, tokenizer: Tokenizer) -> str:
    return _fit(text, share, instruction, tokenizer, "key_information").text


def _report(num_days: int, *sentences: str) -> str:
    """Return a report with sentences spread over it, each in a paragraph of filler."""
    paragraphs = ["The pump house report", "It begins here, in short."]
    for number in range(num_days):
        filler = "".join(FILLER.format(10 * number + day) for day in range(10))
        paragraphs.append(filler.strip())
        if number % 2 and number // 2 < len(sentences):
            paragraphs[-1] = f"{filler}{sentences[number // 2]} {filler.strip()}"
    return "\n\n".join([*paragraphs, "And here it ends."])


def test_what_answers_the_instruction_is_kept(tokenizer: ModelTokenizer) -> None:
    """Sentences that share words with what is asked, in other forms as well, wherever they are."""
    facts = ("Three valves leaked in May.", "The leaking valve was replaced.")
    kept = _kept(_report(8, *facts), 0.3, "Which valve leaks?", tokenizer)

    assert all(fact in kept for fact in facts)


def test_title_beginning_and_end_are_kept(tokenizer: ModelTokenizer) -> None:
    """Whatever is asked, a reader learns what the document is, and how it begins and ends."""
    kept = _kept(_report(8, "Three valves leaked in May."), 0.3, "Which valve leaks?", tokenizer)

    assert kept.startswith("The pump house report\n\nIt begins here, in short.")
    assert kept.endswith("And here it ends.")


def test_headings_are_kept(tokenizer: ModelTokenizer) -> None:
    """They say what the kept sentences are about."""
    text = "\n\n".join(f"## Part {name}\n\n{_report(2)}" for name in ("Alpha", "Beta", "Gamma"))

    kept = _kept(text, 0.5, "Which valve leaks?", tokenizer)

    assert all(f"## Part {name}" in kept for name in ("Alpha", "Beta", "Gamma"))


def test_order_is_the_document_s(tokenizer: ModelTokenizer) -> None:
    """What is kept stands as it stood, and what is dropped is reported from first to last."""
    facts = ("Zebra valve one leaked.", "Yellow valve two leaked.", "Xenon valve three leaked.")
    text = _report(8, *facts)

    outcome = _fit(text, 0.4, "Which valve leaked?", tokenizer, "key_information")

    places = [outcome.text.index(fact) for fact in facts]
    assert sorted(places) == places
    assert outcome.truncation is not None
    assert sorted(outcome.truncation.dropped) == list(outcome.truncation.dropped)


def test_what_is_said_twice_is_kept_once(tokenizer: ModelTokenizer) -> None:
    """Repetitions, such as a footer on every page, do not crowd out the rest."""
    footer = "Valve leak report, confidential, all rights reserved."
    text = _report(20).replace("\n\nWater", f"\n\n{footer}\n\nWater")

    assert 20 == text.count(footer)
    assert 1 == _kept(text, 0.3, "Which valve leaks?", tokenizer).count(footer)


def test_scripts_without_spaces_are_compared_too(tokenizer: ModelTokenizer) -> None:
    """Pairs of characters stand in for words."""
    filler = "".join(f"今日は水位が安定していて、報告することは何もない{n}。" for n in range(30))
    fact = "北の倉庫の鍵は管理人が保管している。"

    assert fact in _kept(filler + fact + filler, 0.2, "倉庫の鍵はどこですか", tokenizer)


def test_without_words_to_go_by_what_is_central_is_kept(tokenizer: ModelTokenizer) -> None:
    """An instruction that shares no word with the document leaves TextRank and position."""
    names = [f"{first}{second}" for first in "AEIOU" for second in "bdfgklmn"]
    sentences = [f"{name}an {name}odes {name}il and {name}urso." for name in names]
    central = "The bridge inspection found rust on the bridge deck and the bridge bearings."
    related = [f"Bridge deck {n} shows rust after the inspection." for n in range(6)]
    text = " ".join([*sentences[:20], *related[:3], central, *related[3:], *sentences[20:]])

    assert central in _kept(text, 0.4, "Fasse zusammen.", tokenizer)


def test_the_smallest_budgets_still_hold_something(tokenizer: ModelTokenizer) -> None:
    """Where not one sentence fits, the beginning is kept as far as it goes."""
    outcome = _fit(_report(4), 0.01, "Which valve leaks?", tokenizer, "key_information")

    assert outcome.text
    assert _report(4).startswith(outcome.text)


def test_planted_key_sentences_survive(tokenizer: ModelTokenizer) -> None:
    """Half the tokens hold nine of ten sentences that matter; a blind cut holds about half."""
    documents = list(planted.documents(6, num_chars=8_000))
    recalls = {
        policy: mean(
            planted.recall(_fit(each.document, 0.5, each.instruction, tokenizer, policy).text, each)
            for each in documents
        )
        for policy in ("head", "tail", "middle", "key_information")
    }

    assert recalls.pop("key_information") >= 0.9
    assert max(recalls.values()) < 0.8
