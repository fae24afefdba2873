"""`relay.federation.ranks`: all processes use one order, and ranks recover as failures age."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from redispipe import resp
from relay.federation import live
from relay.federation.ranks import FRESH_S, Ranks
from relay.queues import keys
from tests.support.redis_servers import RedisServer

PERIOD_S = 3600.0
RELAYS = ("a.example", "b.example", "c.example")
NOW = 1_795_218_450.0


def by_name(names: list[str]) -> None:
    """Sort names instead of shuffling them."""
    names.sort()


class Process:
    """The ranks of one process; commands are answered immediately."""

    def __init__(self, server: RedisServer) -> None:
        self._client = server.client()
        self.ranks = Ranks(self._submit, PERIOD_S, by_name)

    def _submit(self, command: bytes, then: Callable[[Any], None]) -> None:
        then(self._client.execute_command(*_parts(command)))

    def order(self, now: float) -> list[str]:
        return list(self.ranks.order(RELAYS, now))


def _parts(command: bytes) -> Iterable[bytes]:
    """Yield the arguments of an encoded command."""
    count, _, rest = command.removeprefix(b"*").partition(b"\r\n")
    for _ in range(int(count)):
        size, _, rest = rest.removeprefix(b"$").partition(b"\r\n")
        yield rest[: int(size)]
        rest = rest[int(size) + 2 :]


def test_the_parts_of_a_command() -> None:
    assert list(_parts(resp.command("SET", "a\r\n", b"\xff"))) == [b"SET", b"a\r\n", b"\xff"]


def test_the_one_that_failed_least_is_first(any_redis: RedisServer) -> None:
    process = Process(any_redis)
    assert process.order(NOW) == list(RELAYS)
    for relay, failures in (("a.example", 2), ("b.example", 1)):
        for _ in range(failures):
            process.ranks.failed(relay, NOW)
    assert process.order(NOW) == ["c.example", "b.example", "a.example"]


def test_what_one_process_sees_fail_the_others_know_within_a_second(
    any_redis: RedisServer,
) -> None:
    one, two = Process(any_redis), Process(any_redis)
    assert two.order(NOW) == list(RELAYS)
    one.ranks.failed("a.example", NOW + 0.1)
    two.order(NOW + FRESH_S)  # reads again
    assert two.order(NOW + FRESH_S) == ["b.example", "c.example", "a.example"]
    assert Process(any_redis).order(NOW + FRESH_S)[-1] == "a.example", "after a restart"


def test_a_rank_heals(any_redis: RedisServer) -> None:
    process = Process(any_redis)
    for second in range(0, 30, 10):
        process.ranks.failed("a.example", NOW + second)
    process.ranks.failed("b.example", NOW + 1800)

    def failures(now: float) -> int:
        states = live.read_partners(any_redis.client(), ["a.example"], PERIOD_S, now)
        return states["a.example"].failures

    assert [failures(NOW + PERIOD_S + after_s) for after_s in (-1, 5, 15, 21)] == [3, 2, 1, 0]
    assert process.order(NOW + PERIOD_S - 1) == ["c.example", "b.example", "a.example"]
    assert process.order(NOW + PERIOD_S + 21) == ["a.example", "c.example", "b.example"]
    assert process.order(NOW + PERIOD_S + 1801) == list(RELAYS)


def test_a_reset_is_seen(any_redis: RedisServer) -> None:
    process = Process(any_redis)
    process.ranks.failed("a.example", NOW)
    assert process.order(NOW)[-1] == "a.example"
    any_redis.run("DEL", keys.failures("a.example"))
    process.order(NOW + FRESH_S)
    assert process.order(NOW + FRESH_S) == list(RELAYS)


def test_what_is_kept_is_bounded(any_redis: RedisServer) -> None:
    process = Process(any_redis)
    for number in range(1100):
        process.ranks.failed("a.example", NOW + number)
    assert any_redis.run("ZCARD", keys.failures("a.example")) == 1000
    assert 0 < any_redis.run("TTL", keys.failures("a.example")) <= PERIOD_S + 1
