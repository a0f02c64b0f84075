"""The Lua scripts: every step on the queue that must be atomic.

Each script is one file in `lua/`, headed by its arguments and results; what they share stands in
files of its own that are put in front of each. Scripts are called by hash; redis-py's `Script`
loads them again on `NOSCRIPT`, also inside a pipeline. May import redis.
"""

from functools import cache
from importlib.resources import files
from typing import Any, Literal

ScriptName = Literal[
    "open",
    "submit",
    "reject",
    "seal",
    "cancel",
    "pause",
    "prepare",
    "split",
    "begin",
    "complete",
    "bury",
    "redeliver",
    "due",
    "unpark",
    "abandoned",
    "expire",
    "dead",
    "retry",
    "drop_dead",
    "beat",
    "alone",
    "missing",
    "lead",
    "resign",
    "forget",
    "trim_answers",
]

#: In this order: each uses what those before it define.
_SHARED = ("_lib.lua", "_sharing.lua", "_parts.lua", "_answers.lua")


@cache
def source(name: ScriptName) -> str:
    """Return the script's whole text, shared parts first."""
    folder = files("docmill") / "lua"
    return "".join(folder.joinpath(file).read_text() for file in (*_SHARED, f"{name}.lua"))


class Scripts:
    """The scripts bound to one connection and one shard.

    A call returns the script's reply; given a pipeline it only queues the call. Replies are the
    bytes that the script's header names.
    """

    def __init__(self, client: Any, prefix: str) -> None:
        self._client = client
        self._prefix = prefix
        self._bound: dict[str, Any] = {}

    def call(self, name: ScriptName, *args: str | bytes | int | float, pipe: Any = None) -> Any:
        """Run a script, or queue it on `pipe`. Cost: one round trip, none when queued."""
        script = self._bound.get(name)
        if script is None:
            script = self._bound[name] = self._client.register_script(source(name))
        return script(keys=[self._prefix], args=args, client=pipe)
