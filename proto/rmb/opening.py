"""Steps by which a peer reads an envelope, for owners whose look-ups may have to wait in between.

    data --parse--> envelope with the id of its source twin (or made by a relay: is_from_relay)
    the owner looks the twin up, at once or later
    envelope, twin --open_envelope--> payload, or an EnvelopeError
    a request and its error --rejection--> the answer to its sender

The order is that of rmb-peer 1.5: expiry, twin, signature, payload. Each step raises the
EnvelopeError with the code for the sender (100 to 106). `machine.PeerSide` calls the same
functions.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

from proto.identity.errors import AgreementError
from proto.rmb import challenge, stamp
from proto.rmb import types_pb2 as pb
from proto.rmb.address import from_message
from proto.rmb.bounds import MAX_CLOCK_OFF_S, MAX_LIFE_S
from proto.rmb.errors import EnvelopeError, ExpiredError, NotEnvelopeError, UnknownTwinError
from proto.rmb.sealing import PublicKeys, Sealer


def parse(data: bytes) -> pb.Envelope:
    """Parse one binary message.

    Raises:
        NotEnvelopeError: it is not an envelope.
    """
    try:
        return pb.Envelope.FromString(data)
    except DecodeError:
        raise NotEnvelopeError from None


def check_expiry(envelope: pb.Envelope, now: int) -> None:
    """Check that the deadline has not passed, and that the times are plausible.

    Raises:
        ExpiredError: the deadline has passed, or the times are not plausible.
    """
    timestamp, expiration_s = envelope.timestamp, envelope.expiration
    if (
        stamp.ttl(now, timestamp, expiration_s) <= 0
        or timestamp - now > MAX_CLOCK_OFF_S
        or expiration_s > MAX_LIFE_S
    ):
        raise ExpiredError


def is_from_relay(envelope: pb.Envelope) -> bool:
    """Return whether a relay made the envelope: an error or a pong without a source, which is
    unsigned.

    Only a relay sends these, and it has no key to sign with. Peers sign everything else.
    """
    return not envelope.source.twin and envelope.WhichOneof("message") in ("error", "pong")


def open_envelope(
    envelope: pb.Envelope, sender: PublicKeys | None, sealer: Sealer, now: int
) -> bytes:
    """Check an envelope of another peer; return its decrypted payload.

    Args:
        envelope: an envelope not made by a relay.
        sender: source twin; None if there is no such twin.
        sealer: sealer of the receiving session.
        now: Unix seconds.

    Raises:
        ExpiredError: its deadline has passed, or its times are not plausible.
        UnknownTwinError: the source twin does not exist.
        SignatureError: the source twin did not sign it.
        NoPublicKeyError: it is encrypted, but the sender has no public key.
        CipherError: it cannot be decrypted.
    """
    check_expiry(envelope, now)
    if sender is None:
        raise UnknownTwinError(envelope.source.twin)
    challenge.verify(envelope, sender.account)
    return sealer.unseal(envelope, sender)


def rejection(
    request: pb.Envelope,
    error: EnvelopeError,
    asker: PublicKeys | None,
    sealer: Sealer,
    now: int,
) -> bytes | None:
    """Return the signed answer that reports what is wrong with a request.

    Args:
        request: request that cannot be used.
        error: reason.
        asker: source twin; None if there is no such twin, which is answered all the same.
        sealer: sealer of the session that received the request.
        now: Unix seconds.

    Returns:
        The message to send; None if there is no answer, because it is not a request or has no
        source.
    """
    source = from_message(request.source)
    if source.twin == 0 or not request.HasField("request"):
        return None
    answer = sealer.new(request.uid, source)
    answer.error.code = error.code
    answer.error.message = str(error)
    expiration_s = stamp.request_expiration(request.expiration)
    try:
        return sealer.seal(answer, None, asker, now, expiration_s)
    except AgreementError:  # what the asker published is not a key
        return sealer.seal(answer, None, None, now, expiration_s)
