"""Reaching Redis in every supported way, and what is said when that fails."""

import shutil
import socket
import socketserver
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from docmill import Client
from docmill.connection import connect, connection_error
from docmill.errors import BrokerUnavailable
from tests.support.proxy import running_proxy
from tests.support.redis_server import running_redis
from tests.support.wait import wait_until
from workers.redis_server import find_binary


@contextmanager
def running(*arguments: str) -> Iterator[None]:
    """Run a server process until the block ends."""
    process = subprocess.Popen([str(find_binary()), *arguments], stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(10)


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def answers(url: str) -> bool:
    """Tell whether a server answers."""
    with connect(url) as client:
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False


def refusal(url: str) -> str:
    """Return what the client says about a Redis that it cannot use."""
    with pytest.raises(BrokerUnavailable) as caught, Client(url) as client:
        client.ping()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_password_is_needed_right_and_never_shown() -> None:
    """No password, a wrong one and the right one give three different answers."""
    with running_redis() as server, running_proxy(server.url) as proxy:
        with connect(server.url) as admin:
            admin.config_set("requirepass", "s3cret")
        at = f"127.0.0.1:{proxy.port}"

        assert "asks for a password" in refusal(f"redis://{at}/0")
        wrong = refusal(f"redis://:wr0ng@{at}/0")
        assert "refused the user name or password" in wrong
        assert "wr0ng" not in wrong
        Client(f"redis://:s3cret@{at}/0").ping()
        Client(f"unix://:s3cret@{server.socket_path}?db=0").ping()


def test_a_user_without_the_rights_is_told_which(redis_url: str) -> None:
    """What the ACL forbids is named."""
    with running_redis() as server:
        with connect(server.url) as admin:
            admin.execute_command("ACL", "SETUSER", "reader", "on", ">pw", "~*", "+client")
        with connect(f"unix://reader:pw@{server.socket_path}") as client:
            with pytest.raises(redis.RedisError) as caught:
                client.get("x")

            said = str(connection_error(caught.value, "redis://x"))
            assert "ACL" in said
            assert "get" in said


def test_a_database_is_chosen_by_the_url(redis_url: str) -> None:
    """The database in the URL is the one used."""
    with connect(f"{redis_url}?db=3") as client:
        client.set("docmill-test", "x", ex=1)
        with connect(f"{redis_url}?db=4") as other:
            assert other.get("docmill-test") is None


_REPLIES = {b"PING": b"+PONG\r\n", b"EXISTS": b":1\r\n"}


class LoadingRedis(socketserver.StreamRequestHandler):
    """Speaks just enough to say LOADING to the first questions."""

    num_asked = 0

    def handle(self) -> None:
        """Answer one command after the other."""
        while header := self.rfile.readline():
            words = [self._word() for _ in range(int(header[1:]))]
            command = words[0].upper()
            LoadingRedis.num_asked += command == b"EXISTS"
            is_loading = command == b"EXISTS" and LoadingRedis.num_asked < 3
            reply = _REPLIES.get(command, b"+OK\r\n")
            self.wfile.write(b"-LOADING the dataset\r\n" if is_loading else reply)

    def _word(self) -> bytes:
        size = int(self.rfile.readline()[1:])
        return self.rfile.read(size + 2)[:-2]


def test_a_loading_redis_is_waited_for() -> None:
    """LOADING is sat out, on the first contact as well; the client starts by itself."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), LoadingRedis) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            with Client(f"redis://127.0.0.1:{server.server_address[1]}/0") as client:
                client.ping()
        finally:
            server.shutdown()
            thread.join()

    assert 3 <= LoadingRedis.num_asked


def test_a_silent_redis_is_a_timeout() -> None:
    """A server that accepts and never answers ends in a message, not in waiting for ever."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
        with connect(url, timeout_s=0.1) as client, pytest.raises(redis.TimeoutError) as caught:
            client.ping()

    assert "did not answer in time" in str(connection_error(caught.value, url))


def test_tls_at_a_port_without_it_is_told_soon(redis_url: str) -> None:
    """The handshake gets the time of a connect, not of a silence; the message says what to do."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"rediss://127.0.0.1:{listener.getsockname()[1]}/0"
        client = connect(url, timeout_s=60)
        client.connection_pool.connection_kwargs["socket_connect_timeout"] = 0.2
        with client, pytest.raises(redis.TimeoutError) as caught:
            client.ping()

    assert "write redis://" in str(connection_error(caught.value, url))


def test_a_blocking_read_may_be_longer_than_the_timeout(redis_url: str) -> None:
    """The longest block is added to the silence allowed, so an idle read is no error."""
    with connect(redis_url, timeout_s=0.5, block_s=0.7) as client:
        assert not client.xread({"docmill-idle": "0"}, block=700)


_OPENSSL = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
    "-subj /CN=docmill-test -addext subjectAltName=IP:127.0.0.1"
)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 with its key, in one file."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    key, cert = path.with_name("key.pem"), path.with_name("cert.pem")
    subprocess.run(
        [*_OPENSSL.split(), "-keyout", str(key), "-out", str(cert)],
        check=True,
        capture_output=True,
    )
    path.write_bytes(key.read_bytes() + cert.read_bytes())
    return path


def test_tls_is_verified_by_default(redis_url: str, certificate: Path) -> None:
    """rediss:// refuses a certificate that nobody vouches for, and takes one that is named."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with running_proxy(redis_url, context) as proxy:
        url = f"rediss://127.0.0.1:{proxy.port}/0"

        assert "certificate" in refusal(url).lower()
        assert answers(f"{url}?ssl_ca_certs={certificate.with_name('cert.pem')}")
        assert answers(f"{url}?ssl_cert_reqs=none")


def test_a_master_is_found_by_its_sentinels(tmp_path: Path) -> None:
    """The sentinels' master is used, with its database; an unknown one is said to be unknown."""
    port, sentinel_port = free_port(), free_port()
    conf = tmp_path / "sentinel.conf"
    conf.write_text(
        f"port {sentinel_port}\nbind 127.0.0.1\ndir {tmp_path}\n"
        f"sentinel monitor main 127.0.0.1 {port} 1\n"
    )
    server = ("--port", str(port), "--bind", "127.0.0.1", "--save", "")
    with running(*server), running(str(conf), "--sentinel"):
        base = f"redis+sentinel://127.0.0.1:1,127.0.0.1:{sentinel_port}"
        wait_until(lambda: answers(f"{base}/main/2"), what="the sentinel knows its master")

        with connect(f"{base}/main/2") as client:
            client.set("docmill-test", "x")
        with connect(f"redis://127.0.0.1:{port}/2") as direct:
            assert b"x" == direct.get("docmill-test")
        assert "no master that its sentinels know" in refusal(f"{base}/other/0")


def test_every_socket_parameter_is_set(redis_url: str) -> None:
    """What differs between redis-py 5 and 8 is given, so that both behave alike."""
    for url in (
        redis_url,
        "redis://h/0",
        "rediss://h/0",
        "redis+cluster://h",
        "rediss+cluster://h",
    ):
        with connect(url, timeout_s=7, block_s=2) as client:
            used: dict[str, Any] = client.connection_pool.connection_kwargs

        assert (9, 5, 2, False) == (
            used["socket_timeout"],
            used["socket_connect_timeout"],
            used["protocol"],
            used["decode_responses"],
        )
        assert 0 == used["retry"]._retries
        if not url.startswith("unix"):
            assert used["socket_keepalive"] is True
        if url.startswith("rediss"):
            assert used["ssl_check_hostname"] is True
