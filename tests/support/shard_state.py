"""What lies in one shard: everything Redis holds under its prefix, told in a test's words.

Reads every key there is, so that a key nobody expects is seen too. The words are those of
`shard_model.Shard.expected`.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import msgpack

from docmill.keys import GROUP, Keys
from docmill.wire import OUTCOMES
from tests.support.shard_records import Lying, Told, told

#: Keys that say nothing about documents.
_ASIDE = (
    "jobs",
    "backlog",
    "running",
    "dead",
    "open",
    "parked",
    "reaper",
    "heartbeat",
    "consumers",
    "answers",
    "sharing",
)
_OF_JOB = (
    "ids",
    "specs",
    "results",
    "bodies",
    "cancelled",
    "history",
    "splits",
    "whole",
    "parked",
)


class Raw:
    """Every key of a shard: name without prefix -> value as redis-py reads it."""

    def __init__(self, client: Any, keys: Keys) -> None:
        start = len(keys.prefix) + 1
        names = sorted(client.keys(f"{keys.prefix}:*"))
        pipe = client.pipeline(transaction=False)
        for name in names:
            pipe.type(name)
            pipe.pttl(name)
        told = pipe.execute()
        for name, kind in zip(names, told[::2], strict=True):
            _read(pipe, name, kind)
        values = pipe.execute()
        self.values = {
            name.decode()[start:]: value for name, value in zip(names, values, strict=True)
        }
        self.has_lifetime = {
            name.decode()[start:]: ttl > 0 for name, ttl in zip(names, told[1::2], strict=True)
        }
        streams = [name for name in self.values if name.startswith(("intake:", "ready:"))]
        for name in streams:
            pipe.xpending_range(f"{keys.prefix}:{name}", GROUP, "-", "+", 10_000)
        self.pending = {
            name: {row["message_id"]: row["consumer"].decode() for row in rows}
            for name, rows in zip(streams, pipe.execute(), strict=True)
        }

    def get(self, name: str, default: Any = ()) -> Any:
        """Return a key's value."""
        return self.values.get(name, default)

    def under(self, start: str) -> Iterator[tuple[str, Any]]:
        """Go through the keys whose names start so, by the rest of their names."""
        for name, value in self.values.items():
            if name.startswith(start):
                yield name[len(start) :], value


def _read(pipe: Any, name: bytes, kind: bytes) -> None:
    match kind:
        case b"string":
            pipe.get(name)
        case b"hash":
            pipe.hgetall(name)
        case b"set":
            pipe.smembers(name)
        case b"zset":
            pipe.zrange(name, 0, -1)
        case b"list":
            pipe.lrange(name, 0, -1)
        case _:
            pipe.xrange(name)


def observe(client: Any, keys: Keys) -> dict[str, Any]:
    """Read the shard. Cost: four round trips."""
    raw = Raw(client, keys)
    jobs = {name.removeprefix("job:"): raw.values[name] for name in raw.values if _is_job(name)}
    backlog = dict(raw.get("backlog", {}))
    return {
        "lying": _lying(raw, keys),
        "jobs": {name: _job(raw, name, fields) for name, fields in jobs.items()},
        "results": {name: _results(raw, name) for name in jobs},
        "backlog": tuple(int(backlog.get(name, 0)) for name in (b"docs", b"bytes")),
        "running": _texts(raw.get("running")),
        "leaders": {fp: _leader(raw, keys, value) for fp, value in raw.under("lead:")},
        "answers": dict(raw.under("result:")),
        "answer_bytes": _answer_bytes(raw),
        "figures": _figures(raw),
        "open": _texts(raw.get("open")),
        "splits": {name: _splits(raw, name) for name in jobs},
        "parked": _texts(raw.get("parked")),
        "dead": [_letter(fields, keys) for _, fields in raw.get("dead")],
        "unknown": [name for name in raw.values if not _is_known(raw, name, jobs)],
    }


def _splits(raw: Raw, job: str) -> dict[str, str]:
    of_job = raw.get(f"job:{job}:splits", {})
    return {custom_id.decode(): parts.decode() for custom_id, parts in of_job.items()}


def _answer_bytes(raw: Raw) -> dict[str, int]:
    sizes = {fp.decode(): int(size) for fp, size in raw.get("answers:bytes", {}).items()}

    assert _texts(raw.get("answers")) == set(sizes)
    return sizes


def _figures(raw: Raw) -> dict[str, int]:
    figures = {name.decode(): int(num) for name, num in raw.get("sharing", {}).items()}
    return {"answer_bytes": 0} | {name: num for name, num in figures.items() if num}


def _leader(raw: Raw, keys: Keys, value: bytes) -> tuple[str, int]:
    """Return who leads, once the marker was seen to name where its entry lies.

    Beside it how many leaders failed before.
    """
    request, stream, entry, num_failed = value.decode().split("\n")
    lying = [one for one, _ in raw.get(stream.removeprefix(f"{keys.prefix}:"))]

    assert entry.encode() in lying or f"later:{request}" in raw.values, value
    return request, int(num_failed)


def _texts(values: Any) -> set[str]:
    return {value.decode() for value in values}


def _is_job(name: str) -> bool:
    return name.startswith("job:") and name.count(":") == 1


