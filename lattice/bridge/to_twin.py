"""Requests of linked actors to twins."""

from __future__ import annotations

import time
from collections.abc import Callable

from lattice.bridge import refusals
from lattice.bridge.counts import Counts
from lattice.bridge.links import Links
from peer.client import Client
from peer.errors import PeerError
from proto.lattice.errors import FormatError
from proto.lattice.policy import Direction, Policies, Policy, Refusal, RefusedError
from proto.lattice.twin_contract import (
    CALL,
    CONTRACT,
    SEND,
    TwinReply,
    TwinRequest,
    decode_request,
    encode_reply,
    encode_uid,
)
from proto.rmb.address import Address


class ToTwin:
    """Answers `Twin.Call` and `Twin.Send`.

    Args:
        client: of the bridge's twin.
        links: what actors may do.
        policies: gives those that hold now.
        counts: told of each call.
    """

    def __init__(
        self, client: Client, links: Links, policies: Callable[[], Policies], counts: Counts
    ) -> None:
        self._client = client
        self._links = links
        self._policies = policies
        self._counts = counts

    async def call(self, actor: str, payload: bytes) -> bytes:
        """Ask a twin for an actor, and return the answer.

        Raises:
            FailedError: the request was refused, or failed.
        """
        with self._counts.counting(Direction.TO_TWIN, actor, CONTRACT, CALL):
            request, policy = self._allowed(actor, payload)
            timeout_ms = min(request.timeout_ms or policy.timeout_ms, policy.timeout_ms)
            try:
                reply = await self._client.call(
                    Address(request.twin, request.session),
                    request.command,
                    request.data,
                    schema=request.schema,
                    timeout=timeout_ms / 1000,
                )
            except PeerError as error:
                raise refusals.of_twin(request.twin, error) from error
            size = len(reply.payload)
            if size > policy.max_bytes:
                text = (
                    f"the answer has {size} bytes; policy {policy.name} allows {policy.max_bytes}"
                )
                raise refusals.refused(RefusedError(Refusal.SIZE, text))
            return encode_reply(TwinReply(reply.payload, reply.schema))

    async def send(self, actor: str, payload: bytes) -> bytes:
        """Tell a twin something for an actor, and return the uid of the message.

        Raises:
            FailedError: the request was refused, or not sent.
        """
        with self._counts.counting(Direction.TO_TWIN, actor, CONTRACT, SEND):
            request, policy = self._allowed(actor, payload)
            timeout_ms = min(request.timeout_ms or policy.timeout_ms, policy.timeout_ms)
            try:
                uid = await self._client.notify(
                    Address(request.twin, request.session),
                    request.command,
                    request.data,
                    schema=request.schema,
                    timeout=timeout_ms / 1000,
                )
            except PeerError as error:
                raise refusals.of_twin(request.twin, error) from error
            return encode_uid(uid)

    def _allowed(self, actor: str, payload: bytes) -> tuple[TwinRequest, Policy]:
        try:
            request = decode_request(payload)
            self._links.of(actor).check(request.twin, request.command)
            return request, self._policies().decide(
                Direction.TO_TWIN,
                request.twin,
                actor,
                request.command,
                len(request.data),
                time.monotonic(),
            )
        except FormatError as error:
            raise refusals.malformed(error) from None
        except RefusedError as error:
            raise refusals.refused(error) from None
