"""Tests of a connection: ids, bounds, violations, fairness, keep-alive (sheet sections 3 to 9)."""

from __future__ import annotations

import pytest

from proto.mux.bounds import MAX_STREAM_ID, MuxBounds
from proto.mux.errors import StreamIdsUsedUpError, StreamStateError, Violation
from proto.mux.events import (
    CloseDue,
    Drained,
    PingDue,
    Readable,
    StreamAccepted,
    StreamEnded,
    StreamOpened,
)
from tests.proto.mux.sides import client, pump, server

SMALL = MuxBounds(stream_bytes=64)
GRANT = "000100000040"


# --- ids ------------------------------------------------------------------------------------------


def test_ids_of_every_length() -> None:
    side = server(SMALL)
    ids = ["00", "4040", "80004000", "c000000040000000", "fffffffffffffffe"]
    for each in ids:
        assert side.feed(each + GRANT) == [each + GRANT]
    wanted = [0, 64, 1 << 14, 1 << 30, (1 << 62) - 2]
    assert side.told() == [StreamOpened(stream_id) for stream_id in wanted]


def test_an_id_in_a_longer_form_is_the_same() -> None:
    side = server(SMALL)
    side.feed("00" + GRANT)
    assert side.feed("400000006162") == []
    assert side.mux.read(0, 2) == b"ab"
    assert side.sent() == ["00000100000002"]


def test_gaps_are_taken_and_what_lies_before_them_is_over() -> None:
    side = server(SMALL)
    assert side.feed("08" + GRANT, "04" + GRANT) == ["08" + GRANT]
    assert side.told() == [StreamOpened(8)]
    assert side.mux.counts.ignored == 1


@pytest.mark.parametrize("first", ["00000061", "00000300", "0000020001", "0000", "00ffff"])
def test_another_first_frame_burns_the_id(first: str) -> None:
    side = server(SMALL)
    assert side.feed(first, "00" + GRANT, "02" + GRANT) == ["02" + GRANT]
    assert side.told() == [StreamOpened(2)]
    assert side.mux.counts.ignored == 2


def test_an_id_is_not_used_again() -> None:
    side = server(SMALL)
    side.feed("00" + GRANT, "0000020000", "0000020100")
    side.told()
    assert side.feed("00" + GRANT, "00000061", "00ffff") == []
    assert side.told() == []
    assert side.mux.counts.ignored == 3


@pytest.mark.parametrize("frame", ["01" + GRANT, "03000061"])
def test_an_id_of_ours_that_was_never_given_out(frame: str) -> None:
    side = server(SMALL)
    assert side.feed(frame) == []
    stream_id = int(frame[:2])
    text = f"stream {stream_id} was never opened"
    assert side.told() == [CloseDue(1002, text, Violation.UNKNOWN_ID)]


def test_all_ids_used_up() -> None:
    side = client(SMALL)
    side.mux._next_id = MAX_STREAM_ID - 1
    assert side.mux.open_stream(0) == MAX_STREAM_ID - 1
    with pytest.raises(StreamIdsUsedUpError):
        side.mux.open_stream(0)


# --- violations -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "violation"),
    [
        ("text", Violation.TEXT),
        (b"", Violation.EMPTY),
        (b"\xc0\0\0", Violation.BAD_ID),
        (b"\0", Violation.MALFORMED),
        (b"\0\0\4", Violation.MALFORMED),
        (b"\0\0\1\0\0\0", Violation.MALFORMED),
        (b"\0\0\3\2", Violation.MALFORMED),
        (b"\0\0\2\0", Violation.MALFORMED),
        (b"\2\0\1\0\0", Violation.MALFORMED),
    ],
)
def test_violations_close_the_connection(message: bytes | str, violation: Violation) -> None:
    side = server(SMALL)
    side.feed("00" + GRANT)
    side.told()
    side.mux.receive_data(message, 0)
    *_, due = side.told()
    assert isinstance(due, CloseDue)
    assert (due.code, due.violation) == (1002, violation)
    assert 0 < len(due.text.encode()) <= 123
    assert side.feed("02" + GRANT) == []
    assert side.mux.next_timer() is None


def test_more_credit_than_62_bits() -> None:
    side = server(SMALL)
    side.feed("00" + GRANT)
    next(iter(side.mux))._granted = (1 << 62) - 1
    side.feed("00000100000002")
    *_, due = side.told()
    assert isinstance(due, CloseDue)
    assert due.violation is Violation.CREDIT


# --- bounds ---------------------------------------------------------------------------------------


def test_streams_beyond_the_bound_are_refused() -> None:
    side = server(MuxBounds(stream_bytes=64, max_streams=2))
    opening = [f"0{number}{GRANT}" for number in (0, 2, 4)]
    assert side.feed(*opening) == ["0400020000", "0400020100", *opening[:2]]
    assert side.told() == [StreamOpened(0), StreamOpened(2)]
    assert (side.mux.counts.refused, side.mux.counts.accepted) == (1, 2)
    side.feed("0000020000", "0000020100")
    assert side.feed("06" + GRANT) == ["06" + GRANT]


def test_bytes_of_all_streams_are_bounded() -> None:
    side = server(MuxBounds(stream_bytes=64, max_held_bytes=128))
    side.feed("00" + GRANT, "02" + GRANT)
    assert side.feed("04" + GRANT) == ["0400020000", "0400020100"]


