"""`rmb_top`: rates from two looks, the screen, and the command in a real terminal."""

from __future__ import annotations

import json
import math
import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from relay.federation.live import PartnerState
from relay.ops import screen
from relay.ops.load import Rates, Snapshot, look, rates, total
from relay.ops.redis_client import client
from relay.ops.workers import read_worker
from relay.queues.held import Held
from tests.relay.conftest import AddWorker
from tests.support.redis_servers import RedisServer
from tests.support.relay_process import ROOT, command_environment

NOW = 1_800_000_000.0


def worker(boot_id: str, **metrics: float) -> Any:
    fields = {"slot": boot_id, "host": "h", "heartbeat": str(NOW), "started": str(NOW - 7200),
              "sessions": "5", "state": "ok", "metrics": json.dumps(metrics)}  # fmt: skip
    return read_worker(boot_id, fields)


def snapshot(at: float, *workers: Any, partners: tuple[PartnerState, ...] = ()) -> Snapshot:
    return Snapshot(at, workers, {}, partners, None, 3_000_000)


def buckets(*counts: int) -> dict[str, float]:
    bounds = ("0.001", "0.01", "+Inf")
    return {
        f'relay_commit_seconds_bucket{{le="{bound}"}}': float(count)
        for bound, count in zip(bounds, counts, strict=True)
    }


def test_rates_of_a_worker_and_of_all() -> None:
    before = snapshot(10, worker("a", relay_message_rx=100), worker("b", relay_message_rx=50))
    after = snapshot(
        12,
        worker("a", relay_message_rx=300, relay_message_tx_bytes=4096),
        worker("b", relay_message_rx=60),
        worker("new", relay_message_rx=1_000_000),
    )
    each = rates(before, after)
    assert {name: load.messages_in for name, load in each.items()} == {"a": 100, "b": 5}
    assert each["a"].bytes_out == 2048
    assert total(before, after).messages_in == 105, "a new one counts from the next look on"


def test_latencies_are_those_of_the_interval() -> None:
    before = snapshot(0, worker("a", **buckets(1000, 1000, 1000)))
    after = snapshot(1, worker("a", **buckets(1090, 1099, 1100)))
    load = total(before, after)
    assert (load.commit_p50_s, load.commit_p99_s) == (0.001, 0.01)
    after = snapshot(1, worker("a", **buckets(1000, 1000, 1007)))
    assert total(before, after).commit_p99_s == math.inf


def test_nothing_happened() -> None:
    same = snapshot(5, worker("a", **buckets(1, 1, 1)))
    assert total(same, same) == Rates()
    later = snapshot(6, worker("a", **buckets(1, 1, 1)))
    assert total(same, later).commit_p50_s is None


def test_dropped_by_reason() -> None:
    name = 'relay_messages_total{reason="expired"}'
    load = total(snapshot(0, worker("a", **{name: 1})), snapshot(2, worker("a", **{name: 9})))
    assert load.dropped == {"expired": 4}


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (0.44, "0.4"), (9.96, "10"), (9999, "9999"), (12_345, "12k"), (3.4e7, "34M")],
)
def test_amount(value: float, shown: str) -> None:
    assert screen.amount(value) == shown


def test_screen() -> None:
    partners = (
        PartnerState("calm.example"),
        PartnerState("b.example", held=Held(12, 99), oldest_at=NOW - 300, retry_at=NOW + 30),
    )
    before = snapshot(0, worker("a", **buckets(0, 0, 0)))
    after = snapshot(1, worker("a", **buckets(9, 9, 9), relay_message_rx=50_000), partners=partners)
    text = screen.lines(before, after, "here.example", NOW)
    assert text[0].startswith("RMB relay here.example  2027-")
    assert any("h/a" in line and " 50k " in line and "1 ms" in line and "2h" in line
               for line in text)  # fmt: skip
    relays = [line for line in text if "example" in line][1:]
    assert relays[0].split()[:3] == ["b.example", "12", "5m"] and "30s" in relays[0]
    assert all(len(line) <= 80 for line in text), "an ordinary terminal shows all of it"
    short = screen.fit(text, 40, 5)
    assert len(short) == 5 and short[-1] == f"... {len(text) - 4} more lines"
    assert screen.fit(text, 100, 50) == text


def test_no_worker() -> None:
    text = "\n".join(screen.lines(snapshot(0), snapshot(1), "", NOW))
    assert "the relay does not run" in text


@pytest.mark.django_db
def test_look(site_redis: RedisServer, add_worker: AddWorker) -> None:
    add_worker("boot", {"relay_message_rx": 7.0}, sessions=3)
    site_redis.run("SADD", "federation:relays", "b.example")
    found = look(client())
    assert [each.sessions for each in found.workers] == [3]
    assert [each.domain for each in found.partners] == ["b.example"]
    assert found.redis_bytes > 0 and found.chain is None


def test_printed(site_redis: RedisServer, add_worker: AddWorker) -> None:
    add_worker("boot", {"sbd_keys": 2}, sessions=1)
    stdout = StringIO()
    call_command("rmb_top", "--count", "1", "--interval", "0.5", "--json", stdout=stdout)
    document = json.loads(stdout.getvalue())
    assert document["sessions"] == 3 and document["workers"][0]["rates"]["messages_in"] == 0


def test_redis_away(no_redis: None) -> None:
    with pytest.raises(CommandError, match="redis does not answer"):
        call_command("rmb_top", "--count", "1", "--interval", "0.5")


@pytest.mark.parametrize("arguments", [("--interval", "0"), ("--interval", "x"), ("--count", "0")])
def test_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match=arguments[0]):
        call_command("rmb_top", *arguments)


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    yield ours, theirs
    os.close(ours)


def test_in_a_terminal(
    terminal: tuple[int, int], valkey: RedisServer, add_worker: AddWorker, tmp_path: Path
) -> None:
    """The command draws, ends on `q`, and restores the terminal."""
    ours, theirs = terminal
    add_worker("boot", sessions=42)
    settings_before = termios.tcgetattr(theirs)
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "manage.py"), "rmb_top", "--interval", "60"],
        env=command_environment(tmp_path, {"redis.url": valkey.url}),
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
    )
    try:
        shown = _read_until(ours, b"sessions 42")
        assert b"\x1b[?1049h" in shown and b"test/0" in _read_until(ours, b"test/0", shown)
        os.write(ours, b"q")
        assert process.wait(20) == 0
        assert b"\x1b[?1049l" in _read_until(ours, b"\x1b[?1049l")
        assert termios.tcgetattr(theirs) == settings_before
    finally:
        process.kill()
        process.communicate()
        os.close(theirs)


def _read_until(descriptor: int, wanted: bytes, before: bytes = b"") -> bytes:
    shown, deadline = before, time.monotonic() + 30
    while wanted not in shown:
        left = deadline - time.monotonic()
        assert left > 0 and select.select([descriptor], [], [], left)[0], shown
        shown += os.read(descriptor, 65536)
    return shown
