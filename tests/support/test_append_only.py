"""Tests of `tests.support.append_only`: it reads a real server's writes as units."""

from __future__ import annotations

from pathlib import Path

from tests.support.append_only import AppendOnlyTail
from tests.support.redis_servers import start_valkey


def test_units_come_once_and_whole(tmp_path: Path) -> None:
    server = start_valkey(tmp_path, append_fsync="no")
    try:
        server.run("SET", "before", "x")
        tail = AppendOnlyTail(tmp_path)
        tail.skip()
        with server.client() as client:
            both = client.pipeline(transaction=True)
            both.xadd("stream:7", {"_": b"\r\n*3\r\n"}).publish("wake:7", "new").set(
                "n", 1
            ).execute()
        (unit,) = tail.units()
        # Published messages are not data, so they are not in the file.
        assert [command[0].upper() for command in unit if command[0] != b"SELECT"] == [
            b"XADD",
            b"SET",
        ]
        assert unit[-2][-1] == b"\r\n*3\r\n"
        assert list(tail.units()) == []
        server.kill()
        server.restart()
        server.run("EVAL", "redis.call('SET', 'a', 1) redis.call('SET', 'b', 2)", 0)
        found = [command for unit in tail.units() for command in unit]
        assert [command[:2] for command in found if command[0] == b"SET"] == [
            [b"SET", b"a"],
            [b"SET", b"b"],
        ]
    finally:
        server.remove()
