"""Fuzz targets of the websocket layer: any bytes, and sequences of frames against the library."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.proto.websocket.oracle import expected, library, ours, random_frames


def _cuts(rng: random.Random, size: int) -> list[int]:
    if rng.random() < 0.1 and size < 500:
        return list(range(size))
    return sorted(rng.randint(0, size) for _ in range(rng.randint(0, 6)))


def any_bytes(rng: random.Random) -> None:
    """Read noise, half of it after a plausible header.

    There is no crash, and no message that the library does not deliver.
    """
    wire = rng.randbytes(rng.randint(0, 300))
    if rng.random() < 0.5:
        wire = (
            bytes((rng.choice((0x82, 0x02, 0x89, 0x88, 0x80)), 0x80 | rng.randint(0, 127))) + wire
        )
    mine = ours(wire, _cuts(rng, len(wire)))
    theirs = library(wire)
    assert mine.messages == theirs.messages[: len(mine.messages)]
    if mine.refused is None:
        assert mine.close == theirs.close


def frame_sequences(rng: random.Random) -> None:
    """Read valid sequences, some with one fault: messages and verdict are the expected ones."""
    frames = random_frames(rng)
    wire = b"".join(frame.serialize() for frame in frames)
    assert ours(wire, _cuts(rng, len(wire))) == expected(frames)


def mutated_sequences(rng: random.Random) -> None:
    """Read valid sequences with changed bytes: all messages delivered are those of the library."""
    wire = bytearray(b"".join(frame.serialize() for frame in random_frames(rng)))
    for _ in range(rng.randint(1, 4)):
        wire[rng.randrange(len(wire))] = rng.randrange(256)
    data = bytes(wire)
    mine = ours(data, _cuts(rng, len(data)))
    theirs = library(data)
    assert mine.messages == theirs.messages[: len(mine.messages)]


def targets() -> list[tuple[str, Callable[[random.Random], None]]]:
    """Return the name and the function of each target."""
    return [
        ("frames.any_bytes", any_bytes),
        ("frames.sequences", frame_sequences),
        ("frames.mutated", mutated_sequences),
    ]
