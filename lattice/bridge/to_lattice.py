"""Handles requests to the bridge's twin, as invocations of actors and providers.

    lattice.<actor or alias>.<operation>      calls an actor
    lattice.<provider>.<link>.<operation>     calls a provider by a link
    anything else                             goes to the linked actor that serves the command

A JSON payload of the first two forms is sent as msgpack, and the result is returned as JSON. Every
other payload is passed on unchanged.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, Protocol

import msgpack

from lattice.bridge import refusals
from lattice.bridge.counts import Counts, Passing
from lattice.bridge.links import Links
from lattice.bridge.refusals import FailedError, Side
from peer.client import CommandError, Request, Response
from proto.lattice.entity import Entity
from proto.lattice.errors import FormatError, LatticeError
from proto.lattice.policy import Direction, Policies, Policy, Refusal, RefusedError
from proto.lattice.twin_contract import HANDLE_REQUEST, TwinRequest, decode_reply, encode_request

PREFIX: Final = "lattice."
JSON_SCHEMA: Final = "application/json"
KEY_CHARS: Final = 56
MIN_TIMEOUT_S: Final = 0.001

Invoke = Callable[[Entity, str, bytes, float, Passing], Awaitable[bytes]]
"""Function that calls an operation of an entity with a payload and a time-out in seconds, and
records the origin and the id of the invocation in the `Passing`."""


class Directory(Protocol):
    """Look-up of actors by alias and of contracts by link."""

    def actor_of(self, alias: str) -> str | None:
        """Return the public key of the actor with a call alias."""

    def contract_of(self, provider: str, link_name: str) -> str | None:
        """Return the contract of the link to a provider."""


class Target(NamedTuple):
    """Target that a command names.

    Attributes:
        entity: entity to call.
        operation: operation to call.
        alias: alias by which the command names the actor; empty: it is named by its key.
    """

    entity: Entity
    operation: str
    alias: str = ""


class ToLattice:
    """Answers the requests of twins.

    Args:
        invoke: function that makes a call.
        links: rules of the linked actors.
        directory: directory of the lattice.
        policies: function that returns the policies in force.
        counts: counts to which each call is added.
    """

    def __init__(
        self,
        invoke: Invoke,
        links: Links,
        directory: Directory,
        policies: Callable[[], Policies],
        counts: Counts,
    ) -> None:
        self._invoke = invoke
        self._links = links
        self._directory = directory
        self._policies = policies
        self._counts = counts

    async def handle(self, request: Request) -> Response:
        """Answer a request of a twin.

        Raises:
            CommandError: the request was refused, or it failed.
        """
        try:
            if request.command.startswith(PREFIX):
                return await self._called(request)
            return await self._served(request)
        except FailedError as error:
            raise CommandError(error.code, str(error)) from error

    async def _called(self, request: Request) -> Response:
        target = find_target(request.command, self._directory)
        passing = _passing(request, target)
        with self._counts.counting(passing):
            policy = self._allowed(request, passing.target, target.operation, target.alias)
            is_json = request.schema == JSON_SCHEMA
            payload = _to_msgpack(request.payload) if is_json else request.payload
            result = await self._invoked(request, policy, target, payload, passing)
            if is_json:
                return Response(_to_json(result), JSON_SCHEMA)
            return Response(result, request.schema)

    async def _served(self, request: Request) -> Response:
        actor = self._links.server_of(request.source.twin, request.command)
        if actor is None:
            text = f"no linked actor serves the command {request.command:.80}"
            raise FailedError(Side.BRIDGE, "not_found", refusals.NOT_FOUND, text)
        target = Target(Entity.actor(actor), HANDLE_REQUEST)
        passing = _passing(request, target)
        with self._counts.counting(passing):
            policy = self._allowed(request, actor, request.command)
            asked = TwinRequest(
                request.source.twin,
                request.command,
                request.payload,
                request.source.connection,
                request.schema,
                int(_left_s(request, policy) * 1000),
            )
            payload = encode_request(asked)
            result = await self._invoked(request, policy, target, payload, passing)
            try:
                reply = decode_reply(result)
            except FormatError as error:
                text = f"the answer to {HANDLE_REQUEST}: {error}"
                raise FailedError(Side.ACTOR, "malformed", refusals.FAILED, text) from None
            return Response(reply.data, reply.schema)

    def _allowed(self, request: Request, key: str, name: str, alias: str = "") -> Policy:
        try:
            return self._policies().decide(
                Direction.TO_LATTICE,
                request.source.twin,
                key,
                name,
                len(request.payload),
                time.monotonic(),
                alias,
            )
        except RefusedError as error:
            raise refusals.refused(error) from None

    async def _invoked(
        self, request: Request, policy: Policy, target: Target, payload: bytes, passing: Passing
    ) -> bytes:
        side = Side.ACTOR if target.entity.is_actor else Side.PROVIDER
        timeout_s = _left_s(request, policy)
        try:
            result = await self._invoke(
                target.entity, target.operation, payload, timeout_s, passing
            )
        except LatticeError as error:
            raise refusals.of_lattice(side, error) from error
        passing.answer = len(result)
        if len(result) > policy.max_bytes:
            text = f"the result has {len(result)} bytes; policy {policy.name} allows"
            raise refusals.refused(RefusedError(Refusal.SIZE, f"{text} {policy.max_bytes}"))
        return result


def _passing(request: Request, target: Target) -> Passing:
    return Passing(
        Direction.TO_LATTICE,
        target.operation,
        target.entity.contract_id,
        target=target.entity.public_key,
        link=target.entity.link_name,
        twin=request.source.twin,
        size=len(request.payload),
    )


def find_target(command: str, directory: Directory) -> Target:
    """Return the target that a command of a twin names.

    Raises:
        FailedError: the command is malformed, or names an unknown alias or link.
    """
    name, _, rest = command.removeprefix(PREFIX).partition(".")
    is_key = len(name) == KEY_CHARS
    if is_key and name.startswith("V"):
        link_name, _, operation = rest.partition(".")
        if not link_name or not operation:
            raise _malformed("lattice.<provider>.<link>.<operation>", command)
        contract = directory.contract_of(name, link_name)
        if contract is None:
            text = f"the bridge has no link {link_name:.40} to provider {name}"
            raise FailedError(Side.BRIDGE, "not_found", refusals.NOT_FOUND, text)
        return Target(Entity.provider(name, link_name, contract), operation)
    if not name or not rest:
        raise _malformed("lattice.<actor or alias>.<operation>", command)
    if is_key and name.startswith("M"):
        return Target(Entity.actor(name), rest)
    actor = directory.actor_of(name)
    if actor is None:
        text = f"the registry has no actor with the call alias {name:.60}"
        raise FailedError(Side.BRIDGE, "not_found", refusals.NOT_FOUND, text)
    return Target(Entity.actor(actor), rest, name)


def _malformed(form: str, command: str) -> FailedError:
    return refusals.malformed(ValueError(f"command {command:.80}: expected {form}"))


def _left_s(request: Request, policy: Policy) -> float:
    """Return the seconds until the request expires, limited to the policy's time-out."""
    left_s = request.deadline - time.time()
    return max(MIN_TIMEOUT_S, min(left_s, policy.timeout_ms / 1000))


def _to_msgpack(payload: bytes) -> bytes:
    if not payload:
        return b""
    try:
        packed: bytes = msgpack.packb(json.loads(payload))
    except (ValueError, RecursionError, OverflowError) as error:
        raise refusals.malformed(ValueError(f"the payload is not JSON: {error}")) from None
    return packed


def _to_json(result: bytes) -> bytes:
    if not result:
        return b""
    try:
        value = msgpack.unpackb(result, strict_map_key=False)
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_refuse).encode()
    except (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException) as error:
        reason = str(error)[:100] or "it is not msgpack"
        text = f"the result cannot be converted to JSON: {reason}; use another schema"
        raise FailedError(Side.BRIDGE, "malformed", refusals.FAILED, text) from None


def _refuse(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} in the result")
