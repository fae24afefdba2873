"""Tests of how a half of a stream handles each frame and each action (sheet section 6)."""

from __future__ import annotations

import tracemalloc

import pytest

from proto.mux.bounds import MuxBounds
from proto.mux.errors import StreamStateError, Violation
from proto.mux.events import (
    Acknowledged,
    CloseDue,
    Drained,
    FailReason,
    HalfFailed,
    Readable,
    ReadEnded,
    StreamAccepted,
    StreamEnded,
    StreamOpened,
)
from proto.mux.frames import Half
from tests.proto.mux.sides import Side, client, pump, server

SMALL = MuxBounds(stream_bytes=64)
OPEN, DATA = "0000010000", "000000"  # of stream 0; two more bytes hold the grant of an opening


def accepted(grant: str = "0040") -> Side:
    """Return a server that has accepted a stream; the client granted 64 bytes."""
    side = server(SMALL)
    assert side.feed(OPEN + grant) == ["00000100000040"]
    assert side.told() == [StreamOpened(0)]
    return side


def opened() -> Side:
    """Return a client whose stream the server has accepted, granting 64 bytes."""
    side = client(SMALL)
    assert side.mux.open_stream(0) == 0
    assert side.sent() == ["00000100000040"]
    assert side.feed("00000100000040") == []
    assert side.told() == [StreamAccepted(0)]
    return side


# --- actions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", [accepted(), opened()], ids=["acceptor", "opener"])
def test_end(side: Side) -> None:
    side.mux.end(0, 0)
    assert side.sent() == ["00000300"]
    assert side.feed("00000301") == []
    assert side.told() == []
    with pytest.raises(StreamStateError, match="not open for writing"):
        side.mux.write(0, b"x")


@pytest.mark.parametrize("side", [accepted(), opened()], ids=["acceptor", "opener"])
def test_abort(side: Side) -> None:
    side.mux.abort(0, 5)
    side.mux.abort(0, 6)  # the first one counts
    assert side.sent() == ["0000020005"]
    assert side.feed("0000020105") == []


@pytest.mark.parametrize("side", [accepted(), opened()], ids=["acceptor", "opener"])
def test_cancel_drops_what_is_under_way(side: Side) -> None:
    side.mux.cancel(0, 7)
    assert side.sent() == ["0000020107"]
    assert side.feed(DATA + "6162") == []
    assert side.feed("0000020007") == []
    assert side.told() == []


def test_cancel_of_both_halves() -> None:
    side = opened()
    side.mux.cancel(0, 10)
    side.mux.abort(0, 10)
    assert side.sent() == ["000002010a", "000002000a"]
    assert side.told() == [StreamEnded(0)]
    assert len(side.mux) == 0
    assert side.feed("000002000a", "000002010a") == []
    assert side.mux.counts.ignored == 2


def test_abort_drops_what_waits_for_credit() -> None:
    side = accepted("0000")
    side.mux.write(0, b"abc")
    assert side.sent() == []
    side.mux.abort(0, 3)
    assert side.mux.queued_bytes == 0
    assert side.sent() == ["0000020003"]
    assert side.feed(OPEN + "0008") == []


@pytest.mark.parametrize("code", [-1, 1 << 62])
def test_a_code_out_of_bounds_changes_nothing(code: int) -> None:
    side = opened()
    for give_up in (side.mux.abort, side.mux.cancel):
        with pytest.raises(ValueError, match="not between 0 and 2"):
            give_up(0, code)
    side.mux.write(0, b"a")
    assert side.sent() == ["00000061"]


def test_credit_is_split() -> None:
    side = accepted("0002")
    side.mux.write(0, b"\1\2\3")
    assert side.sent() == ["0000000102"]
    assert side.mux.counts.stalls == 1
    assert side.feed("00000100000002") == ["00000003"]
    assert side.told() == [Drained(0)]


def test_the_owner_is_told_when_all_was_read() -> None:
    side = opened()
    side.mux.write(0, b"abc")
    side.mux.tell_acknowledged(0)
    assert side.sent() == ["000000616263"]
    assert side.told() == [Drained(0)]
    side.feed("00000100000002")
    assert side.told() == []
    side.feed("00000100000001")
    assert side.told() == [Acknowledged(0)]
    side.mux.write(0, b"d")
    side.sent()
    side.feed("00000100000001")
    assert side.told() == [Drained(0)]  # reported only once


