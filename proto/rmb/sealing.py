"""Creation of the envelopes that a twin sends, and decryption of the payloads that it receives."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, Protocol

from proto.identity.agreement import EncryptionKey
from proto.identity.errors import AgreementError
from proto.identity.signing import SigningKey
from proto.rmb import challenge, writing
from proto.rmb import types_pb2 as pb
from proto.rmb.address import SessionKey, to_message
from proto.rmb.bounds import MAX_SHARED_SECRETS, NONCE_BYTES, PING_EXPIRATION_S, UID_BYTES
from proto.rmb.e2e import Box
from proto.rmb.errors import CipherError, NoPublicKeyError


def new_uid(random: Callable[[int], bytes]) -> str:
    """Return a UUID of version 4 (RFC 9562, section 5.4), as every known client uses."""
    text = random(UID_BYTES).hex()
    variant = "89ab"[int(text[16], 16) & 3]
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"


class PublicKeys(Protocol):
    """Public keys of another twin that a peer needs."""

    @property
    def account(self) -> bytes:
        """Public signing key."""

    @property
    def pk(self) -> bytes | None:
        """Public encryption key; None if payloads to and from the twin are plain."""


class PeerTwin(NamedTuple):
    """Plain implementation of `PublicKeys`."""

    account: bytes
    pk: bytes | None = None


class Sealer:
    """Signing and encryption for one session of a twin.

    Args:
        own: session that envelopes come from.
        key: signing key of the twin.
        encryption: encryption key of the twin; None if it does not encrypt and cannot decrypt.
        random: function that returns a number of random bytes.
    """

    def __init__(
        self,
        own: SessionKey,
        key: SigningKey,
        encryption: EncryptionKey | None,
        random: Callable[[int], bytes],
    ) -> None:
        self._own = own
        self._key = key
        self._random = random
        # Key agreement costs a point multiplication, and a twin mostly talks to the same few
        # others.
        self._box: Callable[[bytes], Box] | None = None
        if encryption is not None:
            shared_secret = encryption.shared_secret
            self._box = lru_cache(MAX_SHARED_SECRETS)(lambda pk: Box(shared_secret(pk)))
        self._source = writing.source(own)

    def new(self, uid: str, destination: SessionKey, schema: str | None = None) -> pb.Envelope:
        """Return an envelope with its addresses, still to be completed and sealed."""
        envelope = pb.Envelope(uid=uid, schema=schema)
        envelope.source.CopyFrom(to_message(self._own))
        envelope.destination.CopyFrom(to_message(destination))
        return envelope

    def seal(
        self,
        envelope: pb.Envelope,
        payload: bytes | None,
        receiver: PublicKeys | None,
        now: int,
        expiration_s: int,
    ) -> bytes:
        """Add the payload and times to an envelope, sign it and serialise it.

        Args:
            envelope: envelope that is complete except for payload, times and signature.
            payload: payload, encrypted if the receiver has a public key, and plain otherwise; None
                is encrypted as an empty one, or omitted.
            receiver: receiving twin; None if it is not known.
            now: Unix seconds.
            expiration_s: time to live.

        Raises:
            AgreementError: the receiver's public key is invalid.
        """
        body = self._body(payload, receiver)
        if body is not None and body.sealed:
            envelope.cipher = body.data
        elif body is not None:
            envelope.plain = body.data
        envelope.timestamp = now
        envelope.expiration = expiration_s
        challenge.sign(envelope, self._key)
        return envelope.SerializeToString()

    def request(
        self,
        uid: str,
        destination: SessionKey,
        command: str,
        payload: bytes | None,
        receiver: PublicKeys | None,
        now: int,
        expiration_s: int,
        *,
        tags: str | None = None,
        schema: str | None = None,
    ) -> bytes:
        """Return a request.

        Args:
            uid: uid, which its answers repeat.
            destination: session that the request goes to.
            command: command of the request.
            payload: payload, encrypted if the receiver has a public key, and plain otherwise; None
                is encrypted as an empty one, or omitted.
            receiver: destination twin; None if it is not known.
            now: Unix seconds.
            expiration_s: time to live.
            tags: tags such as `fail-fast`.
            schema: content type of the payload.

        Raises:
            AgreementError: the receiver's public key is invalid.
        """
        kind = writing.request(command)
        return self._message(
            uid, destination, kind, payload, receiver, now, expiration_s, tags, schema
        )

    def response(
        self,
        uid: str,
        destination: SessionKey,
        payload: bytes | None,
        receiver: PublicKeys | None,
        now: int,
        expiration_s: int,
        *,
        schema: str | None = None,
    ) -> bytes:
        """Return a successful answer; arguments as for `request`.

        Raises:
            AgreementError: the receiver's public key is invalid.
        """
        return self._message(
            uid, destination, writing.RESPONSE, payload, receiver, now, expiration_s, None, schema
        )

    def error(
        self,
        uid: str,
        destination: SessionKey,
        code: int,
        message: str,
        receiver: PublicKeys | None,
        now: int,
        expiration_s: int,
    ) -> bytes:
        """Return an error answer; arguments as for `request`.

        Raises:
            AgreementError: the receiver's public key is invalid.
        """
        kind = writing.error(code, message)
        return self._message(uid, destination, kind, None, receiver, now, expiration_s, None, None)

    def ping(self, now: int) -> tuple[str, bytes]:
        """Create a ping, unsigned as in the TypeScript client; return its uid and the message."""
        uid = new_uid(self._random)
        ping = pb.Envelope(uid=uid, timestamp=now, expiration=PING_EXPIRATION_S)
        ping.source.CopyFrom(to_message(self._own))
        ping.destination.SetInParent()  # twin 0
        ping.ping.SetInParent()
        return uid, ping.SerializeToString()

    def unseal(self, envelope: pb.Envelope, sender: PublicKeys) -> bytes:
        """Return the payload, decrypted.

        Raises:
            NoPublicKeyError: it is encrypted, but the sender has no public key.
            CipherError: it cannot be decrypted.
        """
        if not envelope.HasField("cipher"):
            return envelope.plain
        if sender.pk is None:
            raise NoPublicKeyError
        if self._box is None:
            raise CipherError
        try:
            box = self._box(sender.pk)
        except AgreementError:
            raise CipherError from None
        return box.unseal(envelope.cipher)

    def _message(
        self,
        uid: str,
        destination: SessionKey,
        kind: writing.Written,
        payload: bytes | None,
        receiver: PublicKeys | None,
        now: int,
        expiration_s: int,
        tags: str | None,
        schema: str | None,
    ) -> bytes:
        body = self._body(payload, receiver)
        return writing.signed(
            *(self._key.sign, uid, self._source, destination, kind),
            *(now, expiration_s, body, tags, schema),
        )

    def _body(self, payload: bytes | None, receiver: PublicKeys | None) -> writing.Body | None:
        if receiver is not None and receiver.pk is not None and self._box is not None:
            box = self._box(receiver.pk)
            return writing.Body(box.seal(payload or b"", self._random(NONCE_BYTES)), True)
        return writing.Body(payload, False) if payload is not None else None
