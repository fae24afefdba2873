"""Tests of frames: what a server writes, and the bounds of the reader."""

from __future__ import annotations

import itertools
import time

import pytest
from websockets.frames import Frame, Opcode

from proto.websocket.bounds import MAX_CALL_FRAMES, MAX_REASON_BYTES
from proto.websocket.budget import MessageBudget
from proto.websocket.errors import Fault
from proto.websocket.events import CloseReceived, InputRefused, PingReceived
from proto.websocket.frames import (
    FrameReader,
    binary_frames,
    close_frame,
    close_payload,
    frame_header,
    frame_parts,
    framed_bytes,
    pong_frame,
    sendable,
)
from tests.proto.websocket.oracle import FrameSpec

SIZES = [0, 1, 125, 126, 4095, 4096, 65535, 65536, 70000]


@pytest.mark.parametrize("size", SIZES)
def test_binary_frame_as_the_library_writes_it(size: int) -> None:
    payload = b"p" * size
    theirs = Frame(Opcode.BINARY, payload).serialize(mask=False)
    assert binary_frames([payload]) == theirs
    assert binary_frames([payload, b"", payload]) == theirs + b"\x82\x00" + theirs
    assert b"".join(frame_parts([payload, b""])) == theirs + b"\x82\x00"
    assert framed_bytes([payload, b""]) == len(theirs) + 2
    assert frame_header(size) + payload == theirs


def test_control_frames_as_the_library_writes_them() -> None:
    assert pong_frame(b"abc") == Frame(Opcode.PONG, b"abc").serialize(mask=False)
    payload = close_payload(4001, "replaced")
    assert close_frame(payload) == Frame(Opcode.CLOSE, payload).serialize(mask=False)
    assert close_frame(b"") == b"\x88\x00"


def test_close_reason_is_cut_at_a_whole_character() -> None:
    payload = close_payload(1000, "é" * 100)
    assert len(payload) - 2 == MAX_REASON_BYTES - 1
    assert payload[2:].decode() == "é" * 61


@pytest.mark.parametrize("code", [0, 999, 1004, 1005, 1006, 1015, 2999, 5000])
def test_close_code_that_must_not_be_sent(code: int) -> None:
    assert not sendable(code)
    with pytest.raises(ValueError, match=str(code)):
        close_payload(code, "")


@pytest.mark.parametrize("size", SIZES)
def test_every_length_form_split_anywhere(size: int) -> None:
    wire = FrameSpec(2, b"m" * size).serialize()
    cuts = range(len(wire)) if size < 5000 else [1, 2, 3, 7, 8, 10, 13, 14, 15, len(wire) - 1]
    for cut in cuts:
        reader = FrameReader()
        assert reader.receive_data(wire[:cut]) + reader.receive_data(wire[cut:]) == [b"m" * size]


def test_too_large_is_seen_in_the_header_before_anything_is_held() -> None:
    budget = MessageBudget()
    reader = FrameReader(1000, budget)
    assert reader.receive_data(FrameSpec(2, b"", claimed_bytes=1001).serialize()) == []
    (event,) = reader.events
    assert isinstance(event, InputRefused)
    assert event.fault is Fault.TOO_LARGE
    assert budget.used_bytes == 0


def test_message_of_exactly_the_bound_passes() -> None:
    reader = FrameReader(1000)
    assert reader.receive_data(FrameSpec(2, b"x" * 1000).serialize()) == [b"x" * 1000]


def test_fragments_together_are_bounded() -> None:
    reader = FrameReader(1000)
    reader.receive_data(FrameSpec(2, b"x" * 600, final=False).serialize())
    reader.receive_data(FrameSpec(0, b"x" * 401).serialize())
    (event,) = reader.events
    assert isinstance(event, InputRefused)
    assert event.fault is Fault.TOO_LARGE


def test_budget_is_shared_and_given_back() -> None:
    budget = MessageBudget(1000)
    one, two = FrameReader(10_000, budget), FrameReader(10_000, budget)
    wire = FrameSpec(2, b"x" * 700).serialize()
    assert one.receive_data(wire[:600]) == []
    assert budget.used_bytes == 600
    assert two.receive_data(wire[:600]) == []
    (event,) = two.events
    assert isinstance(event, InputRefused)
    assert (event.fault, budget.refused) == (Fault.TOO_MUCH_INCOMPLETE, 1)
    assert budget.used_bytes == 600
    assert one.receive_data(wire[600:]) == [b"x" * 700]
    assert budget.used_bytes == 0


