"""Redis servers on loopback ports, of which several make a cluster, or masters and replicas."""

import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from tests.support.wait import wait_until
from workers.redis_server import _end_with_parent, find_binary


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class Node:
    """One server process. `admin` speaks to it alone, whatever it says of others."""

    def __init__(self, folder: Path, options: dict[str, Any], *arguments: str) -> None:
        self.port = free_port()
        self.folder = folder / str(self.port)
        self.folder.mkdir()
        conf = self.folder / "redis.conf"
        settings = {"port": self.port, "bind": "127.0.0.1", "dir": self.folder, **options}
        conf.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        self._argv = [str(find_binary()), str(conf), *arguments]
        self.admin: Any = redis.Redis(port=self.port, protocol=2, socket_timeout=5)
        self.start()

    def start(self) -> None:
        """Start it, again after it was killed; does not wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self._argv,
                stdout=log,
                preexec_fn=_end_with_parent(),  # noqa: PLW1509 - one prepared C call, no locks
            )

    @property
    def place(self) -> str:
        """Its host and port, as in a URL."""
        return f"127.0.0.1:{self.port}"

    def answers(self) -> bool:
        """Tell whether it answers."""
        try:
            return bool(self.admin.ping())
        except redis.RedisError:
            return False

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@contextmanager
def nodes_folder() -> Iterator[tuple[Path, list[Node]]]:
    """Provide a folder for nodes and a list of them; all are ended when the block ends."""
    folder = Path(tempfile.mkdtemp(prefix="dm-test-"))
    nodes: list[Node] = []
    try:
        yield folder, nodes
    finally:
        for node in nodes:
            node.kill()
            node.admin.close()
        shutil.rmtree(folder, ignore_errors=True)


def wait_for(nodes: list[Node]) -> None:
    """Wait until all of them answer."""
    for node in nodes:
        wait_until(node.answers, what=f"{node.place} answers")


def is_linked(replica: Node) -> bool:
    """Tell whether a replica has all data and follows its master."""
    return bool(replica.admin.info("replication").get("master_link_status") == "up")
