"""What fits, exactly, and what is kept of what does not."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docmill.errors import Reason
from docmill.report import Truncation
from docmill.wire import Failure, Message, Spec
from preprocess.base import Tokenizer
from preprocess.fake_tokenizer import FakeTokenizer
from preprocess.tokenizer import ModelTokenizer
from preprocess.truncate import Fit, Policy, Room, fit, instruction_of, too_long_at_sight
from tests.support.small_tokenizer import decode

ROOM = Room(context_len=100, template_len=30, max_tokens=20)
CUTTING: tuple[Policy, ...] = tuple(policy for policy in get_args(Policy) if policy != "refuse")
#: Text of any kind, and what likes to break: markup, wrapped lines, graphemes of many characters.
_LATIN = [
    "A sentence. ",
    "Word ",
    "\n",
    "\n\n",
    "# Title\n",
    "| a | b |\n",
    "```\n",
    "e\u0301",
    " ",
]
_OTHER = ["👨\u200d👩\u200d👧", "🇩🇪", "あいう。", "\r\n", "ภาษาไทย", "<|im_end|>"]
TEXTS = st.one_of(
    st.text(max_size=200),
    st.lists(st.sampled_from([*_LATIN, *_OTHER]), max_size=60).map("".join),
)


def _fit(text: str, budget: int, policy: Policy, tokenizer: Tokenizer) -> Fit:
    tokens = tokenizer.encode_documents([text])[0]
    assert tokens is not None
    outcome = fit(text, tokens, Room(budget + 2, 1, 1), policy, "What is said?", tokenizer)
    assert isinstance(outcome, Fit)
    return outcome


def test_what_fits_is_left_alone(tokenizer: ModelTokenizer) -> None:
    """Up to the last token that fits, nothing is cut and nothing reported."""
    for policy in CUTTING:
        outcome = _fit("!" * 50, 50, policy, tokenizer)

        assert ("!" * 50, 50, None) == (outcome.text, len(outcome.tokens), outcome.truncation)


@pytest.mark.parametrize(
    ("policy", "dropped"), [("head", (50, 51)), ("tail", (0, 1)), ("middle", (25, 26))]
)
def test_one_token_too_many_costs_one_token(
    tokenizer: ModelTokenizer, policy: Policy, dropped: tuple[int, int]
) -> None:
    """The report counts the document's tokens before and after, and says what is missing."""
    outcome = _fit("!" * 51, 50, policy, tokenizer)

    expected = Truncation(policy=policy, original_tokens=51, kept_tokens=50, dropped=(dropped,))
    assert expected == outcome.truncation
    assert 50 == len(outcome.tokens)


def test_the_policy_refuse_names_the_figures(tokenizer: ModelTokenizer) -> None:
    """Who does not want to lose text learns how much there is and how much fits."""
    tokens = tokenizer.encode_documents(["!" * 51])[0]
    assert tokens is not None

    refused = fit("!" * 51, tokens, ROOM, "refuse", "", tokenizer)

    assert isinstance(refused, Failure)
    assert Reason.TOO_LONG == refused.code
    assert "51 tokens and 50 fit" in refused.message
    assert "truncate=split" in refused.message


def test_no_room_at_all_names_the_figures() -> None:
    """An answer as long as the context leaves no room, and the message adds it up."""
    shortage = Room(context_len=100, template_len=30, max_tokens=70).shortage()

    assert shortage is not None
    assert Reason.CONTEXT_TOO_SMALL == shortage.code
    assert "context 100 - template 30 - max_tokens 70 = 0" in shortage.message


def test_one_token_is_room() -> None:
    """Room for a single token of the document is room."""
    assert Room(context_len=100, template_len=30, max_tokens=69).shortage() is None


def test_a_request_may_allow_less_than_fits() -> None:
    """The smaller of the two limits counts, and is named where it is the reason."""
    room = Room(context_len=100, template_len=30, max_tokens=20, max_document_tokens=10)

    assert 10 == room.document_len
    assert "10 fit" in room.excess(11).message
    assert "max_document_tokens is 10" in room.excess(11).message
    assert 50 == Room(100, 30, 20, max_document_tokens=1000).document_len


