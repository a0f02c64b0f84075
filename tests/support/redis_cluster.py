"""A real Redis Cluster on loopback: some masters, a replica where one is asked for."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any

import pytest
from redis.crc import key_slot

from docmill.keys import Keys
from tests.support.redis_nodes import Node, free_port, is_linked, nodes_folder, wait_for
from tests.support.wait import wait_until

NUM_SLOTS = 16384
#: Silence after which a node is taken for dead: short, so that a failover takes 1 or 2 s.
_NODE_TIMEOUT_MS = 1000


class Cluster:
    """Masters that share all slots evenly."""

    def __init__(self, masters: list[Node], replicas: list[Node]) -> None:
        self.masters = masters
        self.replicas = replicas

    @property
    def url(self) -> str:
        """The URL by which docmill finds it, naming the first two masters only."""
        return "redis+cluster://" + ",".join(node.place for node in self.masters[:2])

    @property
    def nodes(self) -> list[Node]:
        """All of them."""
        return [*self.masters, *self.replicas]

    def owner(self, key: str) -> Node:
        """Return the master of a key's slot, by what the first node that answers says."""
        asked = next(node for node in self.nodes if node.process.poll() is None)
        slot = key_slot(key.encode())
        for first, last, master, *_ in asked.admin.execute_command("CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(node for node in self.nodes if node.port == master[1])
        raise LookupError(slot)

    def namespace(self, num_shards: int) -> str:
        """Return a new namespace whose shards lie with different masters, if there are as many."""
        stem = uuid.uuid4().hex[:12]
        for number in count():
            name = f"t{stem}-{number}"
            owners = {self.owner(Keys(name, shard).prefix).port for shard in range(num_shards)}
            if len(owners) == min(num_shards, len(self.masters)):
                return name
        raise AssertionError

    def isolate(self, node: Node) -> None:
        """Cut a node off from the others, but not from clients; skips where that is not known."""
        version = str(node.admin.info("server")["redis_version"])
        if tuple(map(int, version.split(".")[:2])) < (7, 2):
            pytest.skip(f"Redis {version} cannot drop all packets of a cluster's bus")
        node.admin.execute_command("DEBUG", "DROP-CLUSTER-PACKET-FILTER", -2)

    def begin_move(self, key: str, target: Node) -> None:
        """Begin to move a key's slot to another master: keys that are not there are asked for."""
        slot, source = key_slot(key.encode()), self.owner(key)
        _setslot(target, slot, "IMPORTING", _id(source))
        _setslot(source, slot, "MIGRATING", _id(target))

    def end_move(self, key: str, target: Node) -> None:
        """Move the slot's keys, and let everybody know whose it is."""
        slot, source = key_slot(key.encode()), self.owner(key)
        while names := source.admin.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100):
            source.admin.execute_command(
                "MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *names
            )
        for node in (target, source, *self.masters):
            _setslot(node, slot, "NODE", _id(target))


def _setslot(node: Node, slot: int, *words: str) -> None:
    node.admin.execute_command("CLUSTER", "SETSLOT", slot, *words)


def _id(node: Node) -> str:
    return str(node.admin.execute_command("CLUSTER", "MYID").decode())


@contextmanager
def running_cluster(num_masters: int = 3, num_replicas: int = 0) -> Iterator[Cluster]:
    """Run a cluster until the block ends; its replicas are the first masters', one each."""
    with nodes_folder() as (folder, nodes):
        for _ in range(num_masters + num_replicas):
            bus = free_port()
            nodes.append(Node(folder, _options(bus)))
        wait_for(nodes)
        cluster = Cluster(nodes[:num_masters], nodes[num_masters:])
        _join(cluster)
        yield cluster


def _options(bus_port: int) -> dict[str, Any]:
    return {
        "cluster-enabled": "yes",
        "cluster-port": bus_port,
        "cluster-node-timeout": _NODE_TIMEOUT_MS,
        "save": '""',
        "appendonly": "no",
        "repl-diskless-sync-delay": 0,
        "enable-debug-command": "local",
    }


def _join(cluster: Cluster) -> None:
    """Share the slots out and introduce the nodes to each other, as redis-cli --cluster does."""
    first = cluster.masters[0]
    for number, node in enumerate(cluster.masters):
        bounds = [NUM_SLOTS * place // len(cluster.masters) for place in (number, number + 1)]
        node.admin.execute_command("CLUSTER", "ADDSLOTSRANGE", bounds[0], bounds[1] - 1)
        node.admin.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
    for node in cluster.nodes:
        bus_port = node.admin.config_get("cluster-port")["cluster-port"]
        first.admin.execute_command("CLUSTER", "MEET", "127.0.0.1", node.port, bus_port)
    wait_until(lambda: all(_knows_all(node, cluster) for node in cluster.nodes), what="a cluster")
    for master, replica in zip(cluster.masters, cluster.replicas, strict=False):
        replica.admin.execute_command("CLUSTER", "REPLICATE", _id(master))
        wait_until(partial(is_linked, replica), what="replication")


def _knows_all(node: Node, cluster: Cluster) -> bool:
    return is_ok(node) and b"cluster_known_nodes:%d\r" % len(cluster.nodes) in _info(node)


def is_ok(node: Node) -> bool:
    """Tell whether a node finds that every slot has a master."""
    return b"cluster_state:ok" in _info(node)


def _info(node: Node) -> bytes:
    return bytes(node.admin.execute_command("CLUSTER", "INFO"))
