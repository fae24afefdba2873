"""Tests of the envelopes that a relay creates."""

from __future__ import annotations

import pytest
from hypothesis import given

from proto.rmb import notices
from proto.rmb import types_pb2 as pb
from proto.rmb.address import SessionKey, from_message
from proto.rmb.reasons import MessageReason
from tests.proto.rmb.strategies import envelopes, keys

NOW = 1_795_218_450


def _request() -> pb.Envelope:
    request = pb.Envelope(uid="u", tags="t", schema="s", plain=b"p", signature=b"x")
    request.source.twin, request.source.connection = 7, "cli"
    request.destination.twin = 8
    request.request.command = "c"
    return request


def test_an_error_notice() -> None:
    notice = pb.Envelope.FromString(notices.error_notice(_request(), "no", NOW, (7, "")))
    expected = pb.Envelope(uid="u", timestamp=NOW, expiration=300)
    expected.destination.twin, expected.destination.connection = 7, ""
    expected.error.message = "no"
    assert notice == expected
    assert not notice.HasField("source")
    assert not notice.HasField("signature")


def test_without_a_session_the_notice_goes_to_the_source() -> None:
    notice = pb.Envelope.FromString(notices.error_notice(_request(), "no", NOW))
    assert from_message(notice.destination) == (7, "cli")


@pytest.mark.parametrize("kind", [None, "response", "error", "ping", "pong"])
def test_only_requests_are_refused_in_words(kind: str | None) -> None:
    envelope = _request()
    envelope.ClearField("request")
    if kind is not None:
        getattr(envelope, kind).SetInParent()
    assert notices.refusal(envelope, MessageReason.WRONG_SOURCE, NOW, (7, None)) is None


@pytest.mark.parametrize("reason", list(MessageReason))
def test_a_refusal_has_the_text_of_its_reason(reason: MessageReason) -> None:
    refusal = notices.refusal(_request(), reason, NOW, (7, None))
    if reason in notices.TEXTS:
        assert refusal is not None
        assert pb.Envelope.FromString(refusal).error.message == notices.TEXTS[reason]
    else:
        assert refusal is None


def test_a_detail_replaces_the_text() -> None:
    refusal = notices.refusal(_request(), MessageReason.TOO_LARGE, NOW, (7, None), "tags ...")
    assert refusal is not None
    assert pb.Envelope.FromString(refusal).error.message == "tags ..."


@given(envelopes(), keys)
def test_notices_for_any_envelope(envelope: pb.Envelope, to: SessionKey) -> None:
    notice = pb.Envelope.FromString(notices.error_notice(envelope, "no", NOW, to))
    assert notice.uid == envelope.uid
    assert from_message(notice.destination) == to


@given(envelopes())
def test_a_pong_is_its_ping_turned_around(ping: pb.Envelope) -> None:
    ping.ping.SetInParent()
    before = pb.Envelope.FromString(ping.SerializeToString())
    pong = pb.Envelope.FromString(notices.pong(ping))
    assert ping == before, "the ping itself is not touched"
    assert pong.HasField("pong")
    assert pong.HasField("source") == ping.HasField("destination")
    assert pong.HasField("destination") == ping.HasField("source")
    assert pong.source == ping.destination
    assert pong.destination == ping.source
    if ping.HasField("cipher"):
        assert pong.plain == b"hello world"
    else:
        assert pong.plain == ping.plain + b"hello world"
    # Nothing else differs: a stale signature and unknown fields are kept too.
    for message in (pong, ping):
        for field in ("source", "destination", "message", "payload"):
            message.ClearField(field)
    assert pong == ping


def test_a_pong_keeps_unknown_fields() -> None:
    ping = pb.Envelope(uid="u")
    ping.ping.SetInParent()
    unknown = b"\xfa\x3f\x03abc"  # field 1023
    parsed = pb.Envelope.FromString(ping.SerializeToString() + unknown)
    assert unknown in notices.pong(parsed)
