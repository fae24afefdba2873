"""Tests that avoid known problems of the JavaScript peers (sheet section 10: G1 to G6, G11).

Problems that need a websocket (G7 to G10) are tested in `tests/e2e/test_mux_client.py`,
`test_mux_server.py` and `test_js_sessions.py`.
"""

from __future__ import annotations

import pytest

from proto.mux.bounds import MuxBounds
from proto.mux.events import (
    FailReason,
    HalfFailed,
    Readable,
    ReadEnded,
    StreamAccepted,
    StreamEnded,
    StreamOpened,
)
from proto.mux.frames import Half
from tests.proto.mux.sides import Side, client, server

SMALL = MuxBounds(stream_bytes=64)
ACCEPT = "00000100000040"


def test_g1_no_ack_after_the_end_of_what_is_read() -> None:
    """G1a: no ACK follows the end of a half, as an opener that forgot the id would open a ghost."""
    side = server(SMALL)
    assert side.feed(ACCEPT) == [ACCEPT]
    side.feed("000000" + "61" * 64, "00000300")
    assert side.mux.read(0, 64) == b"a" * 64
    assert side.sent() == []


def test_g1_an_ack_after_our_end_comes_behind_the_end_once_more() -> None:
    """G1b: the end is repeated before an ACK: a live opener ignores it, any other burns the id."""
    side = server(SMALL)
    side.feed(ACCEPT)
    side.mux.end(0, 0)
    assert side.sent() == ["00000300"]
    for _ in range(2):
        side.feed("000000" + "61" * 40)
        side.mux.read(0, 40)
        assert side.sent() == ["00000300", "00000100000028"]


def test_g1_an_ack_on_an_own_stream_needs_nothing_before_it() -> None:
    side = client(SMALL)
    side.mux.open_stream(0)
    side.feed(ACCEPT)
    side.mux.end(0, 0)
    assert side.feed("00000061") == ["00000300"]
    side.mux.read(0, 1)
    assert side.sent() == ["00000100000001"]


@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
def test_g1_a_stream_opened_and_cancelled_at_once_is_not_accepted(order: tuple[int, int]) -> None:
    """G1c: a stream whose opening and errors arrive in one read is not accepted."""
    side = server(SMALL)
    errors = [f"000002{half:02}07" for half in order]
    answers = [f"000002{1 - half:02}07" for half in order]
    assert side.feed(ACCEPT, *errors) == answers
    assert len(side.mux) == 0
    assert side.told()[0] == StreamOpened(0)


def test_a_stream_whose_reader_was_cancelled_at_once_is_accepted() -> None:
    """The stream is still accepted, because its opener sends nothing before that."""
    side = server(SMALL)
    side.mux.receive_data(bytes.fromhex(ACCEPT), 0)
    side.mux.cancel(0, 7)
    assert side.sent() == ["0000020107", ACCEPT]


def test_g1_a_ghost_ack_is_ignored() -> None:
    """G1d: an ACK for an id of this side that has ended is ignored."""
    side = client(SMALL)
    side.mux.open_stream(0)
    side.feed(ACCEPT)
    side.mux.abort(0)
    side.mux.cancel(0)
    side.sent()
    side.told()
    assert side.feed("00000100100000") == []
    assert side.told() == []
    assert side.mux.counts.ignored == 1


def test_g2_the_end_waits_until_all_is_acknowledged() -> None:
    side = client(SMALL)
    side.mux.open_stream(0)
    side.feed(ACCEPT)
    side.mux.write(0, b"abc")
    side.mux.end(0, 0)
    assert side.sent() == ["000000616263"]
    assert side.feed("00000100000002") == []
    assert side.feed("00000100000001") == ["00000300"]


def test_g2_the_end_goes_out_after_a_while_of_silence() -> None:
    """The end is sent after 250 ms of silence, even if bytes are not acknowledged.

    An idle reader of the reference acknowledges only its first chunk.
    """
    side = client(SMALL)
    side.mux.open_stream(0)
    side.feed(ACCEPT)
    side.mux.write(0, b"abc")
    assert side.sent() == ["000000616263"]
    side.mux.end(0, 0)
    assert side.pass_time(249) == []
    assert side.pass_time(1) == ["00000300"]


def test_g2_the_while_begins_with_the_last_bytes() -> None:
    side = client(SMALL)
    side.mux.open_stream(0)
    side.feed("00000100000002")
    side.mux.write(0, b"abc")
    side.mux.end(0, 0)
    assert side.sent() == ["0000006162"]
    assert side.pass_time(1000) == []
    assert side.feed("00000100000002") == ["00000063"]
    assert side.pass_time(249) == []
    assert side.feed("00000100000001") == ["00000300"]


def test_g2_acks_arm_one_timer() -> None:
    side = client(MuxBounds(stream_bytes=1 << 20))
    side.mux.open_stream(0)
    side.feed("00000100100000")
    side.mux.write(0, b"a" * 10_000)
    side.mux.end(0, 0)
    side.sent()
    side.feed(*["00000100000001"] * 5_000)
    assert len(side.mux._timers) == 1


