"""Be a peer's worker or sender: `.venv-peers/bin/python -m bench.peers NAME URL work|send`."""

import importlib
from collections.abc import Callable

from bench.peers.base import Side, main

NAMES = ("arq", "celery", "dramatiq", "taskiq")


def _maker(name: str) -> Callable[[str], Side]:
    """Return what imports the peer's module, and so its library, only when it is asked for."""

    def make(url: str) -> Side:
        side: Side = importlib.import_module(f"bench.peers.{name}_peer").Peer(url)
        return side

    return make


if __name__ == "__main__":
    main({name: _maker(name) for name in NAMES}, "python -m bench.peers")
