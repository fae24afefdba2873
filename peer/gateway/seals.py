"""What programs and services write, sealed for its receivers."""

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
"""Of a message beside its payload, about."""


class Seals:
    """Makes messages of entries.

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
        """One for each of some receivers, with its twin.

        Args:
            uid: of the request.
            request: what is asked for.
            receivers: twins, and what is known of them; None: there is no such twin.
            others: receivers that get it later.
            now: unix seconds.
            expiration_s: time to live.
        """
        left: dict[int, int] = {}
        for twin_id in (*others, *[twin_id for twin_id, _ in receivers]):
            left[twin_id] = left.get(twin_id, 0) + 1
        for twin_id, twin in receivers:
            # Made earlier, with the same deadline: no copy for a twin is a repeat of another.
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


def split(missing: Iterable[int], found: Container[int], most: int) -> tuple[list[int], list[int]]:
    """The first receivers that are known, so many at most, and all others."""
    part: list[int] = []
    others: list[int] = []
    for twin_id in missing:
        (part if twin_id in found and len(part) < most else others).append(twin_id)
    return part, others
