"""Words in letters of another script."""

import pytest

from tests.support.rules import look


@pytest.mark.parametrize(
    ("text", "hits"),
    [
        ("go to pаypаl now", (1, 6)),
        ("аpple", (1, 0)),
        ("googlе", (1, 0)),
        ("micrοsoft and gοοgle", (2, 0)),
        ("Введите пapoль", (1, 8)),
    ],
)
def test_disguised_words_are_found(text: str, hits: tuple[int, int]) -> None:
    """Letters of another script that look like those around them are no spelling."""
    assert hits == look("mixed_scripts", text)


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "Слова и words рядом",
        "SMSки с iPhoneа и VIPам",
        "IP-адрес, T-клетки, COVID-19",
        "ΔG, μm, kΩ, λmax, νmax, β-carotene, π-electrons",
        "Το iPhone και το Google",
    ],
)
def test_loan_words_and_formulas_are_text(text: str) -> None:
    """Scripts meet in one word for good reasons."""
    assert None is look("mixed_scripts", text)
