"""What queues are charged and which sessions are remembered, in SimRedis and in real servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.redis_pair import Pair

RELAY = Path(__file__).parents[2] / "relay"
DIRECTORY = ("relay:sessions", "relay:unused")


def _script(part: str, name: str) -> bytes:
    return (RELAY / part / "lua" / f"{name}.lua").read_bytes()


@pytest.mark.parametrize("full", [False, True], ids=["", "out of memory"])
def test_queues_are_charged_and_what_was_charged_is_given_back(pair: Pair, full: bool) -> None:
    held = (_script("queues", "held"), 2, *DIRECTORY)
    hashes = ["relay:held:7:a", "relay:held:7", "relay:held:8", "relay:held:9"]
    hashes += ["relay:from:1", "relay:from:2", "relay:to:7", "relay:to:8", "relay:to:9"]

    def compare() -> None:
        for name in hashes:
            pair.ask("HLEN", name)
            for field in ("1", "2", "unknown", "messages", "bytes", "queues"):
                pair.ask("HGET", name, field)

    pair.ask("HSET", "relay:sessions", "8", "5 b 0 r", "9", "5 b 0 r")
    pair.ask("HSET", "relay:known:7", "7", "1700000000")
    for number in range(8):
        for stream in ("stream:7:a", "stream:9"):
            pair.ask("XADD", stream, f"{number + 1}-1", "_", "x")
    charge = ("7:a", 0, 1, 6, 600, "7:a", 0, 2, 2, 900, "7", 0, 1, 1, 50, "8", 0, 1, 3, 30)
    pair.ask("EVAL", *held, "charge", 100, 4608, *charge)
    pair.ask("EVAL", *held, "charge", 100, 4608, "9", 1, 1, 30, 3000, "9", 1, 2, 2, 20)
    compare()
    pair.ask("XTRIM", "stream:7:a", "MAXLEN", "3")
    if full:
        pair.ask("CONFIG", "SET", "maxmemory", "1", on=1)
    pair.ask("EVAL", *held, "settle", 100, 4608, "7:a", "7", "8", "9", "none")
    pair.ask("EVAL", *held, "settle", 100, 4608, "7:a", "9")
    compare()
    pair.ask("EVAL", *held, "release", 100, 4608, "7:a", "9")
    compare()
    pair.ask("CONFIG", "SET", "maxmemory", "0", on=1)


def test_sessions_that_signed_in_are_remembered_the_latest_of_them(pair: Pair) -> None:
    """The latest sessions are remembered, even if all of them signed in within one second."""
    for number in range(7):
        pair.ask("HSET", "relay:known:7", f"7:{number}", str(100 + number // 3))
    for text in ("7:x", "7:y", "7:z"):
        pair.ask_masked(
            "EVAL", _script("sessions", "claim"), 2, *DIRECTORY, "b", 100, 7, text, "1", "r"
        )
        names = [f"7:{number}" for number in range(7)]
        for name in (*names, "7:x", "7:y", "7:z"):
            pair.ask("HEXISTS", "relay:known:7", name)
        pair.ask("HLEN", "relay:known:7")
        assert pair.ask_masked("HEXISTS", "relay:known:7", text) == (1, 1)
    assert max(pair.ask_masked("HLEN", "relay:known:7")) <= 7
    for found in pair.ask_masked("TTL", "relay:known:7"):
        assert 99 <= found <= 100
