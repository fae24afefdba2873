"""Seconds in Redis, minutes and hours in the database, and reading them."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relay.access.errors import Away, Invalid
from relay.history import keeping, reading, seconds
from relay.history.keeping import HOUR_S, MINUTE_S
from relay.history.models import Point
from relay.history.packing import pack, rolled_up
from relay.ops.redis_client import client
from relay.queues import keys
from tests.support.redis_servers import RedisServer

pytestmark = pytest.mark.django_db

NOW = 1_800_000_000  # the start of an hour
assert NOW % HOUR_S == 0


def fill(first: int, last: int, step_s: int = 1) -> None:
    for at in range(first, last, step_s):
        assert seconds.put(client(), at, {"sessions": float(at % 100), "commit_p99": at % 7})


def minutes() -> list[int]:
    return list(Point.objects.filter(resolution_s=60).values_list("at", flat=True))


class TestSeconds:
    def test_one_site_writes_a_second(self, any_redis: RedisServer) -> None:
        with any_redis.client() as redis:
            assert seconds.newest(redis) is None
            assert seconds.put(redis, NOW, {"sessions": 1})
            assert not seconds.put(redis, NOW, {"sessions": 2})
            assert not seconds.put(redis, NOW - 1, {"sessions": 3})
            assert seconds.put(redis, NOW + 2, {"sessions": 4})
            assert seconds.newest(redis) == NOW + 2
            assert seconds.read(redis, NOW, NOW + 1) == [(NOW, {"sessions": 1})]

    def test_it_holds_an_hour(self, any_redis: RedisServer) -> None:
        with any_redis.client() as redis:
            with redis.pipeline(transaction=False) as pipe:
                for at in range(NOW, NOW + seconds.KEPT_S + 50):
                    seconds.put(pipe, at, {"sessions": 1})
                pipe.execute()
            assert redis.xlen(keys.HISTORY) == seconds.KEPT_S
            assert seconds.read(redis, NOW, NOW + 60)[0][0] == NOW + 50

    def test_a_clock_that_was_set_back(self, any_redis: RedisServer) -> None:
        with any_redis.client() as redis:
            for at in (NOW, NOW + 1, NOW + 5000, NOW + 5001):
                seconds.put(redis, at, {"sessions": 1})
            assert not seconds.put(redis, NOW + 2, {"sessions": 1})
            assert seconds.clock_was_set_back(redis, NOW + 2) == 2
            assert seconds.put(redis, NOW + 2, {"sessions": 1})
            assert [at for at, _ in seconds.read(redis, 0, NOW * 2)] == [NOW, NOW + 1, NOW + 2]
            # This also works when no other second is stored.
            assert seconds.clock_was_set_back(redis, NOW - 5000) == 3
            assert seconds.put(redis, NOW - 5000, {"sessions": 1})


class TestKeeping:
    def test_minutes_are_made_once_and_when_they_are_over(self, site_redis: RedisServer) -> None:
        fill(NOW, NOW + 130)
        read = lambda low, high: seconds.read(client(), low, high)  # noqa: E731
        first = keeping.roll_up_minutes(read, NOW, NOW + 130)
        assert minutes() == [NOW, NOW + 60]
        assert first == NOW + 120
        # Another site that starts over changes nothing.
        stored = list(Point.objects.values_list("at", "figures"))
        keeping.roll_up_minutes(read, NOW - 600, NOW + 130)
        assert list(Point.objects.values_list("at", "figures")) == stored
        (at, values), _ = keeping.stored(MINUTE_S, NOW, NOW + 60)
        assert at == NOW
        assert values == rolled_up(values for _, values in seconds.read(client(), NOW, NOW + 59))

    def test_gaps_stay_and_are_made_up_for_after_an_outage(self, site_redis: RedisServer) -> None:
        fill(NOW, NOW + 60, 20)
        fill(NOW + 300, NOW + 360, 20)
        read = lambda low, high: seconds.read(client(), low, high)  # noqa: E731
        keeping.roll_up_minutes(read, NOW - 3600, NOW + 400)
        assert minutes() == [NOW, NOW + 300]

    def test_hours_and_what_is_pruned(self) -> None:
        keep = [Point(resolution_s=60, at=NOW + 60 * n, figures=pack({"sessions": n}))
                for n in range(60)]  # fmt: skip
        Point.objects.bulk_create(keep)
        assert keeping.roll_up_hours(NOW, NOW + HOUR_S) == NOW  # its last minute may be missing
        assert keeping.roll_up_hours(NOW, NOW + HOUR_S + 3) == NOW + HOUR_S
        assert keeping.stored(HOUR_S, NOW, NOW) == [(NOW, {"sessions": 29.5})]
        week = keeping.KEPT_S[MINUTE_S]
        assert keeping.prune(NOW + 120 + week) == 2
        assert len(minutes()) == 58
        assert keeping.prune(NOW + 366 * 86_400) == 58
        assert keeping.prune(NOW + 370 * 86_400) == 1

    @given(st.sets(st.integers(0, 900)), st.lists(st.integers(0, 1000), max_size=5))
    @settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_whoever_rolls_up_and_when(self, there: set[int], looks: list[int]) -> None:
        """Complete minutes are the same however often, when and by which site they are made."""
        Point.objects.all().delete()
        points = [(NOW + n, {"sessions": float(n)}) for n in sorted(there)]
        first = NOW
        for after in [*sorted(looks), 1003]:
            now = NOW + after

            def read(low: int, high: int, now: int = now) -> keeping.Points:
                return [(at, values) for at, values in points if low <= at <= min(high, now)]

            if after % 2:  # another site that has just started
                keeping.roll_up_minutes(read, NOW - 120, now)
            else:
                first = keeping.roll_up_minutes(read, first, now)
        assert keeping.stored(MINUTE_S, 0, NOW * 2) == list(keeping.grouped(points, MINUTE_S))


class TestReading:
    def test_an_hour(self, site_redis: RedisServer) -> None:
        fill(NOW, NOW + 100)
        frame = reading.read(["sessions", "commit_p99", "outbox"], "1h", NOW + 99)
        assert len(frame.times) == 1200
        assert frame.times[-1] == NOW + 99 and frame.step_s == 3
        assert all(
            after - before == 3 for before, after in zip(frame.times, frame.times[1:], strict=False)
        )
        assert frame.values["sessions"][-2:] == [97.0, 99.0]
        assert frame.values["commit_p99"][-2] == max(at % 7 for at in range(NOW + 96, NOW + 99))
        assert frame.values["sessions"][:1100] == [None] * 1100
        assert frame.values["outbox"] == [None] * 1200

    @pytest.mark.parametrize("span", reading.SPANS)
    def test_every_span_is_bounded(self, span: str, site_redis: RedisServer) -> None:
        frame = reading.read(["sessions"], span, NOW + 1234)
        assert 1000 <= len(frame.times) <= reading.MAX_POINTS
        assert len(frame.values["sessions"]) == len(frame.times)
        assert frame.times[-1] <= NOW + 1234 < frame.times[-1] + frame.step_s
        covered = frame.times[-1] + frame.step_s - frame.times[0]
        assert covered == reading.SCALES[span].length_s

    @pytest.mark.parametrize("span", ["24h", "7d", "1y"])
    def test_the_newest_is_made_of_what_is_finer(self, span: str, site_redis: RedisServer) -> None:
        fill(NOW, NOW + 90)
        frame = reading.read(["sessions"], span, NOW + 90)
        assert frame.values["sessions"][-1] is not None

    def test_what_is_stored_is_shown_while_redis_is_away(self, no_redis: None) -> None:
        Point.objects.create(resolution_s=60, at=NOW, figures=pack({"sessions": 7}))
        frame = reading.read(["sessions"], "24h", NOW + 60)
        assert frame.values["sessions"][-2:] == [7.0, None]
        with pytest.raises(Away):
            reading.read(["sessions"], "1h", NOW)
        with pytest.raises(Away):
            reading.latest()

    def test_what_is_not_known(self) -> None:
        with pytest.raises(Invalid, match="there is no series nonsense"):
            reading.read(["nonsense"], "1h")
        with pytest.raises(Invalid, match="must be one of 1h, 24h"):
            reading.read(["sessions"], "2h")

    def test_the_last_second(self, site_redis: RedisServer) -> None:
        assert reading.latest(NOW).at == 0
        fill(NOW, NOW + 2)
        found = reading.latest(NOW + 3)
        assert found.at == NOW + 1
        assert found.values["sessions"] == 1.0 and found.values["outbox"] is None
        # Values that are too old are not shown.
        assert reading.latest(NOW + 30).values["sessions"] is None

    def test_comparisons(self, site_redis: RedisServer) -> None:
        fill(NOW - 60, NOW + 1, 10)
        for at, value in ((NOW - HOUR_S, 5.0), (NOW - 7 * 86_400, 9.0)):
            Point.objects.create(resolution_s=60, at=at, figures=pack({"sessions": value}))
        found = reading.compare(["sessions", "outbox"], NOW + 1)
        assert found["sessions"] == (
            pytest.approx(sum((40, 50, 60, 70, 80, 90, 0)) / 7, abs=15),
            5.0,
            9.0,
        )
        assert found["outbox"] == (None, None, None)

    def test_sparklines(self, site_redis: RedisServer) -> None:
        Point.objects.create(resolution_s=60, at=NOW - 60, figures=pack({"sessions": 7}))
        fill(NOW, NOW + 30)
        line = reading.sparklines(["sessions"], 4, NOW + 29)["sessions"]
        assert line == [None, None, 7.0, 14.5]
