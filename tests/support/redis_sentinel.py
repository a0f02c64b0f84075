"""A real master with a replica, and the sentinel that watches them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from redis.exceptions import ResponseError

from tests.support.redis_nodes import Node, is_linked, nodes_folder, wait_for
from tests.support.wait import wait_until

SERVICE = "main"
#: Silence after which the sentinel takes a server for dead: short, so that a failover takes 2 s.
_DOWN_AFTER_MS = 500


class Watched:
    """A master, its replica and their sentinel."""

    def __init__(self, master: Node, replica: Node, sentinel: Node) -> None:
        self.master = master
        self.replica = replica
        self.sentinel = sentinel

    @property
    def url(self) -> str:
        """The URL by which docmill finds the master."""
        return f"redis+sentinel://{self.sentinel.place}/{SERVICE}"

    def master_port(self) -> int:
        """Return the port of the master as the sentinel has it."""
        answer = self.sentinel.admin.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        return int(answer[1])

    def wait_for_replica(self) -> None:
        """Wait until the replica has all that the master had when this was called."""
        assert self.master.admin.execute_command("WAIT", 1, 10_000) >= 1

    def fail_over(self) -> None:
        """Have the sentinel make the replica the master, both being well."""
        wait_until(self._may_fail_over, what="the sentinel finds the replica fit")

    def _may_fail_over(self) -> bool:
        try:
            self.sentinel.admin.execute_command("SENTINEL", "FAILOVER", SERVICE)
        except ResponseError as error:
            if not str(error).startswith("NOGOODSLAVE"):  # it has only just been met
                raise
            return False
        return True


@contextmanager
def running_sentinel() -> Iterator[Watched]:
    """Run a master, a replica and a sentinel that watches them, until the block ends."""
    plain: dict[str, Any] = {"save": '""', "appendonly": "no", "repl-diskless-sync-delay": 0}
    with nodes_folder() as (folder, nodes):
        master = Node(folder, plain)
        nodes.append(master)
        replica = Node(folder, plain | {"replicaof": f"127.0.0.1 {master.port}"})
        nodes.append(replica)
        sentinel = Node(
            folder,
            {
                "sentinel monitor": f"{SERVICE} 127.0.0.1 {master.port} 1",
                "sentinel down-after-milliseconds": f"{SERVICE} {_DOWN_AFTER_MS}",
                "sentinel failover-timeout": f"{SERVICE} 5000",
            },
            "--sentinel",
        )
        nodes.append(sentinel)
        wait_for(nodes)
        watched = Watched(master, replica, sentinel)
        wait_until(lambda: is_linked(replica), what="replication")
        wait_until(lambda: _num_replicas(sentinel) == 1, what="the sentinel knows the replica")
        yield watched


def _num_replicas(sentinel: Node) -> int:
    return len(sentinel.admin.execute_command("SENTINEL", "REPLICAS", SERVICE))
