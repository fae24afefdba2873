"""Tests of reading envelopes without the parser: the result agrees with the parser, or is None."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from proto.federation.inbound import examine
from proto.rmb import types_pb2 as pb
from proto.rmb.address import SessionKey, from_message
from proto.rmb.bounds import DEFAULT_BOUNDS, Bounds
from proto.rmb.challenge import challenge
from proto.rmb.inbound import examiner
from proto.rmb.outline import destination_of, outline
from tests.proto.rmb import strategies

SIGNATURE = b"s" + bytes(range(64))


def envelope(**fields: object) -> pb.Envelope:
    times = {"timestamp": 1_700_000_000, "expiration": 300}
    made = pb.Envelope(**({"uid": "u-1"} | times | fields))  # type: ignore[arg-type]
    made.source.twin = 7
    made.destination.twin = 2**32 - 1
    return made


def routed(raw: bytes, bounds: Bounds = DEFAULT_BOUNDS) -> SessionKey | None:
    """Return the destination found without the parser, if any, and check that the parser agrees."""
    try:
        source = pb.Envelope.FromString(raw).source
    except DecodeError:
        source = pb.Address(twin=7)
    key = destination_of(raw, source.SerializeToString(), bounds)
    if key is not None:
        envelope, *verdict = examiner(from_message(source), bounds)(raw)
        assert verdict == [key, None, None]
        assert envelope is not None
        assert not envelope.HasField("tags")
    return key


def assert_same(raw: bytes, bounds: Bounds = DEFAULT_BOUNDS) -> bool:
    """Return whether the bytes have an outline, and check that it agrees with the parser."""
    routed(raw, bounds)
    found = outline(raw, bounds)
    if found is None:
        return False
    parsed = pb.Envelope.FromString(raw)
    assert found.source == from_message(parsed.source)
    assert found.destination == from_message(parsed.destination)
    assert (found.timestamp, found.expiration) == (parsed.timestamp, parsed.expiration)
    assert (found.tags.decode(), found.signature) == (parsed.tags, parsed.signature)
    assert found.challenge() == challenge(parsed)
    _, destination, source, reason = examine(raw, bounds)
    assert (destination, source, reason) == (found.destination, found.source[0], None)
    return True


@given(strategies.envelopes())
def test_envelopes_are_read_as_the_parser_reads_them(made: pb.Envelope) -> None:
    assert_same(made.SerializeToString())


@given(st.binary(max_size=300))
def test_any_bytes_are_read_as_the_parser_reads_them(raw: bytes) -> None:
    assert_same(raw)


@given(strategies.envelopes(), st.data())
def test_changed_bytes_are_read_as_the_parser_reads_them(
    made: pb.Envelope, data: st.DataObject
) -> None:
    raw = bytearray(made.SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw)))
        end = data.draw(st.integers(at, min(len(raw), at + 3)))
        raw[at:end] = data.draw(st.binary(max_size=3))
    assert_same(bytes(raw))


@given(st.lists(st.sampled_from(range(17)), max_size=20), st.data())
def test_fields_in_any_order_are_read_as_the_parser_reads_them(
    numbers: list[int], data: st.DataObject
) -> None:
    full = [
        *(b"\x0a\x01u", b"\x12\x01t", b"\x18\xac\x02", b"\x20\x05", b"\x2a\x02\x08\x07"),
        *(b"\x32\x05\x08\x08\x12\x01c", b"\x3a\x03\x0a\x01x", b"\x42\x00", b"\x4a\x02sg"),
        *(b"\x52\x01s", b"\x5a\x01f", b"\x62\x02\x08\x01", b"\x6a\x01p", b"\x72\x01c"),
        *(b"\x7a\x00", b"\x82\x01\x00", b"\x8a\x01\x01r"),
    ]
    chosen = sorted(numbers) if data.draw(st.booleans()) else numbers
    assert_same(b"".join(full[number] for number in chosen))


def with_connections() -> pb.Envelope:
    made = envelope(plain=b"x", tags="a,b", schema="s", federation="f", signature=SIGNATURE)
    made.source.connection, made.destination.connection = "", "there"
    made.request.command = "c" * 127
    return made


@pytest.mark.parametrize(
    "made",
    [
        envelope(),
        envelope(request=pb.Request(command="bench.echo"), plain=b"x" * 100_000),
        envelope(request=pb.Request(), cipher=b"\xff\x00" * 500, signature=SIGNATURE),
        envelope(response=pb.Response(), plain=b"\xff"),
        envelope(ping=pb.Ping()),
        with_connections(),
    ],
)
def test_usual_envelopes_have_an_outline(made: pb.Envelope) -> None:
    raw = made.SerializeToString()
    assert assert_same(raw)
    plain = not (made.HasField("tags") or made.HasField("ping"))
    assert routed(raw) == (from_message(made.destination) if plain else None)


def test_the_source_of_what_is_routed_is_compared() -> None:
    raw = envelope().SerializeToString()
    assert destination_of(raw, b"\x08\x07", DEFAULT_BOUNDS) == (2**32 - 1, None)
    assert destination_of(raw, b"\x08\x08", DEFAULT_BOUNDS) is None
    assert destination_of(raw, b"\x08\x07\x12\x00", DEFAULT_BOUNDS) is None


def without(field: str) -> pb.Envelope:
    made = envelope()
    made.ClearField(field)  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize(
    "made",
    [
        without("source"),
        without("destination"),
        envelope(error=pb.Error(code=1)),
        envelope(pong=pb.Pong()),
        envelope(relays=["a.example"]),
        envelope(tags="ä"),
        envelope(request=pb.Request(command="ä")),
        envelope(request=pb.Request(command="c" * 128)),
        envelope(uid="u" * 257),
        envelope(tags="t" * 1025),
    ],
)
def test_others_are_left_to_the_parser(made: pb.Envelope) -> None:
    assert not assert_same(made.SerializeToString())


def test_long_connections_are_left_to_the_parser() -> None:
    made = with_connections()
    made.destination.connection = "c" * 33
    assert assert_same(made.SerializeToString())
    assert not assert_same(made.SerializeToString(), Bounds(connection_bytes=32))


def test_a_field_that_comes_twice_is_left_to_the_parser() -> None:
    raw = envelope().SerializeToString()
    assert assert_same(raw)
    assert not assert_same(raw + b"\x0a\x01v")
    assert not assert_same(raw + envelope().SerializeToString())


def test_two_kinds_or_two_payloads_are_left_to_the_parser() -> None:
    raw = envelope(request=pb.Request(command="c")).SerializeToString()
    assert not assert_same(raw + b"\x42\x00")
    assert not assert_same(raw + b"\x6a\x01x\x72\x00")
    assert assert_same(raw + b"\x6a\x00\x72\x01x")
