"""Two connections checked against a model: any interleaving of owners' actions and arrivals.

Bytes arrive once and in order, an end arrives after all of them, a side never holds more than it
granted, and when everything has ended no stream is left on either side.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from proto.mux.bounds import MuxBounds
from proto.mux.connection import MuxConnection
from proto.mux.errors import StreamStateError
from proto.mux.events import (
    CloseDue,
    FailReason,
    HalfFailed,
    ReadEnded,
    StreamAccepted,
    StreamEnded,
    StreamOpened,
)
from proto.mux.frames import Half
from tests.proto.mux.sides import MS


@dataclass
class Way:
    """One direction of one stream: the bytes written, and the bytes read.

    Attributes:
        is_cut: whether a side gave up this direction, so that the rest need not arrive.
    """

    written: bytearray = field(default_factory=bytearray)
    read: bytearray = field(default_factory=bytearray)
    is_ended: bool = False
    is_cut: bool = False
    has_come_to_its_end: bool = False


class TwoSides(RuleBasedStateMachine):
    """A client (0) and a server (1), each with a line of messages to the other."""

    WINDOW = 7

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.written = 0  # number of writes
        bounds = MuxBounds(stream_bytes=self.WINDOW, piece_bytes=3, max_streams=5)
        self.sides = [MuxConnection(True, 0, bounds), MuxConnection(False, 0, bounds)]
        self.lines: list[deque[bytes]] = [deque(), deque()]  # by sender
        self.ways: dict[tuple[int, int], Way] = {}  # stream, writer
        self.known: list[set[int]] = [set(), set()]  # streams a side may act on

    @initialize(streams=st.integers(1, 4))
    def begin(self, streams: int) -> None:
        for number in range(streams):
            self.open_stream(number % 2)
        self.pass_time(100)
        self.exchange()

    # --- what owners do ---------------------------------------------------------------------------

    def _some(self, side: int, place: int) -> int | None:
        known = sorted(self.known[side])
        return known[place % len(known)] if known else None

    @rule(side=st.integers(0, 1))
    def open_stream(self, side: int) -> None:
        if len(self.known[side]) < 8:
            stream_id = self.sides[side].open_stream(self.now)
            self.known[side].add(stream_id)
            for writer in (0, 1):
                self.ways[stream_id, writer] = Way()

    @rule(side=st.integers(0, 1), place=st.integers(0, 9), size=st.integers(1, 20))
    def write(self, side: int, place: int, size: int) -> None:
        stream_id = self._some(side, place)
        if stream_id is None:
            return
        way = self.ways[stream_id, side]
        self.written += 1
        data = bytes((self.written + number) % 256 for number in range(size))
        try:
            self.sides[side].write(stream_id, data)
        except StreamStateError:
            assert way.is_ended or way.is_cut
        else:
            way.written += data

    @rule(side=st.integers(0, 1), place=st.integers(0, 9), size=st.integers(1, 9))
    def read(self, side: int, place: int, size: int) -> None:
        stream_id = self._some(side, place)
        if stream_id is not None:
            self._read(side, stream_id, size)

    @rule(side=st.integers(0, 1), place=st.integers(0, 9))
    def end(self, side: int, place: int) -> None:
        stream_id = self._some(side, place)
        if stream_id is None:
            return
        way = self.ways[stream_id, side]
        try:
            self.sides[side].end(stream_id, self.now)
        except StreamStateError:
            assert way.is_ended or way.is_cut
        way.is_ended = True

    @rule(side=st.integers(0, 1), place=st.integers(0, 9), code=st.integers(0, 300))
    def give_up(self, side: int, place: int, code: int) -> None:
        stream_id = self._some(side, place)
        if stream_id is None:
            return
        if code % 2:
            self.sides[side].abort(stream_id, code)
        else:
            self.sides[side].cancel(stream_id, code)
        self.ways[stream_id, side if code % 2 else 1 - side].is_cut = True

    # --- what passes ------------------------------------------------------------------------------

    @rule()
    def exchange(self) -> None:
        """Carry all waiting messages in both directions."""
        for side in (0, 1):
            self.send(side, 1000)
        for side in (0, 1):
            self.arrive(side, 1000)

    @rule(side=st.integers(0, 1), size=st.integers(1, 40))
    def send(self, side: int, size: int) -> None:
        self.lines[side] += self.sides[side].data_to_send(self.now, size)

    @rule(side=st.integers(0, 1), count=st.integers(1, 5))
    def arrive(self, side: int, count: int) -> None:
        for _ in range(min(count, len(self.lines[1 - side]))):
            self.sides[side].receive_data(self.lines[1 - side].popleft(), self.now)
        self._hear(side)

    @rule(milliseconds=st.sampled_from([1, 100, 300, 10_000]))
    def pass_time(self, milliseconds: int) -> None:
        """Advance the clock, but not as far as the time-out for opening a stream.

        After that time-out the opener gives up, while the stream still exists on the other side.
        """
        if self.now + milliseconds * MS >= MuxBounds().open_timeout_ms * MS:
            return
        self.now += milliseconds * MS
        for side in (0, 1):
            self.sides[side].handle_timer(self.now)
            self._hear(side)

    def _hear(self, side: int) -> None:
        while (event := self.sides[side].next_event()) is not None:
            match event:
                case StreamOpened(stream_id):
                    self.known[side].add(stream_id)
                case StreamAccepted(stream_id):
                    assert stream_id % 2 == side
                case ReadEnded(stream_id):
                    way = self.ways[stream_id, 1 - side]
                    assert way.is_ended
                    way.has_come_to_its_end = True
                case HalfFailed(stream_id, half, _, reason):
                    assert reason in (FailReason.PEER, FailReason.OPEN_TIMEOUT)
                    self.ways[stream_id, side if half is Half.WRITE else 1 - side].is_cut = True
                case StreamEnded(stream_id):
                    self.known[side].discard(stream_id)
                case CloseDue():
                    raise AssertionError(event)

    def _read(self, side: int, stream_id: int, size: int) -> bool:
        way = self.ways[stream_id, 1 - side]
        try:
            found = self.sides[side].read(stream_id, size)
        except StreamStateError:
            return False
        way.read += found
        self._hear(side)
        return bool(found)

    # --- what always holds ------------------------------------------------------------------------

    @invariant()
    def bytes_come_once_and_in_order(self) -> None:
        for way in self.ways.values():
            assert way.written.startswith(way.read)

    @invariant()
    def no_more_is_held_than_was_granted(self) -> None:
        for side in self.sides:
            for stream in side:
                assert 0 <= stream.held_bytes <= self.WINDOW
                assert stream.credit >= 0

    def teardown(self) -> None:
        """End all halves, then check that all bytes written were read and no stream is left."""
        for side in (0, 1):
            for stream_id in sorted(self.known[side]):
                way = self.ways[stream_id, side]
                if not way.is_ended and not way.is_cut:
                    self.sides[side].end(stream_id, self.now)
                    way.is_ended = True
        self._carry_all()
        for side in (0, 1):  # streams that became known only in the last exchange
            for stream_id in sorted(self.known[side]):
                way = self.ways[stream_id, side]
                if not way.is_ended and not way.is_cut:
                    self.sides[side].end(stream_id, self.now)
                    way.is_ended = True
        self._carry_all()
        for way in self.ways.values():
            assert way.is_cut or (way.has_come_to_its_end and way.read == way.written)
        assert [len(side) for side in self.sides] == [0, 0]
        assert not self.known[0] | self.known[1]
        assert all(side.queued_bytes == side.held_bytes == 0 for side in self.sides)

    def _carry_all(self) -> None:
        moved = True
        while moved:
            moved = False
            for side in (0, 1):
                self.lines[side] += self.sides[side].data_to_send(self.now)
                while self.lines[side]:
                    moved = True
                    self.sides[1 - side].receive_data(self.lines[side].popleft(), self.now)
                for each in (0, 1):
                    self._hear(each)
                    for stream_id in sorted(self.known[each]):
                        moved = self._read(each, stream_id, 100) or moved
            if not moved and any(len(side) for side in self.sides):
                timers = [side.next_timer() for side in self.sides]
                due = [timer for timer in timers if timer is not None]
                if due:
                    self.now = max(self.now, *due)
                    for side in (0, 1):
                        self.sides[side].handle_timer(self.now)
                        self._hear(side)
                    moved = True


TwoSides.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
test_two_sides = TwoSides.TestCase