def test_small_writes_share_a_frame() -> None:
    side = accepted("0005")
    for part in (b"ab", b"cd", b"ef"):
        side.mux.write(0, part)
    assert side.sent() == [DATA + b"abcde".hex()]
    assert side.feed("00000100000005") == [DATA + b"f".hex()]


def test_an_empty_write_sends_nothing() -> None:
    side = opened()
    side.mux.write(0, b"")
    assert side.sent() == []


def test_reading_grants_again() -> None:
    side = accepted()
    assert side.feed(DATA + "61" * 40, DATA + "62" * 8) == []
    assert side.told() == [Readable(0)]
    assert side.mux.held_bytes == 48
    assert side.mux.read(0, 10) == b"a" * 10
    assert side.sent() == []
    assert side.mux.read(0, 31) == b"a" * 30 + b"b"
    assert side.sent() == ["00000100000029"]  # more than half of the window
    assert side.mux.read(0, 100) == b"b" * 7
    assert side.sent() == ["00000100000007"]  # everything has been read
    assert side.mux.read(0, 100) == b""
    assert side.sent() == []
    assert side.feed(DATA + "63") == []
    assert side.told() == [Readable(0)]


# --- frames ---------------------------------------------------------------------------------------


def test_close_read_ends_reading_after_what_came() -> None:
    side = accepted()
    assert side.feed(DATA + "6162", "00000300") == ["00000301"]
    assert side.feed("00000300", "0000020005") == []  # the half has already ended
    assert side.told() == [Readable(0), ReadEnded(0)]
    assert side.mux.read(0, 9) == b"ab"
    assert side.sent() == []  # no further credit is granted
    side.mux.write(0, b"more")
    assert side.sent() == [DATA + b"more".hex()]


def test_close_write_confirms() -> None:
    side = accepted()
    side.mux.end(0, 0)
    assert side.feed("00000301") == ["00000300"]
    assert side.told() == []


def test_close_write_is_misuse_otherwise() -> None:
    side = accepted()
    assert side.feed("00000301") == ["0000020000"]
    assert side.told() == [HalfFailed(0, Half.WRITE, 0, FailReason.MISUSE)]


def test_error_read_discards_what_was_not_read() -> None:
    side = accepted()
    assert side.feed(DATA + "6162", "0000020005") == ["0000020105"]
    assert side.told() == [Readable(0), HalfFailed(0, Half.READ, 5, FailReason.PEER)]
    assert side.mux.read(0, 9) == b""
    assert side.feed("0000020005", "00000300") == []


def test_error_write_fails_writers() -> None:
    side = accepted("0000")
    side.mux.write(0, b"abc")
    assert side.feed("0000020109") == ["0000020009"]
    assert side.told() == [HalfFailed(0, Half.WRITE, 9, FailReason.PEER)]
    assert side.feed("0000020109", "00000301", OPEN + "0040") == []
    with pytest.raises(StreamStateError):
        side.mux.write(0, b"more")


@pytest.mark.parametrize("code", [0, 63, 64, 16383, 16384, (1 << 30) - 1, 1 << 30, (1 << 62) - 1])
def test_codes_are_repeated(code: int) -> None:
    side, other = accepted(), opened()
    other.mux.abort(0, code)
    [frame] = other.sent()
    [answer] = side.feed(frame)
    assert answer == frame.replace("00000200", "00000201")
    assert side.told() == [HalfFailed(0, Half.READ, code, FailReason.PEER)]


def test_a_longer_form_of_a_code_is_answered_in_the_shortest() -> None:
    assert accepted().feed("000002014005") == ["0000020005"]


@pytest.mark.parametrize("end", ["00000300", "0000020001"])
def test_bytes_after_the_end_break_the_protocol(end: str) -> None:
    side = accepted()
    side.feed(end)
    side.told()
    assert side.feed(DATA + "61") == []
    *_, due = side.told()
    assert due == CloseDue(1002, "stream 0 got bytes after its end", Violation.DATA_AFTER_END)
    assert side.mux.is_closed


def test_more_bytes_than_granted_fail_the_stream_alone() -> None:
    side = accepted()
    side.feed("02000100000040")
    assert side.feed(DATA + "61" * 65) == ["0000020100", "0000020000"]
    assert side.told() == [
        StreamOpened(2),
        HalfFailed(0, Half.READ, 0, FailReason.OVERFLOW),
        HalfFailed(0, Half.WRITE, 0, FailReason.OVERFLOW),
        StreamEnded(0),
    ]
    assert side.feed(DATA + "61", "02000061") == []
    assert side.told() == [Readable(2)]


