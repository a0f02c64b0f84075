"""Settings: what is refused, what is said, and what an answer depends on."""

from typing import get_args

import pytest

from docmill.cli.options import DTYPES, ENGINES
from docmill.errors import ConfigError
from workers.service import commands
from workers.settings import Settings, child_environment, load


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"shards": 2, "shard": 2}, "DOCMILL_SHARD: must be below DOCMILL_SHARDS"),
        ({"bucket_bounds": (9, 3)}, "DOCMILL_BUCKET_BOUNDS: must ascend"),
    ],
    ids=["shard", "bounds"],
)
def test_a_refused_setting_is_named_and_the_others_are_not_shown(
    given: dict[str, object], said: str
) -> None:
    """A message about one setting does not tell the password in another."""
    with pytest.raises(ConfigError) as caught:
        load(redis_url="redis://:s3cret@h/0", **given)

    assert said in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("given", ["4096,32768", "4096", "{}", "", "[" * 100_000])
def test_a_list_that_cannot_be_read_is_one_line_beside_the_others(
    monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    """A variable that is no JSON list is named with an example, and hides no other problem."""
    monkeypatch.setenv("DOCMILL_BUCKET_BOUNDS", given)
    monkeypatch.setenv("DOCMILL_MAX_ROWS", "many")
    with pytest.raises(ConfigError) as caught:
        load()

    bounds, rows = str(caught.value).split("\n")

    assert bounds.startswith("DOCMILL_BUCKET_BOUNDS: must be a JSON list such as [4096,32768] (got")
    assert rows.startswith("DOCMILL_MAX_ROWS: ")


def test_a_list_is_read_from_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A JSON list of numbers is taken as it is."""
    monkeypatch.setenv("DOCMILL_BUCKET_BOUNDS", "[8, 64]")

    assert (8, 64) == load().bucket_bounds


def test_every_list_has_its_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting's variable ends the process with anything but a line about it."""
    for name in Settings.model_fields:
        monkeypatch.setenv(f"DOCMILL_{name.upper()}", "\x01,{")
    with pytest.raises(ConfigError) as caught:
        load()

    assert "DOCMILL_BUCKET_BOUNDS: must be" in str(caught.value)


def test_the_command_line_takes_what_settings_take() -> None:
    """It refuses other values itself, so it has to know all of them."""
    known = Settings.model_fields

    assert ENGINES == get_args(known["engine"].annotation)
    assert DTYPES == get_args(known["dtype"].annotation)


def test_answers_do_not_depend_on_the_shard() -> None:
    """Workers of different shards may serve the same prepared documents and cached answers."""
    assert Settings().digest() == Settings(shards=3, shard=2).digest()


def test_one_set_of_workers_serves_each_shard() -> None:
    """With one shard roles have plain names; with more each is told its shard.

    The engine is first: it takes longest to start.
    """
    assert ["engine", "preprocess", "control"] == [command.role for command in commands(1)]
    roles = {command.role: command.variables for command in commands(3)}

    assert 9 == len(roles)
    assert {"DOCMILL_SHARD": "2"} == roles["engine.2"]


def test_control_knows_whose_redis_it_is() -> None:
    """A Redis of the service's own is meant to be as it is; only control would warn."""
    given, own = (commands(2, is_own_redis=is_own) for is_own in (False, True))

    assert {()} == {command.arguments for command in given}
    assert {"control.0", "control.1"} == {one.role for one in own if one.arguments}


def test_children_know_how_many_shards_there_are() -> None:
    """The number goes on to the workers, whose shard is then added."""
    assert "3" == child_environment(Settings(shards=3))["DOCMILL_SHARDS"]
