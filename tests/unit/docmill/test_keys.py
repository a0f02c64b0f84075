"""Names of keys: one shard is one slot, and Lua builds the same names as Python."""

import re
from collections import Counter
from importlib.resources import files

import pytest

from docmill.keys import TIERS, Keys, shard_of

KEYS = Keys("ns", 3)
LIB = files("docmill").joinpath("lua", "_lib.lua").read_text()

#: What _lib.lua calls a key -> the same key built in Python.
IN_LUA = {
    "k_job": KEYS.job("A"),
    "k_ids": KEYS.custom_ids("A"),
    "k_specs": KEYS.specs("A"),
    "k_results": KEYS.results("A"),
    "k_bodies": KEYS.bodies("A"),
    "k_cancelled": KEYS.cancelled("A"),
    "k_history": KEYS.history("A"),
    "k_parked": KEYS.parked("A"),
    "k_splits": KEYS.splits("A"),
    "k_whole": KEYS.whole("A"),
    "k_later": KEYS.later_entry("A"),
    "k_intake": KEYS.intake("A"),
    "k_lead": KEYS.leader("A"),
    "k_followers": KEYS.followers("A"),
    "k_cached": KEYS.cached_result("A"),
    "K_BACKLOG": KEYS.backlog,
    "K_RUNNING": KEYS.running,
    "K_DEAD": KEYS.dead,
    "K_LATER": KEYS.later,
    "K_PARKED": KEYS.parked_jobs,
    "K_OPEN": KEYS.open_jobs,
    "K_REAPER": KEYS.reaper,
    "K_ANSWERS": KEYS.answers,
    "K_ANSWER_BYTES": KEYS.answer_bytes,
    "K_SHARING": KEYS.sharing,
}


def _built_by(expression: str) -> str:
    """Evaluate a Lua concatenation of the prefix, literals and one argument."""
    parts = (part.strip() for part in expression.split(".."))
    return "".join(
        KEYS.prefix if part == "P" else part[1:-1] if part.startswith("'") else "A"
        for part in parts
    )


def test_lua_builds_the_same_names() -> None:
    """Every key that _lib.lua defines is the one that keys.py defines."""
    functions = re.findall(r"local function (k_\w+)\(\w+\) return (.+?) end", LIB)
    constants = re.findall(r"local (K_\w+) = (P .+)", LIB)

    assert {name: _built_by(built) for name, built in (*functions, *constants)} == IN_LUA


@pytest.mark.parametrize(
    ("script", "keys"),
    [
        ("open", [KEYS.jobs]),
        ("forget", [KEYS.consumers]),
        ("beat", [KEYS.heartbeat(""), KEYS.consumers]),
        ("alone", [KEYS.alone("")]),
        ("missing", [KEYS.absent(""), KEYS.heartbeat("")]),
    ],
    ids=["open", "forget", "beat", "alone", "missing"],
)
def test_scripts_build_the_same_names(script: str, keys: list[str]) -> None:
    """A key that only one script uses is the one that keys.py defines."""
    text = files("docmill").joinpath("lua", f"{script}.lua").read_text()
    built = [_built_by(found) for found in re.findall(r"P \.\. '[^']+'", text)]

    assert built == keys


def test_all_keys_of_a_shard_share_a_slot() -> None:
    """Every key starts with the shard's hash tag."""
    keys = [*IN_LUA.values(), KEYS.jobs, KEYS.consumers, KEYS.models, KEYS.reaper, KEYS.shards]
    keys += [KEYS.heartbeat("c"), KEYS.absent("c"), KEYS.ready("v", TIERS[0], 1), KEYS.alone("c")]
    keys += [KEYS.tasks, KEYS.tasks_ended]

    assert {"{dm:ns:3}"} == {key[: key.index("}") + 1] for key in keys}


def test_namespaces_and_shards_never_meet() -> None:
    """Two namespaces, or two shards of one, have different keys."""
    prefixes = {Keys("a", 0).prefix, Keys("a", 1).prefix, Keys("b", 0).prefix}

    assert len(prefixes) == 3


def test_a_job_stays_in_its_shard() -> None:
    """The shard follows from the id alone; as written down here, it is the same for ever."""
    assert [0, 0, 5] == [shard_of("20261130-073512-3f9a2c1b", num) for num in (1, 2, 7)]


def test_jobs_spread_over_the_shards() -> None:
    """Ids that differ in little lie in all shards, about as many in each."""
    counts = Counter(shard_of(f"20261130-073512-{number:08x}", 8) for number in range(8000))

    assert set(range(8)) == set(counts)
    assert min(counts.values()) > 800
