"""What programs and services write, sealed for its receivers."""

from __future__ import annotations

import time
from typing import Final

from peer.gateway.bodies import Failure, OutgoingRequest, OutgoingResponse
from peer.gateway.bounds import PORTION_BYTES
from peer.twins import Twin
from proto.identity.errors import AgreementError
from proto.rmb.address import SessionKey
from proto.rmb.bounds import MAX_MESSAGE_BYTES
from proto.rmb.errors import CODE_OTHER, UnknownTwinError
from proto.rmb.sealing import Sealer

ENVELOPE_BYTES: Final = 512
"""Of a message beside its payload, about."""


class Seals:
    """Makes messages of entries.

    Args:
        sealer: signs and encrypts for the gateway.
    """

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer

    def request(
        self,
        uid: str,
        request: OutgoingRequest,
        twin_id: int,
        twin: Twin | None,
        now: int,
        expiration_s: int,
    ) -> bytes | Failure:
        """One for one of its receivers; None: there is no such twin."""
        if twin is None:
            unknown = UnknownTwinError(twin_id)
            return Failure(unknown.code, str(unknown))
        try:
            data = self._sealer.request(
                uid,
                (twin_id, None),
                request.command,
                request.payload,
                twin,
                now,
                expiration_s,
                tags=request.tags,
                schema=request.schema,
            )
        except AgreementError:
            return Failure(CODE_OTHER, f"twin {twin_id} has a public key that is none")
        return _checked(data)

    def response(self, response: OutgoingResponse, twin: Twin, expiration_s: int) -> bytes:
        """A service's answer, or an error that takes its place.

        Raises:
            AgreementError: the twin has a public key that is none.
        """
        now, failure = int(time.time()), response.failure
        uid, destination = response.uid, response.destination
        if failure is None:
            data = self._sealer.response(
                uid,
                destination,
                response.payload,
                twin,
                now,
                expiration_s,
                schema=response.schema,
            )
            found = _checked(data)
            if isinstance(found, bytes):
                return found
            failure = found
        return self.error(uid, destination, failure, twin, now, expiration_s)

    def error(
        self,
        uid: str,
        destination: SessionKey,
        failure: Failure,
        twin: Twin,
        now: int,
        expiration_s: int,
    ) -> bytes:
        """An error for the one that asked."""
        return self._sealer.error(uid, destination, *failure, twin, now, expiration_s)


def _checked(data: bytes) -> bytes | Failure:
    """A message, if a relay takes one of its size."""
    if len(data) <= MAX_MESSAGE_BYTES:
        return data
    too_large = f"message has {len(data)} bytes, at most {MAX_MESSAGE_BYTES} can be sent"
    return Failure(CODE_OTHER, too_large)


def portion_of(request: OutgoingRequest) -> int:
    """How many receivers of a request are written to in one step."""
    return max(PORTION_BYTES // (len(request.payload) + ENVELOPE_BYTES), 1)