@pytest.mark.parametrize("act", ["end", "abort", "cancel"])
def test_g3_nothing_is_sent_before_the_stream_is_accepted(act: str) -> None:
    side = client(SMALL)
    side.mux.open_stream(0)
    side.mux.write(0, b"abc")
    if act == "end":
        side.mux.end(0, 0)
        expected = ["000000616263"]
    elif act == "abort":
        side.mux.abort(0, 5)
        expected = ["0000020005"]
    else:
        side.mux.cancel(0, 5)
        expected = ["0000020105", "000000616263"]
    assert side.sent() == [ACCEPT]
    assert side.feed(ACCEPT) == expected


def test_g3_a_stream_given_up_before_it_is_accepted_is_forgotten_then() -> None:
    side = client(SMALL)
    side.mux.open_stream(0)
    side.mux.abort(0, 5)
    side.mux.cancel(0, 6)
    assert side.sent() == [ACCEPT]
    assert len(side.mux) == 1
    assert side.feed(ACCEPT) == ["0000020005", "0000020106"]
    assert len(side.mux) == 0


def test_g3_frames_that_come_before_the_acceptance_are_taken() -> None:
    side = client(SMALL)
    side.mux.open_stream(0)
    side.sent()
    assert side.feed("00000061", "00000300") == []  # answered once the stream is accepted
    assert side.told() == [Readable(0), ReadEnded(0)]
    assert side.feed(ACCEPT) == ["00000301"]
    assert side.told() == [StreamAccepted(0)]
    assert side.mux.read(0, 1) == b"a"


def test_g3_a_stream_that_ends_where_it_is_opened() -> None:
    """An end that directly follows the opening is confirmed, and no credit is granted."""
    side = server(SMALL)
    assert side.feed(ACCEPT, "00000300") == ["00000301"]
    assert side.told() == [StreamOpened(0), ReadEnded(0)]
    side.mux.end(0, 0)
    assert side.sent() == ["00000300"]
    assert side.told() == [StreamEnded(0)]


def test_g4_the_accepting_side_opens_nothing_before_a_frame_came() -> None:
    side = server(SMALL)
    assert side.mux.open_stream(0) == 1
    assert side.sent() == []
    assert side.feed(ACCEPT) == ["01000100000040", ACCEPT]
    assert side.mux.open_stream(0) == 3
    assert side.sent() == ["03000100000040"]


def test_g4_or_before_a_while() -> None:
    side = server(SMALL)
    side.mux.open_stream(0)
    assert side.pass_time(99) == []
    assert side.pass_time(1) == ["01000100000040"]


def test_g4_a_timeout_of_the_opening_uses_the_id_up() -> None:
    side = client(SMALL)
    side.mux.open_stream(0)
    side.mux.write(0, b"abc")
    side.sent()
    assert side.pass_time(10_000) == []
    assert side.told() == [
        HalfFailed(0, Half.READ, 0, FailReason.OPEN_TIMEOUT),
        HalfFailed(0, Half.WRITE, 0, FailReason.OPEN_TIMEOUT),
        StreamEnded(0),
    ]
    assert side.feed(ACCEPT) == ["0000020000", "0000020100"]  # too late, so it gets errors
    assert side.feed("0000020100", "0000020000", ACCEPT) == []
    assert side.mux.open_stream(0) == 2


def test_streams_that_are_never_accepted_are_forgotten() -> None:
    side = client(SMALL)
    for _ in range(2000):
        side.mux.open_stream(0)
    side.sent()
    side.pass_time(10_000)
    assert len(side.mux) == 0
    assert side.feed(ACCEPT) == []
    assert len(side.feed("47d0000100000040")) == 2  # of stream 2000, among the last 1,000


def test_g5_bytes_for_a_cancelled_reader_are_dropped() -> None:
    side = server(SMALL)
    side.feed(ACCEPT)
    side.mux.cancel(0, 1)
    assert side.sent() == ["0000020101"]
    assert side.feed("00000061", "0000020001") == []
    assert not side.mux.is_closed


def test_g5_nothing_is_written_after_the_reader_has_gone() -> None:
    side = client(SMALL)
    side.mux.open_stream(0)
    side.feed(ACCEPT)
    side.mux.write(0, b"abc")
    assert side.feed("0000020101") == ["0000020001"]


def test_g6_ids_by_role() -> None:
    one, other = client(SMALL), server(SMALL)
    assert [one.mux.open_stream(0) for _ in range(3)] == [0, 2, 4]
    assert [other.mux.open_stream(0) for _ in range(3)] == [1, 3, 5]


def run(side: Side, frames: list[str]) -> list[str]:
    return [answer for frame in frames for answer in side.feed(frame)]


def test_g11_no_bytes_follow_an_end() -> None:
    """This side sends no bytes after an end: they would crash the process of a JavaScript peer."""
    side = client(SMALL)
    side.mux.open_stream(0)
    side.mux.write(0, b"abc")
    side.mux.end(0, 0)
    sent = run(side, ["00000100000002", "00000100000001", "00000100000003"])
    assert sent == [ACCEPT, "0000006162", "00000063", "00000300"]
