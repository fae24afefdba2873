"""Tests of envelopes in shared blocks: equal to separately allocated ones, and in few blocks."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError

from proto.rmb import blocks
from proto.rmb import types_pb2 as pb
from proto.rmb.blocks import BLOCK_BYTES, ENVELOPE_BYTES, block_parser


def _message(number: int, payload: bytes = b"payload") -> bytes:
    envelope = pb.Envelope(uid=f"uid-{number}", plain=payload, timestamp=number)
    envelope.source.twin, envelope.destination.twin = 7, number
    return envelope.SerializeToString()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[pb.Envelopes]:
    """Collect the blocks that are created."""
    made: list[pb.Envelopes] = []
    new = pb.Envelopes

    def note() -> pb.Envelopes:
        made.append(new())
        return made[-1]

    monkeypatch.setattr(blocks.pb, "Envelopes", note)
    return made


def test_envelopes_are_those_that_have_memory_of_their_own() -> None:
    parse = block_parser()
    raw = [_message(number) for number in range(1, 2_000)]
    kept = [parse(each) for each in raw]
    assert kept == [pb.Envelope.FromString(each) for each in raw]
    assert [each.SerializeToString() for each in kept] == raw


def test_what_does_not_parse_leaves_those_around_it_alone() -> None:
    parse = block_parser()
    before = parse(_message(1))
    with pytest.raises(DecodeError):
        parse(b"\xff\xff\xff")
    after = parse(_message(2))
    assert (before.uid, after.uid) == ("uid-1", "uid-2")


def test_many_small_ones_share_a_block(made: list[pb.Envelopes]) -> None:
    parse = block_parser()
    each = len(_message(100)) + ENVELOPE_BYTES
    fitting = BLOCK_BYTES // each
    for _ in range(3 * fitting):
        parse(_message(100))
    assert [len(block.envelopes) for block in made] == [fitting] * 3


def test_a_large_one_has_its_own_block(made: list[pb.Envelopes]) -> None:
    parse = block_parser()
    parse(_message(1))
    parse(_message(2, bytes(BLOCK_BYTES)))
    parse(_message(3))
    assert [len(block.envelopes) for block in made] == [1, 1, 1]
