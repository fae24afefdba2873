"""The sealed messages of one request to its receivers."""

from __future__ import annotations

import pytest

from peer.gateway.bodies import Failure, read_request
from peer.gateway.seals import Seals
from peer.twins import Twin
from proto.identity.signing import KeyType, SigningKey
from proto.rmb import stamp
from proto.rmb import types_pb2 as pb
from proto.rmb.sealing import Sealer

NOW, LEFT_S = 1_700_000_000, 60
KEYLESS = Twin(7, bytes(32), None, ("relay.example.com",))
REQUEST = read_request(b'{"cmd": "a.b", "dst": [7, 8, 7, 7], "ret": "r", "dat": "eA=="}')


@pytest.mark.parametrize("key_type", KeyType)
def test_copies_for_one_twin_are_no_repeats(key_type: KeyType) -> None:
    """Copies for one twin differ; in plain text with a deterministic signature they would not."""
    key = SigningKey.from_mini_secret(bytes(range(32)), key_type)
    seals = Seals(Sealer((1, None), key, None, bytes))
    receivers = [(7, KEYLESS), (8, None), (7, KEYLESS)]
    first = list(seals.requests("uid", REQUEST, receivers, [7], NOW, LEFT_S))
    last = list(seals.requests("uid", REQUEST, [(7, KEYLESS)], [], NOW, LEFT_S))
    assert [twin_id for twin_id, _ in first] == [7, 8, 7]
    assert isinstance(first[1][1], Failure)
    made = [found for _, found in (*first, *last) if isinstance(found, bytes)]
    envelopes = [pb.Envelope.FromString(each) for each in made]
    assert len({each.signature for each in envelopes}) == 3
    assert {each.uid for each in envelopes} == {"uid"}
    deadlines = {stamp.deadline(each.timestamp, each.expiration) for each in envelopes}
    assert deadlines == {NOW + LEFT_S}
    assert envelopes[-1].timestamp == NOW
