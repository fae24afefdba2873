"""Tests of the test servers: readiness, persistence through kill, pause, empty database."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from tests.support.redis_servers import RedisServer, start_redis62, start_valkey


def test_each_test_gets_an_empty_database(any_redis: RedisServer) -> None:
    assert any_redis.run("DBSIZE") == 0
    any_redis.run("SET", "left", "over")


def test_the_two_ends_of_the_supported_range(valkey: RedisServer, redis62: RedisServer) -> None:
    assert redis62.run("INFO", "server")["redis_version"].startswith("6.2.")
    assert "valkey_version" in valkey.run("INFO", "server")


@pytest.mark.parametrize("start", [start_valkey, start_redis62])
def test_what_is_appended_survives_kill(start, tmp_path: Path) -> None:
    server = start(tmp_path, append_fsync="no")
    try:
        server.run("SET", "kept", "yes")
        port, pid = server.port, server.pid
        server.kill()
        assert not server.running
        server.restart()
        assert (server.port, server.run("GET", "kept")) == (port, b"yes")
        assert server.pid != pid
    finally:
        server.remove()
    assert not Path(server.socket_path).exists()


def test_pause_keeps_connections_and_answers_nothing(tmp_path: Path) -> None:
    server = start_valkey(tmp_path)
    try:
        client = redis.Redis(unix_socket_path=server.socket_path, socket_timeout=0.2, retry=None)
        client.ping()
        server.pause()
        with pytest.raises(redis.TimeoutError):
            client.ping()
        server.resume()
        assert server.run("PING")
        client.close()
    finally:
        server.remove()


def test_bad_options_show_the_log(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no-such-option"):
        start_valkey(tmp_path, "--no-such-option", "1")
