"""What the relay reports at its start about the configured Redis."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis

from relay.queues import keys
from relay.server.redis_check import RedisFindings, RedisRefusedError, inspect
from tests.support.redis_servers import RELAY_RULE, RedisServer, free_port, start_valkey

START = Callable[..., RedisServer]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[START]:
    """Return a function that starts a Valkey for the test; its arguments go to the server."""
    servers: list[RedisServer] = []

    def starter(*args: str, append_fsync: str | None = None) -> RedisServer:
        servers.append(start_valkey(tmp_path, *args, append_fsync=append_fsync))
        return servers[-1]

    yield starter
    for server in servers:
        server.remove()


def findings(url: str) -> RedisFindings:
    """Inspect the server at a URL."""
    with Redis.from_url(url, protocol=2, socket_timeout=5, retry=None) as client:
        return inspect(client, url)


def test_newest_and_oldest_are_accepted(any_redis: RedisServer) -> None:
    found = findings(any_redis.url)
    assert found.reachable
    assert not found.warnings
    assert "no persistence: queues are lost when Redis ends" in found.text


@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_the_append_only_file_is_told(start: START, fsync: str) -> None:
    found = findings(start(append_fsync=fsync).url)
    assert found.text.endswith(f"append-only, fsync {fsync}")


def test_snapshots_are_told_for_what_they_are(start: START) -> None:
    server = start()
    server.run("CONFIG", "SET", "save", "3600 1")
    assert "snapshots only" in findings(server.url).text


def test_a_policy_that_throws_queues_away_is_warned_of(start: START) -> None:
    server = start()
    server.run("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    (warning,) = findings(server.url).warnings
    assert "maxmemory-policy is allkeys-lru" in warning


def test_a_hosted_server_without_config_is_accepted(start: START) -> None:
    server = start("--rename-command", "CONFIG", "")
    found = findings(server.url)
    assert found.reachable
    assert not found.warnings


def test_a_cluster_is_refused(start: START) -> None:
    server = start("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    with pytest.raises(RedisRefusedError, match="is a cluster"):
        findings(server.url)


@pytest.mark.parametrize("url", ["redis://127.0.0.1:{}/0", "redis://:wrong@127.0.0.1:{}/0"])
def test_a_refused_password_is_told_and_not_shown(start: START, url: str) -> None:
    server = start()
    server.run("CONFIG", "SET", "requirepass", "right")
    with pytest.raises(RedisRefusedError, match="refuses the credentials") as caught:
        findings(url.format(server.port))
    assert "wrong@" not in str(caught.value)
    assert findings(f"redis://:right@127.0.0.1:{server.port}/0").reachable


def test_a_user_with_the_documented_rights_is_accepted(any_redis: RedisServer) -> None:
    documented = (Path(__file__).parents[3] / "docs/operate/redis.md").read_text()
    assert all(word in documented for word in RELAY_RULE if not word.startswith(">"))
    any_redis.run("ACL", "LOG", "RESET")
    found = findings(any_redis.url_of_user())
    assert found.reachable
    assert any_redis.run("ACL", "LOG") == []
    assert any_redis.run("DBSIZE") == 0, "nothing is done"


@pytest.mark.parametrize(
    ("denied", "told"),
    [
        (("-client",), "needs: CLIENT ID, CLIENT KILL, CLIENT UNBLOCK ("),
        (("-@scripting",), "needs: EVAL ("),
        (("-multi",), "needs: MULTI ("),
        (("-@stream",), "needs: XADD, XDEL, XLEN, XRANGE, XREAD, XREVRANGE and 1 more ("),
        (("resetchannels", "&relay:*"), "needs: publish to the channel wake:0, listen to the "),
        (
            ("resetkeys", "~stream:*", "~limits:*"),
            "needs: read the key relay:probe, write the key ",
        ),
        (("resetkeys", "~stream:*", "~limits:*", "~relay*"), "needs: read the key federation:0, "),
        (
            ("resetkeys", "~stream:*", "~limits:*", "~relay*", "~federation:*"),
            "needs: read the key sbd:keys, ",
        ),
    ],
)
def test_a_user_with_too_few_rights_is_refused(
    any_redis: RedisServer, denied: tuple[str, ...], told: str
) -> None:
    url = any_redis.url_of_user(*denied)
    with pytest.raises(RedisRefusedError, match="does not allow its user") as caught:
        findings(url)
    assert told in str(caught.value)


def test_nobody_there_is_a_warning() -> None:
    found = findings(f"redis://:secret@127.0.0.1:{free_port()}/0")
    assert not found.reachable
    assert "NOT REACHABLE" in found.text
    assert "secret" not in f"{found}"


def test_data_of_a_newer_release_is_refused(valkey: RedisServer) -> None:
    valkey.run("SET", keys.SCHEMA, keys.SCHEMA_VERSION + 1)
    with pytest.raises(RedisRefusedError, match="written by a newer release"):
        findings(valkey.url)


class OldServer:
    """A stand-in for a Redis that is too old; such programs can no longer be installed."""

    def __init__(self, version: str) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        self._info = f"redis_version:{version}\r\ncluster_enabled:0\r\n".encode()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection, connection.makefile("rb") as lines:
            for line in lines:
                if line.strip().upper() == b"INFO":
                    connection.sendall(b"$%d\r\n%b\r\n" % (len(self._info), self._info))
                elif line.strip().upper() in (b"CLIENT", b"SELECT"):
                    connection.sendall(b"+OK\r\n")

    def close(self) -> None:
        self._thread.join()
        self._listener.close()


@pytest.mark.parametrize("version", ["6.0.20", "5.0.14", "2.8"])
def test_a_server_that_is_too_old_is_refused(version: str) -> None:
    server = OldServer(version)
    try:
        with pytest.raises(RedisRefusedError, match=f"is version {version}; .* 6.2 or newer"):
            findings(server.url)
    finally:
        server.close()
