"""Text that was decoded wrongly."""

import pytest

from tests.support.cases import documents
from tests.support.rules import look, repaired


@pytest.mark.parametrize(
    ("text", "mended"),
    [
        ("dÃ©bit mesurÃ©", "débit mesuré"),
        ("GrÃ¶ÃŸe\nplain\nStraÃŸe", "Größe\nplain\nStraße"),
        ("РџСЂРёРІРµС‚", "Привет"),
        ("cr√®me br√ªl√©e", "crème brûlée"),
        ("日本 and dÃ©bit", "日本 and débit"),
    ],
)
def test_wrongly_decoded_text_is_found_and_decoded_again(text: str, mended: str) -> None:
    """UTF-8 read as cp1252, cp1251 or Mac Roman is found, and mended where that is asked for."""
    assert None is not look("mojibake", text)
    assert mended == repaired("mojibake", text)


def test_mojibake_of_others_is_flagged() -> None:
    """A document that others stumbled over is flagged, not rewritten."""
    hits = [look("mojibake", each.decode()) for each in documents("i06_mojibake.jsonl").values()]

    assert [(2, 1)] == hits


@pytest.mark.parametrize(
    "text",
    ["LA LIBERTÉ», dit-il", "SÃO NÃO", "Він їсть", "№ 5, 30 °C", "© 2024 ® ½", "в РФ» и"],
)
def test_accents_beside_signs_are_text(text: str) -> None:
    """What only resembles mojibake passes."""
    assert None is look("mojibake", text)
