"""How a peer reads an envelope step by step, when a look-up may have to wait in between.

    data --parse--> envelope --sender_of--> twin id (or: made by a relay)
    the owner looks the twin up, at once or later
    envelope, twin --open_envelope--> payload, or an EnvelopeError
    a request and its error --rejection--> the answer its sender gets

The order is that of rmb-peer 1.5: expiry, twin, signature, payload. Each step raises the
EnvelopeError with the code the sender is told (100 to 106). `machine.PeerSide` goes through the
same functions.
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
    """Reads one binary message.

    Raises:
        NotEnvelopeError: it is none.
    """
    try:
        return pb.Envelope.FromString(data)
    except DecodeError:
        raise NotEnvelopeError from None


def check_expiry(envelope: pb.Envelope, now: int) -> None:
    """Checks that the deadline is still to come, and that its times can be true.

    Raises:
        ExpiredError: they are not so.
    """
    timestamp, expiration_s = envelope.timestamp, envelope.expiration
    if (
        stamp.ttl(now, timestamp, expiration_s) <= 0
        or timestamp - now > MAX_CLOCK_OFF_S
        or expiration_s > MAX_LIFE_S
    ):
        raise ExpiredError


def is_from_relay(envelope: pb.Envelope) -> bool:
    """Whether a relay made it: an error or a pong without a source, which nobody signs.

    Only a relay sends these, and it has no key to sign with. Peers sign everything else.
    """
    return not envelope.source.twin and envelope.WhichOneof("message") in ("error", "pong")


def open_envelope(
    envelope: pb.Envelope, sender: PublicKeys | None, sealer: Sealer, now: int
) -> bytes:
    """Checks an envelope of another peer; returns its payload, decrypted.

    Args:
        envelope: not made by a relay.
        sender: the twin of its source; None when there is no such twin.
        sealer: of the session it came to.
        now: unix seconds.

    Raises:
        ExpiredError: its deadline is gone, or its times can't be true.
        UnknownTwinError: nobody sent it.
        SignatureError: somebody else did.
        NoPublicKeyError: encrypted, but the sender has no public key.
        CipherError: it does not open.
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
    """Makes the signed answer that says what is wrong with a request.

    Args:
        request: which can't be used.
        error: why.
        asker: the twin of its source; None when there is no such twin: it is told so all the same.
        sealer: of the session the request came to.
        now: unix seconds.

    Returns:
        The message to send; None when nobody is told: it is no request, or has no source.
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
    except AgreementError:  # what the asker published is no key
        return sealer.seal(answer, None, None, now, expiration_s)
