"""A proxy before a Redis that misbehaves on demand: loses replies, is slow, stalls, speaks TLS."""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Proxy:
    """Forwards TCP connections to a unix socket; see the attributes for what it can do wrong.

    New connections go to `target`, which may be changed.
    """

    def __init__(self, target: str, tls: ssl.SSLContext | None = None) -> None:
        self.replies_to_lose = 0
        self.loses_after = b""
        self.delay_s = 0.0
        self.num_open = 0
        self.most_open = 0
        self.flows = threading.Event()
        self.flows.set()
        self.target = target
        self._tls = tls
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._start(self._accept)

    def _start(self, work: Callable[..., None], *args: Any) -> threading.Thread:
        thread = threading.Thread(target=work, args=args)
        with self._lock:
            self._threads.append(thread)
        thread.start()
        return thread

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        """The URL of the proxied Redis."""
        return f"redis://127.0.0.1:{self.port}/0"

    def lose_replies(self, count: int, *, to: bytes) -> None:
        """Cut the connection, instead of replying, after the next `count` requests holding `to`."""
        self.loses_after = to
        self.replies_to_lose = count

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._start(self._serve, self._listener.accept()[0])

    def _serve(self, raw: socket.socket) -> None:
        with contextlib.suppress(OSError), raw, socket.socket(socket.AF_UNIX) as far:
            near = self._tls.wrap_socket(raw, server_side=True) if self._tls else raw
            far.connect(self.target)
            with near, self._counted(near, far):
                losing = threading.Event()
                back = self._start(self._reply, far, near, losing)
                self._forward(near, far, losing)
                back.join()

    @contextmanager
    def _counted(self, *pair: socket.socket) -> Iterator[None]:
        with self._lock:
            self._sockets |= set(pair)
            self.num_open += 1
            self.most_open = max(self.most_open, self.num_open)
        yield
        with self._lock:
            self._sockets -= set(pair)
            self.num_open -= 1

    def _forward(self, near: socket.socket, far: socket.socket, losing: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := near.recv(1 << 20):
                if self.replies_to_lose > 0 and self.loses_after in data:
                    self.replies_to_lose -= 1
                    losing.set()
                self.flows.wait()
                far.sendall(data)
        _shut(far)

    def _reply(self, far: socket.socket, near: socket.socket, losing: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := far.recv(1 << 20):
                if losing.is_set():
                    break
                if self.delay_s:
                    time.sleep(self.delay_s)
                self.flows.wait()
                near.sendall(data)
        _shut(near)
        _shut(far)

    def cut(self) -> None:
        """Cut every connection that is open now."""
        with self._lock:
            for one in self._sockets:
                _shut(one)

    def close(self) -> None:
        """Stop listening and cut every connection."""
        _shut(self._listener)
        self._listener.close()
        self.flows.set()
        self.cut()
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join()


def _shut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


@contextmanager
def running_proxy(url: str, tls: ssl.SSLContext | None = None) -> Iterator[Proxy]:
    """Run a proxy before the Redis at a unix:// URL until the block ends."""
    proxy = Proxy(url.removeprefix("unix://"), tls)
    try:
        yield proxy
    finally:
        proxy.close()
