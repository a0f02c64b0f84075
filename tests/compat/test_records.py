"""Records as earlier and present versions wrote them: today's readers must understand the bytes."""

import json
from pathlib import Path
from typing import Any

import pytest

from docmill.wire import Body, Header, Prepared, Record, Spec

#: name -> the record's class, its bytes in hex, and what they say. Never changed, only added to;
#: the name ends with the schema version.
GOLDEN: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "records.json").read_text(encoding="utf-8")
)
CLASSES: dict[str, type[Record]] = {cls.__name__: cls for cls in (Body, Header, Prepared, Spec)}


def _as_json(record: Record) -> dict[str, Any]:
    if isinstance(record, Prepared):
        return record.model_dump(exclude={"tokens"}, mode="json") | {"tokens": record.tokens.hex()}
    return record.model_dump(mode="json")


@pytest.mark.parametrize("name", GOLDEN)
def test_old_bytes_are_read_as_they_were_meant(name: str) -> None:
    """Every record ever written by a released format still says the same."""
    golden = GOLDEN[name]
    record = CLASSES[golden["record"]].decode(bytes.fromhex(golden["hex"]))

    said = _as_json(record)

    assert golden["fields"] == _as_far_as(golden["fields"], said)


def _as_far_as(meant: Any, said: Any) -> Any:
    """Return of `said` what `meant` knows: fields that came later are at their defaults."""
    if not (isinstance(meant, dict) and isinstance(said, dict)):
        return said
    return {key: _as_far_as(meant[key], said[key]) for key in meant}


def test_the_golden_bytes_hold_the_current_and_the_previous_versions() -> None:
    """A record's new version comes with bytes of it here, beside those of the one before."""
    held = {
        (golden["record"], int(name.split("_")[-1 - name.endswith("zstd")]))
        for name, golden in GOLDEN.items()
    }
    wanted = {
        (name, version)
        for name, cls in CLASSES.items()
        for version in (*cls.read_versions, cls.schema_version)
    }

    assert wanted <= held


def test_a_document_s_digest_of_its_request_never_changes() -> None:
    """What is asked is named by the digest of its bytes, also across versions of docmill."""
    spec = Spec.decode(bytes.fromhex(GOLDEN["spec_1"]["hex"]))

    assert spec.encode().hex() == GOLDEN["spec_1"]["hex"]
    assert spec.digest() == GOLDEN["header_1"]["fields"]["spec"]
