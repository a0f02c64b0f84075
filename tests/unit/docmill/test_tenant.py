"""On whose behalf documents are submitted."""

from typing import Any

import pytest

from docmill import AsyncClient, Client
from docmill.errors import JobRejected
from docmill.tenant import check_tenant


@pytest.mark.parametrize(
    ("tenant", "words"),
    [
        (5, "must be text"),
        (None, "must be text"),
        (b"north", "must be text"),
        ("\ud800", "must be text"),
        ("x" * 129, "129 bytes is longer than 128"),
        ("é" * 65, "130 bytes is longer than 128"),
    ],
)
@pytest.mark.parametrize(
    "make", [check_tenant, lambda tenant: Client(tenant=tenant), lambda t: AsyncClient(tenant=t)]
)
def test_a_tenant_is_a_short_text(make: Any, tenant: Any, words: str) -> None:
    """It travels with each document; a client that cannot use it is not made."""
    with pytest.raises(JobRejected, match=words):
        make(tenant)


def test_any_short_text_names_a_tenant() -> None:
    """No text is no tenant."""
    assert ["", "Müller & Co"] == [check_tenant(tenant) for tenant in ("", "Müller & Co")]
