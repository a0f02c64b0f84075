"""What fits, exactly."""

from docmill.errors import Reason
from docmill.report import Truncation
from docmill.wire import Failure
from preprocess.truncate import Room, fit

ROOM = Room(context_len=100, template_len=30, max_tokens=20)


def test_what_fits_is_left_alone() -> None:
    """Up to the last token that fits, nothing is cut and nothing reported."""
    assert fit(49, ROOM, "head") is None
    assert fit(50, ROOM, "head") is None


def test_one_token_too_many_costs_one_token() -> None:
    """The report counts the document's tokens before and after."""
    expected = Truncation(policy="head", original_tokens=51, kept_tokens=50)

    assert expected == fit(51, ROOM, "head")


def test_the_policy_refuse_names_the_figures() -> None:
    """Who does not want to lose text learns how much there is and how much fits."""
    refused = fit(51, ROOM, "refuse")

    assert isinstance(refused, Failure)
    assert Reason.TOO_LONG == refused.code
    assert "51 tokens and 50 fit" in refused.message


def test_no_room_at_all_names_the_figures() -> None:
    """An answer as long as the context leaves no room, and the message adds it up."""
    shortage = Room(context_len=100, template_len=30, max_tokens=70).shortage()

    assert shortage is not None
    assert Reason.CONTEXT_TOO_SMALL == shortage.code
    assert "context 100 - template 30 - max_tokens 70 = 0" in shortage.message


def test_one_token_is_room() -> None:
    """Room for a single token of the document is room."""
    assert Room(context_len=100, template_len=30, max_tokens=69).shortage() is None
