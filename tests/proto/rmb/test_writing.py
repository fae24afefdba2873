"""Envelopes encoded by hand equal those of the generated classes, and have the same signature."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proto.rmb import challenge, writing
from proto.rmb import types_pb2 as pb
from proto.rmb.address import to_message

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=300)
keys = st.tuples(st.integers(0, 2**32 - 1), st.none() | texts)
numbers = st.integers(0, 2**63)
kinds = st.one_of(
    st.tuples(st.just("request"), texts),
    st.just(("response",)),
    st.tuples(st.just("error"), st.integers(0, 2**32 - 1), texts),
)
bodies = st.none() | st.builds(writing.Body, st.binary(max_size=70_000), st.booleans())


@given(texts, keys, keys, kinds, numbers, numbers, bodies, st.none() | texts, st.none() | texts)
def test_every_envelope_is_written_as_protobuf_writes_it(
    uid: str,
    sender: tuple[int, str | None],
    receiver: tuple[int, str | None],
    kind: tuple[str, *tuple[object, ...]],
    timestamp: int,
    expiration_s: int,
    body: writing.Body | None,
    tags: str | None,
    schema: str | None,
) -> None:
    expected = pb.Envelope(
        uid=uid, timestamp=timestamp, expiration=expiration_s, tags=tags, schema=schema
    )
    expected.source.CopyFrom(to_message(sender))
    expected.destination.CopyFrom(to_message(receiver))
    match kind:
        case ("request", str(command)):
            expected.request.command = command
            written = writing.request(command)
        case ("error", int(code), str(message)):
            expected.error.code, expected.error.message = code, message
            written = writing.error(code, message)
        case _:
            expected.response.SetInParent()
            written = writing.RESPONSE
    if body is not None:
        setattr(expected, "cipher" if body.sealed else "plain", body.data)

    challenges = []

    def sign(message: bytes) -> bytes:
        challenges.append(message)
        return bytes(65)

    data = writing.signed(
        sign,
        uid,
        writing.source(sender),
        receiver,
        written,
        timestamp,
        expiration_s,
        body,
        tags,
        schema,
    )

    assert challenges == [challenge.challenge(expected)]
    expected.signature = bytes(65)
    assert pb.Envelope.FromString(data) == expected
