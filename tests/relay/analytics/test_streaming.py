"""Where a stream continues, and where it starts over."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from relay.analytics import merging, sink, streaming
from relay.analytics.errors import AnalyticsError
from relay.analytics.lake import Lake
from relay.analytics.models import LiveMinute, StreamState
from tests.relay.analytics.stream_feed import DAY, Feed

pytestmark = pytest.mark.django_db

LOCKED = """
import fcntl, sys
file = open(sys.argv[1], "a")
fcntl.flock(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def _begun(lake: Lake, **changed: datetime) -> StreamState:
    """Return a stream that has counted one batch of three minutes within the last 11 hours."""
    now = datetime.now(UTC)
    state = streaming.checkpoint(lake, None, False)
    (lake.checkpoints / state.checkpoint).mkdir(parents=True)
    sums = [_row(now - timedelta(hours=hours)) for hours in (0, 2, 11)]
    assert sink.apply(state.checkpoint, 0, sums, now)
    StreamState.objects.update(**changed)
    return state


def _row(moment: datetime) -> dict[str, object]:
    us = round(moment.timestamp()) * 1_000_000
    words = {"relay": "a.example", "kind": "accepted", "reason": "none", "remote": ""}
    numbers = {"n": 1, "size_bytes": 1, "latency_us": 0, "late": 0}
    return {"minute_us": us - us % 60_000_000, "newest_us": us, **words, **numbers}


def test_it_begins_half_a_day_back_at_a_full_hour(lake: Lake) -> None:
    state = streaming.checkpoint(lake, None, False)
    back = datetime.now(UTC) - state.counts_from
    assert timedelta(hours=12) <= back < timedelta(hours=13)
    assert state.since == state.counts_from
    assert (state.counts_from.minute, state.counts_from.second) == (0, 0)


def test_it_goes_on_where_it_was(lake: Lake) -> None:
    begun = _begun(lake)
    again = streaming.checkpoint(lake, None, False)
    assert (again.checkpoint, again.batch) == (begun.checkpoint, 0)
    assert LiveMinute.objects.count() == 3


def test_killed_before_its_first_batch_it_goes_on(lake: Lake) -> None:
    begun = streaming.checkpoint(lake, None, False)
    assert streaming.checkpoint(lake, None, False).checkpoint == begun.checkpoint


@pytest.mark.parametrize("why", ["paused", "folder gone", "asked to", "told where"])
def test_it_begins_anew_when_it_may_have_missed_something(lake: Lake, why: str) -> None:
    long_ago = datetime.now(UTC) - streaming.LONGEST_PAUSE
    begun = _begun(lake, **({"updated_at": long_ago} if why == "paused" else {}))
    if why == "folder gone":
        (lake.checkpoints / begun.checkpoint).rmdir()
    since = datetime(2026, 1, 1, 5, tzinfo=UTC) if why == "told where" else None
    again = streaming.checkpoint(lake, since, why == "asked to")
    assert again.checkpoint != begun.checkpoint
    assert again.counts_from == (since or again.since)
    assert (again.batch, again.events, LiveMinute.objects.count()) == (-1, 0, 0)
    assert not (lake.checkpoints / begun.checkpoint).exists()


def test_after_a_week_it_counts_the_last_hours_again_and_keeps_the_others(lake: Lake) -> None:
    now = datetime.now(UTC)
    _begun(
        lake,
        began_at=now - streaming.LONGEST_CHECKPOINT,
        since=now - timedelta(days=2),
    )
    old = LiveMinute.objects.create(
        minute=(now - timedelta(hours=14)).replace(second=0, microsecond=0),
        relay="a.example",
        kind="accepted",
        reason="none",
        n=5,
        size_bytes=5,
        latency_us=0,
        late=0,
    )
    again = streaming.checkpoint(lake, None, False)
    assert list(LiveMinute.objects.all()) == [old]
    assert again.batch == -1
    assert again.since == now - timedelta(days=2)
    assert again.counts_from > old.minute


def test_hours_whose_files_were_merged_and_are_gone_are_refused(tmp_path: Path) -> None:
    feed = Feed(tmp_path)
    feed.bring(2)
    midnight = datetime(DAY.year, DAY.month, DAY.day, tzinfo=UTC)
    folder = feed.lake.hour(DAY, 0)
    (file,) = folder.iterdir()
    (folder / "again-2.parquet").write_bytes(file.read_bytes())
    assert merging.merge(feed.lake, DAY, 0) is not None
    streaming.checkpoint(feed.lake, midnight, False)  # the merged files exist for another day
    file.unlink()
    with pytest.raises(AnalyticsError, match="2026-03-01 00:00 were merged"):
        streaming.checkpoint(feed.lake, midnight, False)
    streaming.checkpoint(feed.lake, midnight + timedelta(hours=1), False)


@pytest.fixture
def other_stream(lake: Lake) -> Iterator[None]:
    lake.checkpoints.mkdir(parents=True)
    process = subprocess.Popen(
        [sys.executable, "-c", LOCKED, str(lake.checkpoints / streaming.LOCK)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"locked\n"
    yield
    process.communicate()


def test_two_at_once_are_one_too_many(lake: Lake, other_stream: None) -> None:
    with pytest.raises(AnalyticsError, match="a stream runs already"), streaming.alone(lake):
        pass


def test_a_file_that_cannot_be_counted_is_named_with_what_to_do(tmp_path: Path) -> None:
    broken = tmp_path / "broken-1.parquet"
    broken.write_bytes(b"PAR1 and nothing more")
    with pytest.raises(
        AnalyticsError, match=r"broken-1\.parquet cannot be read .* stream --restart"
    ):
        streaming.assert_readable([broken])