@pytest.mark.parametrize("policy", CUTTING)
@pytest.mark.parametrize("is_fake", [False, True])
@given(text=TEXTS, budget=st.integers(1, 60))
def test_whatever_is_cut_fits(
    tokenizer: ModelTokenizer, policy: Policy, is_fake: bool, text: str, budget: int
) -> None:
    """For any text and budget: at most the budget, at least a token, and a report that adds up."""
    subject: Tokenizer = FakeTokenizer() if is_fake else tokenizer
    if not text:
        return

    outcome = _fit(text, budget, policy, subject)

    assert 1 <= len(outcome.tokens) <= budget
    if outcome.truncation is None:
        assert text == outcome.text
        return
    assert len(outcome.tokens) == outcome.truncation.kept_tokens
    assert outcome.text == _without(text, outcome.truncation.dropped)
    if outcome.text:  # else not one character fits whole
        assert outcome.text == _decoded(outcome, is_fake)


def _without(text: str, dropped: tuple[tuple[int, int], ...]) -> str:
    kept = []
    at = 0
    for start, end in dropped:
        assert at <= start < end <= len(text)
        kept.append(text[at:start])
        at = end
    return "".join([*kept, text[at:]])


def _decoded(outcome: Fit, is_fake: bool) -> str:
    if not is_fake:
        return decode(outcome.tokens.tolist())
    data = outcome.tokens.tobytes()
    # text may end in zeros itself, which the padding cannot be told from
    return data.decode()[: len(outcome.text)]


def test_a_character_is_never_broken(tokenizer: ModelTokenizer) -> None:
    """Where one of several tokens spans the cut, it is left out whole."""
    text = "!!" + "\U0001f6f0" * 3  # four tokens each

    assert ["!!", "\U0001f6f0", "!!"] == [
        _fit(text, 5, policy, tokenizer).text for policy in ("head", "tail", "middle")
    ]


def test_a_budget_below_one_character_keeps_its_tokens(tokenizer: ModelTokenizer) -> None:
    """An engine needs a token to answer; no text is claimed to be kept."""
    outcome = _fit("\U0001f6f0", 2, "semantic", tokenizer)

    assert (2, "") == (len(outcome.tokens), outcome.text)
    assert outcome.truncation is not None
    assert ((0, 1),) == outcome.truncation.dropped


def test_what_cannot_fit_is_refused_unseen(tokenizer: ModelTokenizer) -> None:
    """A text of more bytes than the longest tokens could hold is refused before tokenising."""
    refused = too_long_at_sight("word " * 1000, ROOM, "refuse", tokenizer)

    assert refused is not None
    assert Reason.TOO_LONG == refused.code
    assert "at least" in refused.message


@pytest.mark.parametrize("policy", CUTTING)
def test_only_who_refuses_refuses_unseen(tokenizer: ModelTokenizer, policy: Policy) -> None:
    """What will be cut is tokenised, because the report counts its tokens."""
    assert too_long_at_sight("word " * 1000, ROOM, policy, tokenizer) is None


@given(text=st.text(max_size=300))
def test_nothing_that_fits_is_refused_unseen(tokenizer: ModelTokenizer, text: str) -> None:
    """The bound never exceeds the number of tokens."""
    for subject in (tokenizer, FakeTokenizer()):
        tokens = subject.encode_documents([text])[0]

        assert tokens is not None
        assert subject.fewest_tokens(text) <= max(1, len(tokens))


def test_the_instruction_is_all_around_the_document() -> None:
    """Every text of the messages counts, the system's as well."""
    messages = (
        Message(role="system", content=("Be brief.",)),
        Message(role="user", content=("About valves:\n", None, "\nWhich?")),
    )

    assert "Be brief.\nAbout valves:\n\n\nWhich?" == instruction_of(Spec(messages=messages))
