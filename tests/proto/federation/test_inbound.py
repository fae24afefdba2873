"""Tests of the verdict on envelopes from partner relays, for arbitrary bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.federation.inbound import examine, is_too_old
from proto.rmb import notices
from proto.rmb import types_pb2 as pb
from proto.rmb.address import from_message
from proto.rmb.bounds import MAX_RELAYS, Bounds
from proto.rmb.fields import COUNTED_BYTES
from proto.rmb.reasons import MessageReason
from tests.proto.rmb import strategies

NOW_S = 1_800_000_000
DAY_S = 86_400
RETENTION_S = 3_600


def envelope(**fields: object) -> pb.Envelope:
    made = pb.Envelope(uid="u", **fields)  # type: ignore[arg-type]
    made.source.twin = 7
    made.destination.twin = 8
    made.request.command = "c"
    return made


@given(st.binary(max_size=300))
def test_any_bytes_have_one_verdict(raw: bytes) -> None:
    made, destination, source, reason = examine(raw)
    assert (destination is None) == (reason is not None)
    assert made is not None or reason in (MessageReason.EMPTY, MessageReason.UNPARSABLE)
    assert destination is None or destination[0] > 0
    assert source or reason is not None or made.HasField("error")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("life_s", "age_s", "too_old"),
    [
        (300, DAY_S + 299, False),
        (300, DAY_S + 301, True),
        (0, DAY_S + RETENTION_S - 1, False),
        (0, DAY_S + RETENTION_S + 1, True),
        (2 * DAY_S, 3 * DAY_S - 1, False),
        # The two times are signed as one string of digits, so 1712345678 and 60 can be read as
        # 1 and 71234567860, too.
        (71_234_567_860, NOW_S - 1, True),
        (300, -2 * DAY_S, False),
    ],
)
def test_age(life_s: int, age_s: int, too_old: bool) -> None:
    sent = envelope(timestamp=NOW_S - age_s, expiration=life_s)
    assert is_too_old(sent.timestamp, sent.expiration, NOW_S, RETENTION_S) is too_old


@given(strategies.envelopes())
def test_any_envelope_is_for_its_destination(sent: pb.Envelope) -> None:
    made, destination, source, reason = examine(sent.SerializeToString() or b"\x0a\x00")
    assert source == sent.source.twin
    if reason is None:
        assert made == sent
        assert destination == from_message(sent.destination)
        assert source or (sent.HasField("error") and not (sent.plain or sent.cipher))
    elif reason is MessageReason.MISSING_DESTINATION:
        assert not sent.destination.twin
    else:
        assert not source
        if reason is MessageReason.BAD_SIGNATURE:
            assert not sent.HasField("error") or sent.plain or sent.cipher
        else:
            assert reason is MessageReason.TOO_LARGE


def test_empty_and_absent_connections_are_different_sessions() -> None:
    sent = envelope()
    assert examine(sent.SerializeToString())[1] == (8, None)
    sent.destination.connection = ""
    assert examine(sent.SerializeToString())[1] == (8, "")


def test_only_errors_may_be_without_a_source() -> None:
    sent = envelope()
    sent.ClearField("source")
    assert examine(sent.SerializeToString())[3] is MessageReason.BAD_SIGNATURE
    sent.error.message = "destination offline"
    assert examine(sent.SerializeToString())[1:] == ((8, None), 0, None)


def test_an_error_without_a_source_is_no_larger_than_relays_make_them() -> None:
    bounds = Bounds()
    asked = envelope(plain=b"x")
    asked.uid = "u" * bounds.uid_bytes
    asked.source.connection = "s" * bounds.connection_bytes
    for text in notices.TEXTS.values():
        raw = notices.error_notice(asked, text, 1_800_000_000)
        assert examine(raw)[1:] == ((7, asked.source.connection), 0, None)
    made = pb.Envelope.FromString(raw)
    made.error.message += "!" * bounds.notice_bytes
    assert examine(made.SerializeToString())[3] is MessageReason.TOO_LARGE
    made.source.twin = 7
    assert examine(made.SerializeToString())[3] is None, "a twin signs for its own"


@pytest.mark.parametrize("field", ["plain", "cipher"])
def test_an_error_without_a_source_carries_no_payload(field: str) -> None:
    made = pb.Envelope.FromString(notices.error_notice(envelope(), notices.EXPIRED, 1))
    setattr(made, field, b"")
    assert examine(made.SerializeToString())[3] is None
    setattr(made, field, b"nobody signed this")
    assert examine(made.SerializeToString())[3] is MessageReason.BAD_SIGNATURE


@pytest.mark.parametrize("field", ["uid", "tags", "relays", "source", "destination"])
@pytest.mark.parametrize("character", ["x", "é", "\U0001f600"])
def test_fields_are_bounded_in_bytes(field: str, character: str) -> None:
    size = len(character.encode())
    bounds = Bounds(uid_bytes=40, tags_bytes=40, relays_bytes=40, connection_bytes=40)
    for count, fits in ((40 // size, True), (40 // size + 1, False)):
        sent = envelope(plain=bytes(100))
        if field in ("source", "destination"):
            getattr(sent, field).connection = character * count
        elif field == "relays":
            sent.relays.extend(["", character * count])
        else:
            setattr(sent, field, character * count)
        reason = examine(sent.SerializeToString(), bounds)[3]
        assert reason is (None if fits else MessageReason.TOO_LARGE)


@pytest.mark.parametrize("size_bytes", [0, 100, 1000, 5000])
def test_relays_are_bounded_in_number(size_bytes: int) -> None:
    sent = envelope(plain=bytes(size_bytes))
    sent.relays.extend([""] * MAX_RELAYS)
    assert examine(sent.SerializeToString())[3] is None
    sent.relays.append("")
    assert examine(sent.SerializeToString())[3] is MessageReason.TOO_LARGE


@pytest.mark.parametrize("field", [b"\x8a\x01\x00", b"\x62\x00", b"\xa0\x06\x00"])
def test_millions_of_fields_are_not_looked_at(field: bytes) -> None:
    raw = envelope().SerializeToString() + field * (COUNTED_BYTES // len(field))
    assert examine(raw) == (None, None, 0, MessageReason.TOO_LARGE)
