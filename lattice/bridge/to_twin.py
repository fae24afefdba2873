"""Handles `Twin.Call` and `Twin.Send` of linked actors, as requests to twins."""

from __future__ import annotations

import time
from collections.abc import Callable

from lattice.bridge import refusals
from lattice.bridge.counts import Counts, Passing
from lattice.bridge.links import Links
from lattice.serving import Call
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
        client: client of the bridge's twin.
        links: rules of the linked actors.
        policies: function that returns the policies in force.
        counts: counts to which each call is added.
    """

    def __init__(
        self, client: Client, links: Links, policies: Callable[[], Policies], counts: Counts
    ) -> None:
        self._client = client
        self._links = links
        self._policies = policies
        self._counts = counts

    async def call(self, call: Call) -> bytes:
        """Send a request to a twin for an actor, and return the twin's answer.

        Raises:
            FailedError: the request was refused, or it failed.
        """
        passing = _passing(call, CALL)
        with self._counts.counting(passing):
            request, policy = self._allowed(call, passing)
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
            passing.answer = size = len(reply.payload)
            if size > policy.max_bytes:
                text = (
                    f"the answer has {size} bytes; policy {policy.name} allows {policy.max_bytes}"
                )
                raise refusals.refused(RefusedError(Refusal.SIZE, text))
            return encode_reply(TwinReply(reply.payload, reply.schema))

    async def send(self, call: Call) -> bytes:
        """Send a one-way message to a twin for an actor, and return the uid of the message.

        Raises:
            FailedError: the message was refused, or it was not sent.
        """
        passing = _passing(call, SEND)
        with self._counts.counting(passing):
            request, policy = self._allowed(call, passing)
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

    def _allowed(self, call: Call, passing: Passing) -> tuple[TwinRequest, Policy]:
        actor = passing.origin
        try:
            request = decode_request(call.payload)
            passing.twin = request.twin
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


def _passing(call: Call, operation: str) -> Passing:
    invocation = call.invocation
    return Passing(
        Direction.TO_TWIN,
        operation,
        CONTRACT,
        call.origin.public_key,
        invocation.target.public_key,
        invocation.target.link_name,
        size=len(call.payload),
        id=invocation.id,
        host_id=invocation.host_id,
    )