@pytest.mark.parametrize("pieces", [1, 3])
def test_budget_exhausted_by_a_message_that_grows(pieces: int) -> None:
    """A message in one frame or in fragments is refused if it outgrows the budget later."""
    budget = MessageBudget(1000)
    reader = FrameReader(10_000, budget)
    wire = b"".join(
        FrameSpec(0 if piece else 2, b"x" * (2400 // pieces), final=False).serialize()
        for piece in range(pieces)
    )
    assert reader.receive_data(wire[:500]) == []
    assert budget.used_bytes == 500
    assert reader.receive_data(wire[500:1500]) == []
    (event,) = reader.events
    assert isinstance(event, InputRefused)
    assert event.fault is Fault.TOO_MUCH_INCOMPLETE
    assert (budget.used_bytes, budget.refused) == (0, 1)
    assert reader.receive_data(wire[1500:]) == []
    assert len(reader.events) == 1


def test_reader_that_the_budget_ends_says_so_when_asked() -> None:
    """A reader that the budget ends keeps the completed messages and drops all other input.

    It reports its end as an event.
    """
    budget = MessageBudget(1000)
    woken: list[str] = []
    big = FrameReader(10_000, budget, lambda: woken.append("big"))
    small = FrameReader(10_000, budget, lambda: woken.append("small"))
    wire = FrameSpec(2, b"x" * 2000).serialize()
    assert big.receive_data(FrameSpec(2, b"whole").serialize() + wire[:900]) == [b"whole"]
    assert small.receive_data(wire[:300]) == []
    assert (woken, small.events) == (["big"], [])
    (event,) = big.events
    assert event == InputRefused(Fault.TOO_MUCH_INCOMPLETE)
    assert (big.more, big.charged_bytes, budget.used_bytes, budget.refused) == (False, 0, 300, 1)
    assert big.receive_data(wire[900:]) == []
    big.close()
    assert (big.events, budget.used_bytes) == ([event], 300)
    assert small.receive_data(wire[300:900]) == []
    small.close()
    assert (woken, budget.used_bytes) == (["big"], 0)


def test_reader_that_the_budget_ends_with_frames_waiting() -> None:
    budget = MessageBudget(8000)
    reader = FrameReader(10_000, budget)
    reader.receive_data(FrameSpec(2, b"x" * 42).serialize() * 2 * MAX_CALL_FRAMES)
    assert reader.more
    other = FrameReader(10_000, budget)
    other.receive_data(FrameSpec(2, b"x" * 6000).serialize()[:5000])
    assert not reader.more
    assert reader.receive_data(b"") == []
    assert budget.used_bytes == other.charged_bytes == 5000


def test_budget_counts_fragments_and_close_gives_them_back() -> None:
    budget = MessageBudget(1000)
    reader = FrameReader(10_000, budget)
    reader.receive_data(FrameSpec(2, b"x" * 700, final=False).serialize() + b"\x80")
    assert budget.used_bytes == 701
    reader.close()
    assert budget.used_bytes == 0
    assert reader.receive_data(FrameSpec(2, b"late").serialize()) == []


def test_messages_before_refused_input_are_delivered() -> None:
    reader = FrameReader()
    wire = FrameSpec(2, b"good").serialize() + FrameSpec(1, b"text").serialize()
    assert reader.receive_data(wire + FrameSpec(2, b"after").serialize()) == [b"good"]
    (event,) = reader.events
    assert isinstance(event, InputRefused)
    assert event.fault is Fault.TEXT_FRAME


def test_ping_between_fragments_and_close_at_last() -> None:
    reader = FrameReader()
    wire = (
        FrameSpec(2, b"a", final=False).serialize()
        + FrameSpec(9, b"ping").serialize()
        + FrameSpec(0, b"b").serialize()
        + FrameSpec(8, b"").serialize()
    )
    assert reader.receive_data(wire) == [b"ab"]
    assert reader.events == [PingReceived(b"ping"), CloseReceived(1005, b"")]


def test_a_large_message_in_small_reads_takes_linear_time() -> None:
    def seconds(size: int) -> float:
        reader = FrameReader()
        wire = FrameSpec(2, bytes(size)).serialize()
        started = time.process_time()
        messages = list(
            itertools.chain.from_iterable(
                reader.receive_data(wire[start : start + 500]) for start in range(0, len(wire), 500)
            )
        )
        assert messages == [bytes(size)]
        return time.process_time() - started

    def best(size: int) -> float:
        return min(seconds(size) for _ in range(3))

    # Linear time gives a factor of 16, quadratic 256. The bound lies between, for noisy machines.
    assert best(8 * 1024 * 1024) < 120 * max(best(512 * 1024), 1e-4)


@pytest.mark.parametrize("opcode", [Opcode.BINARY, Opcode.PING])
def test_so_many_frames_at_a_time(opcode: Opcode) -> None:
    """One call handles a bounded number of frames; the rest and later bytes wait for more calls."""
    reader = FrameReader()
    wire = FrameSpec(opcode.value, b"").serialize()
    count = 2 * MAX_CALL_FRAMES + 3
    got = []

    def take(data: bytes) -> None:
        messages = reader.receive_data(data)
        got.append(len(messages) + len(reader.events))
        reader.events = []

    take(wire * count + wire[:3])
    assert reader.more
    take(wire[3:] + wire)
    assert reader.more
    take(b"")
    assert not reader.more
    assert got == [MAX_CALL_FRAMES, MAX_CALL_FRAMES, 5]


def test_data_that_is_kept_comes_with_the_next_call() -> None:
    budget = MessageBudget()
    reader = FrameReader(1000, budget)
    wire = b"".join(FrameSpec(2, b"%d" % number).serialize() for number in range(4))
    assert reader.receive_data(wire[:10]) == [b"0"]
    reader.keep_data(wire[10:20])
    assert (reader.more, budget.used_bytes) == (True, 13)
    reader.keep_data(wire[20:])
    assert reader.receive_data(b"") == [b"1", b"2", b"3"]
    assert (reader.more, budget.used_bytes) == (False, 0)
    reader.close()
    reader.keep_data(wire)
    assert (reader.more, budget.used_bytes) == (False, 0)


def test_data_that_is_kept_is_part_of_the_budget() -> None:
    reader = FrameReader(1000, MessageBudget(100))
    reader.keep_data(bytes(101))
    assert reader.events == [InputRefused(Fault.TOO_MUCH_INCOMPLETE)]
    assert not reader.more


@pytest.mark.parametrize("opcode", [Opcode.PONG, Opcode.CONT])
def test_so_many_frames_at_a_time_that_give_nothing(opcode: Opcode) -> None:
    """Unsolicited pongs, and fragments of a message that does not end, count towards the bound."""
    reader = FrameReader()
    begin = FrameSpec(2, b"", final=False).serialize() if opcode is Opcode.CONT else b""
    idle = FrameSpec(opcode.value, b"", final=opcode is Opcode.PONG).serialize()
    end = FrameSpec(0 if begin else 2, b"").serialize()
    calls = 1
    messages = reader.receive_data(begin + idle * 2 * MAX_CALL_FRAMES + end)
    while reader.more:
        assert messages == []
        messages = reader.receive_data(b"")
        calls += 1
    assert (messages, calls) == ([b""], 3)


def test_text_is_taken_as_its_bytes_where_it_may_be() -> None:
    reader = FrameReader(takes_text=True)
    wire = (
        FrameSpec(1, "é".encode()).serialize()
        + FrameSpec(1, b"\xc3", final=False).serialize()
        + FrameSpec(0, b"\xa9").serialize()
        + FrameSpec(2, b"\xff", final=False).serialize()
        + FrameSpec(0, b"\xfe").serialize()
    )
    assert reader.receive_data(wire) == ["é".encode(), "é".encode(), b"\xff\xfe"]
    assert reader.receive_data(FrameSpec(1, b"\xff").serialize()) == []
    (event,) = reader.events
    assert isinstance(event, InputRefused)
    assert event.fault is Fault.MESSAGE_TEXT
