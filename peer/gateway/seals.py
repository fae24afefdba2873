"""Sealing of the messages of programs and services for their receivers."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Iterator, Sequence
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
"""Approximate size of a message without its payload, in bytes."""


class Seals:
    """Converts entries to sealed messages.

    Args:
        sealer: signs and encrypts for the gateway.
    """

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer

    def requests(
        self,
        uid: str,
        request: OutgoingRequest,
        receivers: Sequence[tuple[int, Twin | None]],
        others: Sequence[int],
        now: int,
        expiration_s: int,
    ) -> Iterator[tuple[int, bytes | Failure]]:
        """Yield a twin and its sealed message, or the error, for each of some receivers.

        Args:
            uid: uid of the request.
            request: the request.
            receivers: ids of twins, each with the twin; None if it does not exist.
            others: ids of receivers that get the request later.
            now: Unix time in seconds.
            expiration_s: time to live, in seconds.
        """
        left: dict[int, int] = {}
        for twin_id in (*others, *[twin_id for twin_id, _ in receivers]):
            left[twin_id] = left.get(twin_id, 0) + 1
        for twin_id, twin in receivers:
            # Copies for one twin get different timestamps and the same deadline: none is a repeat.
            age_s = left[twin_id] = left[twin_id] - 1
            yield (
                twin_id,
                self._request(uid, request, twin_id, twin, now - age_s, expiration_s + age_s),
            )

    def _request(
        self,
        uid: str,
        request: OutgoingRequest,
        twin_id: int,
        twin: Twin | None,
        now: int,
        expiration_s: int,
    ) -> bytes | Failure:
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
            return Failure(CODE_OTHER, f"twin {twin_id} has an invalid public key")
        return _checked(data)

    def response(self, response: OutgoingResponse, twin: Twin, expiration_s: int) -> bytes:
        """Return a service's answer, or the error that replaces it.

        Raises:
            AgreementError: the public key of the twin is invalid.
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
        """Return an error for the twin that sent the request."""
        return self._sealer.error(uid, destination, *failure, twin, now, expiration_s)


def _checked(data: bytes) -> bytes | Failure:
    """Return a message, or a failure if it is larger than relays accept."""
    if len(data) <= MAX_MESSAGE_BYTES:
        return data
    too_large = f"message has {len(data)} bytes, at most {MAX_MESSAGE_BYTES} can be sent"
    return Failure(CODE_OTHER, too_large)


def portion_of(request: OutgoingRequest) -> int:
    """Return the number of receivers of a request that are sent to in one step."""
    return max(PORTION_BYTES // (len(request.payload) + ENVELOPE_BYTES), 1)


def split(missing: Iterable[int], found: Container[int], most: int) -> tuple[list[int], list[int]]:
    """Return the first known receivers, `most` at the maximum, and all others."""
    part: list[int] = []
    others: list[int] = []
    for twin_id in missing:
        (part if twin_id in found and len(part) < most else others).append(twin_id)
    return part, others
