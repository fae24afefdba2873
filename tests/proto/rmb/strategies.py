"""Hypothesis strategies for envelopes with any fields set, including fields present but empty."""

from __future__ import annotations

from hypothesis import strategies as st

from proto.rmb import types_pb2 as pb

uint32 = st.integers(0, 2**32 - 1)
uint64 = st.integers(0, 2**64 - 1)
text = st.text(max_size=20)  # hypothesis makes no lone surrogates unless asked to
connections = st.none() | text
keys = st.tuples(uint32, connections)


@st.composite
def addresses(draw: st.DrawFn) -> pb.Address:
    """Draw any address."""
    twin, connection = draw(keys)
    return pb.Address(twin=twin, connection=connection)


@st.composite
def envelopes(draw: st.DrawFn) -> pb.Envelope:
    """Draw any envelope."""
    envelope = pb.Envelope(
        uid=draw(text),
        tags=draw(connections),
        timestamp=draw(uint64),
        expiration=draw(uint64),
        source=draw(st.none() | addresses()),
        destination=draw(st.none() | addresses()),
        signature=draw(st.none() | st.binary(max_size=70)),
        schema=draw(connections),
        federation=draw(connections),
        relays=draw(st.lists(text, max_size=3)),
    )
    match draw(st.sampled_from([None, "request", "response", "error", "ping", "pong"])):
        case "request":
            envelope.request.command = draw(text)
            envelope.request.SetInParent()
        case "error":
            envelope.error.code = draw(uint32)
            envelope.error.message = draw(text)
            envelope.error.SetInParent()
        case None:
            pass
        case kind:
            getattr(envelope, kind).SetInParent()
    match draw(st.sampled_from([None, "plain", "cipher"])):
        case None:
            pass
        case payload:
            setattr(envelope, payload, draw(st.binary(max_size=40)))
    return envelope
