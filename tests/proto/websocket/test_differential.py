"""Tests that the frame reader and the `websockets` library agree on messages and verdicts."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from proto.websocket.frames import FrameReader
from tests.fuzz import fuzz_frames
from tests.proto.websocket.oracle import FrameSpec, expected, library, ours, random_frames


@given(st.integers(0, 2**64), st.lists(st.floats(0, 1), max_size=8), st.sets(st.integers(0, 8)))
@settings(max_examples=400, deadline=None)
def test_same_verdict_as_library_wherever_reads_end(
    seed: int, shares: list[float], kept: set[int]
) -> None:
    frames = random_frames(random.Random(seed))
    wire = b"".join(frame.serialize() for frame in frames)
    cuts = sorted(int(share * len(wire)) for share in shares)
    assert ours(wire, cuts, kept=kept) == expected(frames)


def test_every_single_cut_of_a_sequence() -> None:
    frames = [
        FrameSpec(2, b"first"),
        FrameSpec(2, b"a" * 130, final=False),
        FrameSpec(9, b"ping"),
        FrameSpec(0, b"", final=False),
        FrameSpec(10, b"pong"),
        FrameSpec(0, b"b" * 5),
        FrameSpec(2, b""),
        FrameSpec(2, b"c" * 70, length_bytes=None),
        FrameSpec(8, b"\x03\xe8bye"),
    ]
    wire = b"".join(frame.serialize() for frame in frames)
    verdict = expected(frames)
    assert verdict.messages == [b"first", b"a" * 130 + b"b" * 5, b"", b"c" * 70]
    assert verdict.close == (1000, b"\x03\xe8bye")
    for cut in range(len(wire) + 1):
        assert ours(wire, [cut]) == verdict
    assert ours(wire, list(range(len(wire)))) == verdict


@given(st.binary(max_size=400), st.data())
@settings(max_examples=300, deadline=None)
def test_any_bytes(wire: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=5)))
    mine = ours(wire, cuts)
    assert mine == ours(wire, [])
    theirs = library(wire)
    assert mine.messages == theirs.messages[: len(mine.messages)]
    if mine.refused is None:
        assert mine.close == theirs.close


def test_fuzz_targets_run() -> None:
    for _name, iteration in fuzz_frames.targets():
        rng = random.Random(7)
        for _ in range(50):
            iteration(rng)


def test_reader_is_reusable_after_many_messages() -> None:
    reader = FrameReader()
    wire = FrameSpec(2, b"x" * 256).serialize() * 1000
    messages = reader.receive_data(wire)
    while reader.more:
        messages += reader.receive_data(b"")
    assert messages == [b"x" * 256] * 1000
    assert reader.events == []
