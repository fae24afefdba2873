"""Prebuilt envelopes: serialized once per flow, then only uid and payload head are patched.

The payload starts with the numbers of the measurement, of the flow, and of the message in its
flow, little endian. It is the last field on the wire, so a receiver finds it by counting from the
end of the frame.
"""

from __future__ import annotations

import hashlib
import struct

from proto.identity.signing import SigningKey
from proto.rmb import challenge
from proto.rmb.types_pb2 import Envelope

HEAD = struct.Struct("<IIQ")
"""Head of a payload: measurement, flow, and number of the message in its flow."""
UID_AT = 2
"""Offset of the uid, the first field, after one byte of tag and one of length (36)."""
UID_BYTES = 36
SMALLEST_PAYLOAD_BYTES = 256
"""Minimum size of a payload: a relay's pongs and error envelopes are shorter, and so recognized."""
EXPIRATION_S = 3_600
SIGNATURE = b"s" + bytes(64)
"""A signature of the right length and a wrong value: a relay does not check those of its own twins'
messages, and B carries the same bytes."""
COMMAND = "bench.echo"


class Template:
    """One flow's envelope in a buffer that is patched in place.

    Args:
        measurement: number of the measurement; messages of an earlier one count as faults.
        flow: number of the flow, written into every payload.
        source: sending twin.
        destination: receiving twin.
        payload_size_bytes: size of the payload alone; the envelope is some 150 bytes more.
        now: unix time of the envelope's timestamp.
        key: signs every message, for relays that check messages of others; 25 to 85 us for each.
        signed_ahead: number of messages signed now, so that this costs nothing while measuring.
    """

    def __init__(
        self,
        measurement: int,
        flow: int,
        source: int,
        destination: int,
        payload_size_bytes: int,
        now: int,
        key: SigningKey | None = None,
        signed_ahead: int = 0,
    ) -> None:
        if payload_size_bytes < SMALLEST_PAYLOAD_BYTES:
            raise ValueError(f"payload_size_bytes is below {SMALLEST_PAYLOAD_BYTES}")
        envelope = Envelope(
            uid=f"{0:012x}{flow:024x}",
            timestamp=now,
            expiration=EXPIRATION_S,
            signature=SIGNATURE,
            plain=bytes(payload_size_bytes),
        )
        envelope.source.twin = source
        envelope.destination.twin = destination
        envelope.request.command = COMMAND
        self.buffer = bytearray(envelope.SerializeToString(deterministic=True))
        self._measurement = measurement
        self._flow = flow
        self._payload_at = len(self.buffer) - payload_size_bytes
        self._key = key
        self._signature_at = self.buffer.index(SIGNATURE)
        # The signed fields between the uid and the payload, see `proto.rmb.challenge`.
        self._fixed = b"%d%d%d%d%b" % (now, EXPIRATION_S, source, destination, COMMAND.encode())
        self._signatures: list[bytes] = []  # by number of the message
        if key is not None:
            self._signatures = [self._signature(self._unsigned(n)) for n in range(signed_ahead)]
        self._check()

    def _check(self) -> None:
        patched = Envelope.FromString(bytes(self.patch(1)))
        head = HEAD.pack(self._measurement, self._flow, 1)
        if patched.uid[:12] != f"{1:012x}" or patched.plain[: HEAD.size] != head:
            raise RuntimeError("an envelope is not serialized in the order the template relies on")
        if self._key is not None:
            challenge.verify(patched, self._key.account)

    def patch(self, sequence: int) -> bytearray:
        """Turn the buffer into the message with this number, and return it."""
        buffer = self._unsigned(sequence)
        if self._key is not None:
            ahead = self._signatures
            signature = ahead[sequence] if sequence < len(ahead) else self._signature(buffer)
            at = self._signature_at
            buffer[at : at + len(SIGNATURE)] = signature
        return buffer

    def _unsigned(self, sequence: int) -> bytearray:
        buffer = self.buffer
        buffer[UID_AT : UID_AT + 12] = b"%012x" % sequence
        HEAD.pack_into(buffer, self._payload_at, self._measurement, self._flow, sequence)
        return buffer

    def _signature(self, buffer: bytearray) -> bytes:
        assert self._key is not None
        digest = hashlib.md5(buffer[UID_AT : UID_AT + UID_BYTES], usedforsecurity=False)
        digest.update(self._fixed)
        digest.update(buffer[self._payload_at :])
        return self._key.sign(digest.digest())


def ping(source: int, uid: str, now: int) -> bytes:
    """Return a ping; its pong means that all messages sent before are decided and stored."""
    envelope = Envelope(uid=uid, timestamp=now, expiration=EXPIRATION_S)
    envelope.source.twin = source
    envelope.destination.twin = source
    envelope.ping.SetInParent()
    return envelope.SerializeToString()