def _is_known(raw: Raw, name: str, jobs: dict[str, Any]) -> bool:
    first, _, rest = name.partition(":")
    match first:
        case "intake" | "ready" | "lead" | "result":
            return True
        case "followers":  # nobody waits for an answer that nobody works on
            return f"lead:{rest}" in raw.values
        case "later":
            return not rest or rest.encode() in raw.get("later")
        case "job":
            job, _, part = rest.partition(":")
            # what is parked may outlive a cancelled job, until it is looked at
            return part == "parked" or (job in jobs and part in ("", *_OF_JOB))
        case _:
            return first in _ASIDE


def _lying(raw: Raw, keys: Keys) -> dict[str, list[Lying]]:
    lying = defaultdict(list)
    for stream, pending in raw.pending.items():
        holders = dict(pending)
        for entry, e in raw.get(stream):
            lying[e[b"i"].decode()].append(_one(e, stream, stream, holders.pop(entry, "")))
        assert holders == {}, f"{stream}: pending, and not there"
    aside = [("later", e) for _, e in raw.under("later:")]
    for name, value in raw.under("job:"):
        if name.endswith(":parked"):
            aside += [(f"job:{name}", e) for _, e in value]
        elif name.endswith(":whole"):
            aside += [(f"job:{name}", value)]
    for place, e in aside:
        stream = e[b"stream"].decode().removeprefix(f"{keys.prefix}:")
        lying[e[b"i"].decode()].append(_one(e, place, stream))
    for fp, flat in raw.under("followers:"):
        for at in range(0, len(flat), 8):
            request, job, tier, *_, ready = flat[at : at + 8]
            stream = ready.decode().removeprefix(f"{keys.prefix}:") or f"intake:{tier.decode()}"
            one = Lying(job.decode(), "follower", stream, "", 1, fp, 0, ())
            lying[request.decode()].append(one)
    return dict(lying)


def _one(e: dict[bytes, bytes], place: str, stream: str, holder: str = "") -> Lying:
    fp, framed, rounds = e.get(b"f", b"").decode(), e.get(b"a", b""), int(e.get(b"l", 0))
    answers = []
    while framed:
        end = 4 + int.from_bytes(framed[:4], "big")
        answers.append(framed[4:end])
        framed = framed[end:]
    return Lying(e[b"j"].decode(), place, stream, holder, int(e[b"n"]), fp, rounds, tuple(answers))


def _job(raw: Raw, name: str, fields: dict[bytes, bytes]) -> dict[str, Any]:
    of_job = [f"job:{name}", *(f"job:{name}:{part}" for part in _OF_JOB[:-1])]
    history = raw.get(f"job:{name}:history", {})
    return {
        **{
            counter: int(fields.get(counter.encode(), 0))
            for counter in ("submitted", *OUTCOMES, "running")
        },
        "is_sealed": fields.get(b"sealed") == b"1",
        "is_paused": b"paused_at" in fields,
        "is_cancelled": b"cancelled_at" in fields,
        "is_finished": b"finished_at" in fields,
        "ids": _texts(raw.get(f"job:{name}:ids")),
        "cancelled_ids": _texts(raw.get(f"job:{name}:cancelled")),
        "history": {key.decode(): text.count(b"\n") + 1 for key, text in history.items()},
        "is_of_parts": b"parent" in fields,
        "lifetimes": {raw.has_lifetime[key] for key in of_job if key in raw.values},
    }


def _results(raw: Raw, job: str) -> dict[str, list[tuple[str, Told]]]:
    results = defaultdict(list)
    bodies = raw.get(f"job:{job}:bodies", {})
    for _, e in raw.get(f"job:{job}:results"):
        body = bodies[e[b"s"]] if b"s" in e else e[b"b"]
        request = msgpack.unpackb(e[b"h"])["request_id"]
        results[request].append((e[b"d"].decode(), told(body)))
    return dict(results)


def _letter(e: dict[bytes, bytes], keys: Keys) -> tuple[str, str, int, str, bool, int]:
    history = e[b"history"]
    return (
        e[b"i"].decode(),
        e[b"reason"].decode(),
        int(e[b"n"]),
        e[b"stream"].decode().removeprefix(f"{keys.prefix}:"),
        bool(e[b"result"]),
        history.count(b"\n") + 1 if history else 0,
    )


def check_laws(seen: dict[str, Any]) -> None:
    """Assert what holds at every moment, whatever happened before."""
    lying, running = seen["lying"], seen["running"]
    assert [request for request, places in lying.items() if len(places) != 1] == []
    ones = {request: one for request, (one,) in lying.items()}
    by_job = {job: {name for name, one in ones.items() if one.job == job} for job in seen["jobs"]}

    assert [name for name in running if name not in ones or not ones[name].holder] == []
    assert [
        fp
        for fp, (leader, _) in seen["leaders"].items()
        if leader not in ones or ones[leader].fp != fp or ones[leader].place == "follower"
    ] == []
    assert [
        request
        for request, one in ones.items()
        if one.place == "follower" and one.fp not in seen["leaders"]
    ] == []
    run_by = [ones[name].fp for name in running if ones[name].fp]

    assert len(run_by) == len(set(run_by)), "an answer is computed twice at a time"
    for name, job in seen["jobs"].items():
        results = seen["results"][name]
        num_done = sum(job[outcome] for outcome in OUTCOMES)
        num_waiting = 0 if job["is_cancelled"] else len(by_job[name] - running)

        assert job["submitted"] == num_done + num_waiting + job["running"], name
        assert [request for request, found in results.items() if len(found) != 1] == []
        assert len(results) == num_done - job["cancelled"], name
