"""The compactor's loop retries what fails, and logs when a failure begins and ends."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from proto.lattice.recording import ROW, STREAM, Batch, EventKind, Shape
from relay.analytics import compactor_loop
from relay.analytics.lake import Lake
from relay.analytics.segments import Header
from rmbsite.sections import AnalyticsConfig
from tests.relay.analytics import segment_files as made
from tests.support.redis_servers import RedisServer
from tests.support.waiting import wait_until

START = made.at("2026-03-01T05:00")
HEADER = Header("a.example", "0", START)
WITHIN_S = 60.0


def test_trouble_is_said_once_and_what_waited_comes_in_after_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    valkey: RedisServer,
) -> None:
    """A failure is logged once; waiting events come in after it, also the lattice's in Redis."""
    caplog.set_level(logging.INFO)
    lake = Lake(tmp_path)
    tried = threading.Semaphore(0)

    def convert(*arguments: object) -> object:
        tried.release()
        return real(*arguments)  # type: ignore[arg-type]

    real = compactor_loop.Compactor.convert
    monkeypatch.setattr(compactor_loop.Compactor, "convert", convert)
    monkeypatch.setattr(compactor_loop, "RETRY", compactor_loop.Backoff(0.01, 0.02))
    made.put(lake, made.content(HEADER, made.events(START, range(9))), HEADER)
    batch = Batch([Shape(EventKind.SEEN)], ROW.pack(START, 99, -1, 0, 0, 0, 0)).encode()
    valkey.run("XADD", STREAM, "*", "shapes", batch["shapes"], "rows", batch["rows"])
    lake.events.write_text("a file where the folder should be")
    stop = threading.Event()
    client = valkey.client()
    arguments = (tmp_path, AnalyticsConfig(), stop, client, "a.example")
    loop = threading.Thread(target=compactor_loop.compact, args=arguments, daemon=True)
    loop.start()
    try:
        for _ in range(4):
            assert tried.acquire(timeout=WITHIN_S)
        lake.events.unlink()
        wait_until(lambda: made.uids(lake) == [*range(9), 99], WITHIN_S)
        wait_until(lambda: caplog.text.count("works again") == 2, WITHIN_S)
    finally:
        stop.set()
        loop.join(WITHIN_S)
        client.close()
    assert caplog.text.count("segments wait: [Errno 17] File exists") == 1
    assert caplog.text.count("events of the lattice wait: [Errno 17] File exists") == 1
    assert caplog.text.count("works again") == 2
    assert list(lake.segments.iterdir()) == []
