"""Messages between workers: packets grouped by destination."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.sbd.bounds import MAX_MESSAGE_BYTES
from relay.sbd import crossing
from relay.sbd.crossing import MAX_ASKING, MAX_GROUP, Crossing, decode, encode
from relay.sbd.options import LossReason, SbdOptions
from relay.sbd.switch import Switch

KEY = st.binary(min_size=32, max_size=32)
PACKET = st.binary(min_size=32, max_size=200)


@given(st.lists(st.tuples(KEY, st.lists(PACKET, min_size=1, max_size=5)), max_size=5))
def test_packets_come_as_they_went(groups: list[tuple[bytes, list[bytes]]]) -> None:
    assert decode(encode(groups)) == groups


def test_the_largest_packet_and_more_than_one_group_holds() -> None:
    packets = [bytes(MAX_MESSAGE_BYTES), *[bytes(32)] * MAX_GROUP]
    groups = decode(encode([(b"k" * 32, packets)]))
    assert [key for key, _ in groups] == [b"k" * 32] * 2
    assert [packet for _, some in groups for packet in some] == packets


@given(st.binary(max_size=200).map(crossing.PACKETS.__add__))
def test_any_bytes_are_packets_or_are_refused(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        for key, packets in decode(data):
            assert len(key) == 32
            assert all(32 <= len(packet) <= MAX_MESSAGE_BYTES for packet in packets)


@given(st.lists(st.tuples(KEY, st.lists(PACKET, min_size=1)), min_size=1), st.integers(1, 30))
def test_packets_that_are_cut_off_are_refused(
    groups: list[tuple[bytes, list[bytes]]], missing: int
) -> None:
    with pytest.raises(ValueError, match=r"wrong size|cut off"):
        decode(encode(groups)[:-missing])


async def test_each_packet_beyond_what_may_wait_for_an_answer_is_lost_once() -> None:
    async def connect() -> Any:
        raise OSError("there is no Redis")

    answers: list[Any] = []
    link: Any = SimpleNamespace(usable=True, submit=lambda command, then: answers.append(then))
    cross = Crossing("boot", connect, [])
    cross._pipe = link
    switch = cross._switch = Switch(SbdOptions(), asyncio.get_running_loop(), cross)
    told: Counter[tuple[str, bytes]] = Counter()
    recorder: Any = SimpleNamespace(
        dropped=lambda target, some, reason: told.update([(reason, each) for each in some])
    )
    switch.recorder = recorder
    first = [b"a" * 32 + bytes([number % 7]) for number in range(MAX_ASKING + 44)]
    cross.send(b"k" * 32, first)  # all of one read may wait
    later = [b"b" * 32 + bytes([number]) for number in range(100)]
    cross.send(b"k" * 32, later)
    assert switch.counts.lost == {LossReason.CROSSING_FULL: 100}
    (answer,) = answers
    answer(None)
    assert switch.counts.lost == {LossReason.CROSSING_FULL: 100, LossReason.ABSENT: len(first)}
    assert told == Counter(
        [("crossing_full", each) for each in later] + [("absent", each) for each in first]
    )
