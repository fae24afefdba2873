"""The recorder's threads: one of several sites writes each second, through all outages."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError

from relay.dashboard.feed import Feed
from relay.history import keeping, seconds
from relay.history.models import Point
from relay.history.recorder import Recorder
from relay.ops.redis_client import client
from tests.relay.conftest import AddWorker, use_redis
from tests.support.redis_servers import RedisServer, start_valkey
from tests.support.waiting import wait_until

FRAME_WITHIN_S = 60.0


def written(first: int = 0) -> list[int]:
    return [at for at, _ in seconds.read(client(), first, 2**33)]


@contextlib.contextmanager
def recording(*recorders: Recorder) -> Iterator[None]:
    for recorder in recorders:
        recorder.start()
    try:
        yield
    finally:
        for recorder in recorders:
            recorder.stop()


@pytest.mark.django_db
def test_one_of_two_sites_writes_a_second(site_redis: RedisServer, add_worker: AddWorker) -> None:
    add_worker("boot", sessions=3)
    first, second = Recorder(), Recorder()
    found = first.record()
    assert found is not None
    at, values = found
    assert abs(at - time.time()) < 5
    assert values["sessions"] == 3
    while int(client().time()[0]) == at and second.record() is None:
        pass
    # Whatever second it is now, each second is written once.
    assert written() == sorted(set(written())) and written()[0] == at


@pytest.mark.django_db
def test_a_clock_that_was_set_back_is_noticed(site_redis: RedisServer) -> None:
    seconds.put(client(), int(time.time()) + 5000, {"sessions": 1})
    recorder = Recorder()
    assert recorder.record() is None
    assert recorder.record() is not None


@pytest.mark.django_db(transaction=True)
def test_two_sites_write_one_history(site_redis: RedisServer, add_worker: AddWorker) -> None:
    """Two sites write each second once, and one continues when the other ends."""
    add_worker("boot", sessions=3)
    first, second = Recorder(), Recorder()
    with recording(second):
        with recording(first):
            wait_until(lambda: len(written()) >= 3, FRAME_WITHIN_S)
        before = written()
        wait_until(lambda: len(written()) >= len(before) + 2, FRAME_WITHIN_S)
    found = written()
    assert found[: len(before)] == before
    assert found == sorted(set(found))
    # A busy machine may miss a few seconds; two sites must not miss every second one.
    assert found[-1] - found[0] < 2 * len(found)


class Counting(Recorder):
    """A recorder that counts its attempts."""

    tries = 0

    def record(self) -> Any:
        self.tries += 1
        return super().record()


@pytest.mark.django_db(transaction=True)
async def test_an_outage_of_redis(
    tmp_path: Path, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """An outage is logged once; afterwards the history and the frames of open pages continue."""
    server = start_valkey(tmp_path)
    use_redis(settings, server.url)
    feed, recorder = Feed(), Counting()
    caplog.set_level(logging.INFO)
    try:
        with recording(recorder), feed.listening() as number:
            number, _ = await asyncio.wait_for(feed.next(number), FRAME_WITHIN_S)
            await asyncio.to_thread(server.stop)
            await asyncio.to_thread(
                wait_until, lambda: "no seconds are kept" in caplog.text, FRAME_WITHIN_S
            )
            tried = recorder.tries
            await asyncio.to_thread(wait_until, lambda: recorder.tries > tried + 1, FRAME_WITHIN_S)
            await asyncio.to_thread(server.start)
            while await asyncio.to_thread(seconds.newest, client()) is None:
                await asyncio.sleep(0.05)
            number, _ = await asyncio.wait_for(feed.next(number), FRAME_WITHIN_S)
        assert caplog.text.count("no seconds are kept") == 1
        assert caplog.text.count("seconds are kept again") == 1
    finally:
        await asyncio.to_thread(server.remove)


@pytest.mark.django_db
def test_what_the_database_missed_is_made_up_for(
    site_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = int(time.time())
    for at in range(now - 600, now, 20):
        seconds.put(client(), at, {"sessions": 1})
    recorder = Recorder()

    def refuse(*_: Any, **__: Any) -> None:
        raise OperationalError("the database is away")

    with monkeypatch.context() as away:
        away.setattr(Point.objects, "bulk_create", refuse)
        for _ in range(2):
            with pytest.raises(OperationalError):
                recorder.keep()
    recorder.keep()
    stored = [at for at, _ in keeping.stored(60, 0, now)]
    assert len(stored) in (9, 10, 11)
    assert stored == list(range(stored[0], stored[-1] + 1, 60))


@pytest.mark.django_db
def test_minutes_go_on_after_the_clock_was_set_back(site_redis: RedisServer) -> None:
    now = time.time()
    clock = [now + 7200]
    recorder = Recorder(lambda: clock[0])
    recorder.keep()
    clock[0] = now
    seconds.put(client(), int(now) - 300, {"sessions": 1})
    recorder.keep()
    assert len(keeping.stored(60, 0, int(now))) == 1