def test_the_window_is_what_was_granted() -> None:
    side = accepted()
    side.feed(DATA + "61" * 64)
    side.mux.read(0, 31)
    assert side.sent() == []  # not granted yet
    assert side.feed(DATA + "61") == ["0000020100", "0000020000"]


def test_empty_data_is_taken_and_not_acknowledged() -> None:
    side = accepted()
    assert side.feed(DATA) == []
    assert side.told() == []


def test_small_frames_are_held_in_little_more_than_their_bytes() -> None:
    size = 64 * 1024
    side = server(MuxBounds(stream_bytes=size))
    side.feed("00000100000040")
    frame = bytes.fromhex(DATA) + b"ab"
    side.mux.receive_data(frame, 0)
    tracemalloc.start()
    try:
        for _ in range(size // 2 - 1):
            side.mux.receive_data(frame, 0)
        used_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used_bytes < 1.25 * size
    half = size // 2
    assert side.mux.read(0, half + 1) == b"ab" * (half // 2) + b"a"
    side.feed(DATA + "6364")
    assert side.mux.read(0, size) == b"b" + b"ab" * (half // 2 - 1) + b"cd"


def test_an_ack_of_0_wakes_nobody() -> None:
    side = accepted("0000")
    side.mux.write(0, b"ab")
    assert side.feed("00000100000000") == []
    assert side.feed("00000100000009") == ["0000006162"]


def test_credit_beyond_32_bits() -> None:
    side = accepted("0000")
    assert side.feed("000001ffffffff", "000001ffffffff") == []
    side.mux.write(0, b"a")
    assert side.sent() == ["00000061"]
    assert next(iter(side.mux)).credit == 2 * 0xFFFFFFFF - 1


def test_an_ack_may_have_more_bytes() -> None:
    side = accepted("0000")
    side.mux.write(0, b"abc")
    assert side.feed("00000100000002ffff") == ["0000006162"]


def test_what_came_before_both_ends_can_be_read() -> None:
    side = accepted()
    side.mux.end(0, 0)
    side.feed(DATA + "6162", "00000300")
    assert side.told() == [Readable(0), ReadEnded(0)]
    assert side.feed(DATA + "6162") == []  # ignored, because the half has ended
    assert side.mux.read(0, 1) == b"a"
    assert side.told() == []
    assert side.mux.read(0, 1) == b"b"
    assert side.told() == [StreamEnded(0)]
    with pytest.raises(StreamStateError, match="stream 0 has ended"):
        side.mux.read(0, 1)


def test_the_end_of_the_connection_fails_all() -> None:
    side = opened()
    second = side.mux.open_stream(0)
    side.mux.connection_lost()
    side.mux.connection_lost()
    assert side.told() == [
        HalfFailed(0, Half.READ, 0, FailReason.CONNECTION),
        HalfFailed(0, Half.WRITE, 0, FailReason.CONNECTION),
        StreamEnded(0),
        HalfFailed(second, Half.READ, 0, FailReason.CONNECTION),
        HalfFailed(second, Half.WRITE, 0, FailReason.CONNECTION),
        StreamEnded(second),
    ]
    assert side.sent() == []
    with pytest.raises(StreamStateError, match="the connection has ended"):
        side.mux.open_stream(0)


def test_streams_that_end_leave_nothing_behind() -> None:
    one, other = client(MuxBounds()), server(MuxBounds())

    def open_and_drop(count: int) -> None:
        for number in range(count):
            stream_id = one.mux.open_stream(one.now)
            one.mux.write(stream_id, b"x")
            pump(one, other)
            if number % 2:
                one.mux.abort(stream_id)
                one.mux.cancel(stream_id)
            else:
                other.mux.read(stream_id, 1)
                one.mux.end(stream_id, one.now)
                other.mux.end(stream_id, other.now)
            pump(one, other)
            for side in (one, other):
                assert side.pass_time(1) == []
                side.told()

    open_and_drop(500)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        open_and_drop(2_000)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(one.mux) == len(other.mux) == 0
    assert after - before < 20_000, "less than 10 bytes for each stream there was"