def test_the_owner_refuses() -> None:
    side = server(SMALL)
    side.mux.receive_data(bytes.fromhex("00" + GRANT), 0)
    assert side.told() == [StreamOpened(0)]
    side.mux.refuse(0, 9)
    assert side.told() == [StreamEnded(0)]
    assert side.sent() == ["0000020009", "0000020109"]
    side.feed("02" + GRANT)
    with pytest.raises(StreamStateError, match="has been accepted"):
        side.mux.refuse(2)


def test_a_refusal_ends_the_stream_of_the_opener() -> None:
    one, other = client(SMALL), server(MuxBounds(max_streams=0))
    one.mux.open_stream(0)
    one.mux.write(0, b"abc")
    pump(one, other)
    assert len(one.mux) == len(other.mux) == 0
    assert one.told()[-1] == StreamEnded(0)


# --- fairness -------------------------------------------------------------------------------------


def test_streams_take_turns() -> None:
    side = client(MuxBounds(piece_bytes=2))
    for stream_id in (0, 2, 4):
        side.mux.open_stream(0)
        side.mux.receive_data(bytes.fromhex(f"0{stream_id}000100001000"), 0)
        side.mux.write(stream_id, b"%d" % stream_id * 4)
    sent = side.sent()[3:]
    assert [frame[:2] for frame in sent] == ["00", "02", "04"] * 2


def test_no_more_is_taken_than_wanted() -> None:
    side = client(MuxBounds(piece_bytes=100))
    side.mux.open_stream(0)
    side.feed("00000100100000")
    side.mux.write(0, b"a" * 1000)
    assert len(side.mux.data_to_send(0, 250)) == 3
    assert side.mux.queued_of(0) == side.mux.queued_bytes == 700
    assert side.mux.has_data_to_send
    assert len(side.mux.data_to_send(0)) == 7
    assert not side.mux.has_data_to_send


def test_ten_thousand_streams() -> None:
    bounds = MuxBounds(stream_bytes=16, max_streams=10_000)
    one, other = client(bounds), server(bounds)
    for _ in range(10_000):
        one.mux.write(one.mux.open_stream(0), b"hello")
    pump(one, other)
    assert sum(type(event) is StreamOpened for event in other.told()) == 10_000
    for stream in list(other.mux):
        assert other.mux.read(stream.id, 9) == b"hello"
        other.mux.end(stream.id, 0)
        one.mux.end(stream.id, 0)
    pump(one, other)
    assert len(one.mux) == len(other.mux) == 0


# --- keep-alive -----------------------------------------------------------------------------------


def test_pings_after_a_silence() -> None:
    side = client(MuxBounds(ping_interval_ms=100))
    side.pass_time(60)
    side.mux.receive_pong(side.now)
    side.pass_time(99)
    assert side.told() == []
    side.pass_time(1)
    assert side.told() == [PingDue()]
    side.pass_time(100)
    assert side.told() == [PingDue()]


@pytest.mark.parametrize(("is_client", "pings"), [(True, 1), (False, 2)])
def test_one_side_is_enough_to_ping(is_client: bool, pings: int) -> None:
    """G7: a client stops pinging after one ping of the other side, a server after two."""
    side = (client if is_client else server)(MuxBounds(ping_interval_ms=100))
    for _ in range(pings):
        assert side.mux.next_timer() is not None
        side.mux.receive_ping(side.now)
    assert side.mux.next_timer() is None


def test_a_silence_ends_the_connection() -> None:
    side = server(MuxBounds(ping_timeout_ms=100))
    side.pass_time(90)
    side.feed("00" + GRANT)
    side.pass_time(99)
    assert side.told() == [StreamOpened(0)]
    side.pass_time(1)
    assert side.told()[-1] == CloseDue(1000, "keep-alive timeout")


def test_both_directions() -> None:
    one, other = client(SMALL), server(SMALL)
    first = one.mux.open_stream(0)
    pump(one, other)
    second = other.mux.open_stream(0)
    one.mux.write(first, b"forth")
    other.mux.write(second, b"back")
    pump(one, other)
    assert one.told() == [StreamAccepted(0), Drained(0), StreamOpened(1), Readable(1)]
    assert other.told() == [StreamOpened(0), Readable(0), StreamAccepted(1), Drained(1)]
    assert (one.mux.read(1, 9), other.mux.read(0, 9)) == (b"back", b"forth")
    one.mux.close(1000, "é" * 100)
    assert one.told()[-1] == CloseDue(1000, "é" * 61)
    assert one.mux.next_timer() is None


# --- acknowledgements that wait -------------------------------------------------------------------


def test_acknowledgements_of_a_while_are_one() -> None:
    side = server(SMALL._replace(ack_delay_ms=20))
    side.feed("00" + GRANT)
    for _ in range(3):
        assert side.feed("00000061") == []
        assert side.mux.read(0, 10) == b"a"
    assert side.pass_time(19) == []
    assert side.pass_time(1) == ["00000100000003"]
    assert side.mux.next_timer() is None


def test_an_acknowledgement_does_not_wait_when_half_is_used_up() -> None:
    side = server(SMALL._replace(ack_delay_ms=20))
    side.feed("00" + GRANT)
    side.feed("000000" + "61" * 31)
    side.mux.read(0, 64)
    assert side.sent() == []
    side.feed("00000061")
    side.mux.read(0, 64)
    assert side.sent() == ["00000100000020"]
    assert side.pass_time(100) == []


def test_nothing_is_acknowledged_after_the_end() -> None:
    side = server(SMALL._replace(ack_delay_ms=20))
    side.feed("00" + GRANT)
    side.feed("00000061")
    side.mux.read(0, 10)
    assert side.feed("00000300") == ["00000301"]
    assert side.pass_time(100) == []
