"""Tests of the first examination of a message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.rmb import types_pb2 as pb
from proto.rmb.address import SessionKey, from_message, to_message
from proto.rmb.bounds import DEFAULT_BOUNDS, MAX_RELAYS, Bounds
from proto.rmb.fields import COUNTED_BYTES
from proto.rmb.inbound import Examined, examiner
from proto.rmb.reasons import MessageReason
from tests.interop.recorded import recorded
from tests.proto.rmb.strategies import connections, envelopes, keys

ORIGIN = (7, "cli")


def examine(origin: SessionKey, raw: bytes, bounds: Bounds = DEFAULT_BOUNDS) -> Examined:
    return examiner(origin, bounds)(raw)


def _request(
    source: SessionKey | None = ORIGIN, destination: SessionKey | None = (8, None)
) -> pb.Envelope:
    envelope = pb.Envelope(uid="u")
    if source is not None:
        envelope.source.CopyFrom(to_message(source))
    if destination is not None:
        envelope.destination.CopyFrom(to_message(destination))
    envelope.request.command = "c"
    return envelope


@given(keys.filter(lambda key: key[0]), keys.filter(lambda key: key[0]))
def test_a_good_message_goes_to_exactly_its_session(
    origin: SessionKey, destination: SessionKey
) -> None:
    envelope = _request(origin, destination)
    assert examine(origin, envelope.SerializeToString()) == (envelope, destination, None, None)


@given(st.integers(1, 3), connections, st.integers(0, 3), connections)
def test_the_source_must_be_the_session(
    twin: int, connection: str | None, other_twin: int, other_connection: str | None
) -> None:
    raw = _request((other_twin, other_connection)).SerializeToString()
    _, destination, reason, _ = examine((twin, connection), raw)
    if (twin, connection) == (other_twin, other_connection):
        assert (destination, reason) == ((8, None), None)
    else:
        assert (destination, reason) == (None, MessageReason.WRONG_SOURCE)


@pytest.mark.parametrize(
    ("origin", "source"),
    [
        ((7, None), (7, "")),
        ((7, ""), (7, None)),
        ((7, "cli"), (7, None)),
        ((7, None), None),
        ((7, "cli"), (7, "CLI")),
    ],
)
def test_presence_of_the_connection_counts(origin: SessionKey, source: SessionKey | None) -> None:
    envelope, destination, reason, detail = examine(origin, _request(source).SerializeToString())
    assert envelope == _request(source), "the sender of a request is to be told"
    assert (destination, reason, detail) == (None, MessageReason.WRONG_SOURCE, None)


@pytest.mark.parametrize("destination", [None, (0, None), (0, "cli")])
def test_missing_destination(destination: SessionKey | None) -> None:
    raw = _request(destination=destination).SerializeToString()
    assert examine(ORIGIN, raw)[1:] == (None, MessageReason.MISSING_DESTINATION, None)


@pytest.mark.parametrize("destination", [None, (0, None), (8, "x")])
def test_a_ping_needs_no_destination(destination: SessionKey | None) -> None:
    ping = _request(destination=destination)
    ping.ping.SetInParent()
    assert examine(ORIGIN, ping.SerializeToString()) == (ping, None, None, None)


def test_a_ping_needs_the_right_source() -> None:
    ping = _request((7, None))
    ping.ping.SetInParent()
    assert examine(ORIGIN, ping.SerializeToString())[2] is MessageReason.WRONG_SOURCE


def test_an_empty_message() -> None:
    assert examine(ORIGIN, b"") == (None, None, MessageReason.EMPTY, None)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00",
        b"x",
        b"\x0a\x05abc",  # uid cut short
        b"\x0a\x01\xff",  # uid is not UTF-8
        b"\x2a\x02\x12\xff",  # an invalid address
        b"\x07",  # wire type 7
        b"\x23" * 1000,  # groups nested without end
    ],
)
def test_unparsable(raw: bytes) -> None:
    assert examine(ORIGIN, raw) == (None, None, MessageReason.UNPARSABLE, None)


def test_unknown_fields_are_no_concern() -> None:
    raw = _request().SerializeToString() + b"\xfa\x3f\x03abc"
    envelope, destination, reason, _ = examine(ORIGIN, raw)
    assert (destination, reason) == ((8, None), None)
    assert envelope is not None
    assert envelope.SerializeToString().endswith(b"\xfa\x3f\x03abc")


@pytest.mark.parametrize(
    ("field", "at_bound", "detail"),
    [
        ("tags", "t" * 1024, "tags has 1025 bytes, at most 1024 are allowed"),
        ("tags", "é" * 512, "tags has 1025 bytes, at most 1024 are allowed"),
        ("connection", "c" * 128, "destination.connection has 129 bytes, at most 128 are allowed"),
        ("connection", "é" * 64, "destination.connection has 129 bytes, at most 128 are allowed"),
        ("relays", "r" * 4096, "relays has 4097 bytes, at most 4096 are allowed"),
    ],
)
def test_fields_are_bounded(field: str, at_bound: str, detail: str) -> None:
    def with_text(text: str) -> pb.Envelope:
        envelope = _request()
        if field == "connection":
            envelope.destination.connection = text
        elif field == "relays":
            envelope.relays.extend([text[:100], text[100:]])
        else:
            setattr(envelope, field, text)
        return envelope

    good = with_text(at_bound)
    _, destination, reason, _ = examine(ORIGIN, good.SerializeToString())
    assert reason is None
    assert destination == from_message(good.destination)
    bad = with_text(at_bound + "x")
    verdict = examine(ORIGIN, bad.SerializeToString())
    assert verdict == (bad, None, MessageReason.TOO_LARGE, detail)


@pytest.mark.parametrize("size_bytes", [0, 100, 1000, 5000])
def test_relays_are_bounded_in_number(size_bytes: int) -> None:
    envelope = _request()
    envelope.relays.extend([""] * MAX_RELAYS)
    envelope.plain = bytes(size_bytes)
    assert examine(ORIGIN, envelope.SerializeToString())[2] is None
    envelope.relays.append("")
    _, _, reason, detail = examine(ORIGIN, envelope.SerializeToString())
    assert reason is MessageReason.TOO_LARGE
    assert detail == "relays has 65 entries, at most 64 are allowed"


@pytest.mark.parametrize("field", [b"\x8a\x01\x00", b"\x2a\x00", b"\xa0\x06\x00"])
def test_millions_of_fields_are_not_looked_at(field: bytes) -> None:
    request = _request()
    request.plain = bytes(COUNTED_BYTES)
    raw = request.SerializeToString() + field * (COUNTED_BYTES // len(field))
    envelope, destination, reason, detail = examine(ORIGIN, raw)
    assert (destination, reason) == (None, MessageReason.TOO_LARGE)
    assert detail == "envelope has more than 128 fields"
    # The fields that an answer needs are present, and the payload is not.
    assert envelope is not None
    assert (envelope.uid, envelope.HasField("request"), envelope.plain) == ("u", True, b"")
    assert len(envelope.relays) < 128


def test_too_many_fields_of_an_envelope_that_cannot_be_answered() -> None:
    raw = b"\x0a\x01\xff" + b"\x2a\x00" * COUNTED_BYTES  # the uid is not UTF-8
    assert examine(ORIGIN, raw)[:3] == (None, None, MessageReason.TOO_LARGE)


@pytest.mark.parametrize(("size_bytes", "repeated"), [(257, True), (4096, True), (4097, False)])
def test_a_uid_above_its_bound(size_bytes: int, repeated: bool) -> None:
    sent = _request()
    sent.uid = "u" * 256
    assert examine(ORIGIN, sent.SerializeToString())[2] is None
    sent.uid = "u" * size_bytes
    envelope, destination, reason, detail = examine(ORIGIN, sent.SerializeToString())
    assert (destination, reason) == (None, MessageReason.TOO_LARGE)
    assert detail == f"uid has {size_bytes} bytes, at most 256 are allowed"
    assert envelope is not None and envelope.HasField("request")
    assert envelope.uid == (sent.uid if repeated else "")


def test_an_operator_may_move_the_bounds() -> None:
    bounds = Bounds(uid_bytes=1000, tags_bytes=3, connection_bytes=2, relays_bytes=5)
    assert bounds.unchecked_bytes == 3
    envelope = _request()
    envelope.uid = "u" * 1000
    assert examine(ORIGIN, envelope.SerializeToString(), bounds)[2] is None
    for change in (pb.Envelope(tags="long"), pb.Envelope(relays=["abc", "def"])):
        bad = _request()
        bad.MergeFrom(change)
        assert examine(ORIGIN, bad.SerializeToString(), bounds)[2] is MessageReason.TOO_LARGE
    bad = _request(destination=(8, "abc"))
    assert examine(ORIGIN, bad.SerializeToString(), bounds)[2] is MessageReason.TOO_LARGE


def test_everything_recorded_from_clients_may_pass() -> None:
    for entry in recorded("envelopes"):
        if entry["made_by"] == "rmb-relay":
            continue
        fields = entry["fields"]
        origin = (fields["source"]["twin"], fields["source"].get("connection"))
        _, destination, reason, _ = examine(origin, bytes.fromhex(entry["hex"]))
        assert reason is None
        if fields["kind"] == "ping":
            assert destination is None
        else:
            to = fields["destination"]
            assert destination == (to["twin"], to.get("connection"))


@given(keys, st.binary(max_size=60) | envelopes().map(pb.Envelope.SerializeToString))
def test_any_bytes_have_one_verdict(origin: SessionKey, raw: bytes) -> None:
    envelope, destination, reason, detail = examine(origin, raw)
    assert (destination is None) or (reason is None and envelope is not None)
    assert (detail is None) or (reason is MessageReason.TOO_LARGE)
    if envelope is not None:
        assert envelope == pb.Envelope.FromString(raw)
        if reason is None:
            assert from_message(envelope.source) == origin
            assert envelope.HasField("ping") == (destination is None)
            assert destination in (None, from_message(envelope.destination))
    assert DEFAULT_BOUNDS.unchecked_bytes == 256


@pytest.mark.parametrize("payload", ["plain", "cipher"])
def test_fields_of_a_message_with_a_large_payload_are_bounded_too(payload: str) -> None:
    envelope = _request()
    setattr(envelope, payload, bytes(DEFAULT_BOUNDS.tags_bytes))
    envelope.tags = "x" * DEFAULT_BOUNDS.tags_bytes
    assert examine(ORIGIN, envelope.SerializeToString())[2] is None
    envelope.tags += "x"
    assert examine(ORIGIN, envelope.SerializeToString())[2] is MessageReason.TOO_LARGE


def test_fields_of_a_newer_protocol_in_the_source_are_not_judged() -> None:
    envelope = _request()
    newer = envelope.source.SerializeToString() + b"\x7a\x01x"  # field 15
    envelope.source.ParseFromString(newer)
    assert examine(ORIGIN, envelope.SerializeToString())[1:] == ((8, None), None, None)
