"""How a relay recognises messages that it has already received from partner relays."""

from __future__ import annotations

from proto.rmb import types_pb2 as pb
from proto.rmb.challenge import challenge
from relay.federation.inbound_memory import Memory, signed_mark
from tests.support.federation_client import signed
from tests.support.world import ELSEWHERE_TWIN as FAR


def _mark(envelope: pb.Envelope) -> bytes:
    twins = envelope.source.twin, envelope.destination.twin
    return signed_mark(*twins, challenge(envelope), envelope.signature)


def test_the_mark_is_that_of_what_was_signed() -> None:
    sent = signed(FAR, (7, "1"), b"payload")
    known = _mark(sent)
    again = pb.Envelope.FromString(sent.SerializeToString() + b"\xba\x06\x01x")
    assert _mark(again) == known
    other = pb.Envelope.FromString(sent.SerializeToString())
    other.destination.twin, other.destination.connection = 71, ""  # the signed digits are the same
    assert challenge(other) == challenge(sent)
    assert _mark(other) != known
    assert _mark(signed(FAR, (7, "1"), b"payload")) != known


def test_so_many_a_minute_are_remembered() -> None:
    memory = Memory(per_minute=2)
    assert [memory.has_room(120 + n) for n in range(3)] == [True, True, False]
    assert memory.forgotten == 1
    assert memory.has_room(180)
