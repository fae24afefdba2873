"""Tests of frames: all that were recorded between the reference's peers, and malformed ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.mux import frames, varint
from proto.mux.errors import FrameError, Violation
from proto.mux.frames import Ack, Close, Data, Error, Half

VECTORS = json.loads(
    (Path(__file__).parents[2] / "interop" / "vectors" / "mux.json").read_text(encoding="utf-8")
)["vectors"]


def is_malformed(frame: dict[str, Any]) -> bool:
    known = frame.get("type", "") in ("DATA", "ACK", "ERROR", "CLOSE")
    return not known or frame.get("half", "read") not in ("read", "write")


RECORDED = [
    pytest.param(frame, id=f"{vector['name']}-{number}")
    for vector in VECTORS
    for number, frame in enumerate(vector["frames"])
    if "hex" in frame and not is_malformed(frame)
]
MALFORMED = [
    pytest.param(frame, id=f"{vector['name']}-{number}")
    for vector in VECTORS
    for number, frame in enumerate(vector["frames"])
    if "hex" in frame and is_malformed(frame) and frame["hex"]
]


def parse(message: bytes) -> tuple[int, frames.Frame]:
    stream_id, at = frames.parse_id(message)
    return stream_id, frames.parse_frame(message, at)


@pytest.mark.parametrize("recorded", RECORDED)
def test_recorded_frames(recorded: dict[str, Any]) -> None:
    message = bytes.fromhex(recorded["hex"])
    stream_id, frame = parse(message)
    prefix = varint.encode(stream_id)
    assert stream_id == int(recorded["stream"])
    match frame:
        case Data(payload):
            assert (recorded["type"], len(payload)) == ("DATA", recorded["length"])
            written = frames.data(prefix, payload)
        case Ack(grant):
            assert (recorded["type"], grant) == ("ACK", recorded["credit"])
            written = prefix + frames.ACK + grant.to_bytes(4, "big")
        case Error(half, code):
            assert (recorded["type"], half.name.lower()) == ("ERROR", recorded["half"])
            assert code == int(recorded["code"])
            written = frames.error(prefix, half, code)
        case Close(half):
            assert (recorded["type"], half.name.lower()) == ("CLOSE", recorded["half"])
            written = frames.close(prefix, half)
    same_form = len(written) == len(message)  # no number in a longer form, and no extra bytes
    assert not same_form or written == message


@pytest.mark.parametrize("recorded", MALFORMED)
def test_recorded_malformed_frames(recorded: dict[str, Any]) -> None:
    with pytest.raises(FrameError) as failed:
        parse(bytes.fromhex(recorded["hex"]))
    assert failed.value.violation in (Violation.MALFORMED, Violation.BAD_ID)


@pytest.mark.parametrize(
    ("text", "violation", "words"),
    [
        ("", Violation.EMPTY, "empty"),
        ("c00000", Violation.BAD_ID, "cut off"),
        ("00", Violation.MALFORMED, "type of no bytes"),
        ("0000", Violation.MALFORMED, "type 00"),
        ("000004", Violation.MALFORMED, "type 0004"),
        ("00ffff", Violation.MALFORMED, "type ffff"),
        ("000001000000", Violation.MALFORMED, "3 of 4"),
        ("000002", Violation.MALFORMED, "before its half"),
        ("00000202", Violation.MALFORMED, "half 2"),
        ("00000200", Violation.MALFORMED, "code"),
        ("0000020040", Violation.MALFORMED, "code"),
        ("000003", Violation.MALFORMED, "before its half"),
        ("000003ff", Violation.MALFORMED, "half 255"),
    ],
)
def test_malformed_frames(text: str, violation: Violation, words: str) -> None:
    with pytest.raises(FrameError, match=words) as failed:
        parse(bytes.fromhex(text))
    assert failed.value.violation is violation


@pytest.mark.parametrize(
    ("text", "frame"),
    [
        ("00000100000005ffff", Ack(5)),
        ("0000030199", Close(Half.WRITE)),
        ("000002000577", Error(Half.READ, 5)),
        ("0000020040050000", Error(Half.READ, 5)),
    ],
)
def test_bytes_behind_what_is_needed_are_ignored(text: str, frame: frames.Frame) -> None:
    assert parse(bytes.fromhex(text)) == (0, frame)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_frame_or_an_error(message: bytes) -> None:
    try:
        parse(message)
    except FrameError as error:
        assert str(error)
