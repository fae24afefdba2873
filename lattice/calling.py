"""Calls into the lattice: sign the invocation, store a large payload, send, and check the answer.

A call is never sent twice: it may have been executed even if no answer arrives.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Final

from lattice.connection import LatticeConnection
from lattice.errors import RemoteError, ResponseError, TooLargeError
from lattice.objects import Objects
from proto.lattice import errors as proto_errors
from proto.lattice.bounds import CHUNK_THRESHOLD_BYTES
from proto.lattice.entity import Entity
from proto.lattice.invocation import judge_response, make
from proto.lattice.messages import decode_response, response_object_name
from proto.lattice.nkeys import KeyKind, KeyPair
from proto.lattice.subjects import rpc_subject

_JTI_PADDING: Final = "L" * 6


class Calling:
    """Makes the calls of one origin.

    Attributes:
        origin: entity in whose name calls are made.
        host_id: id of the host that the calls name.
    """

    def __init__(self, connection: LatticeConnection, origin: Entity, host_id: str) -> None:
        """Create the calls of an origin.

        Raises:
            KeyFormatError: the cluster seed of the options is malformed.
        """
        self.origin = origin
        self.host_id = host_id
        self._connection = connection
        self._options = connection.options
        self._cluster = KeyPair.of_seed(self._options.cluster_seed, KeyKind.CLUSTER)
        self._objects = Objects(connection)

    async def call(
        self,
        target: Entity,
        operation: str,
        payload: bytes = b"",
        timeout_s: float | None = None,
        trace: Mapping[str, str] | None = None,
        token: str = "",
    ) -> bytes:
        """Call an operation and return its result.

        Args:
            target: an actor, or a link of a provider.
            operation: name of the operation, as `Interface.Method`.
            payload: payload as the contract defines it.
            timeout_s: seconds to wait for the answer; None: those of the options. For a large
                payload, `object_timeout_s` is added.
            trace: W3C trace keys.
            token: id of the invocation, 32 hexadecimal digits; empty: a random one.

        Raises:
            CallError: there is no result; see `lattice.errors`.
            ObjectStoreError: a large payload or result cannot be stored or fetched.
            NotConnectedError: the connection is down; nothing was sent.
            LatticeError: an argument is malformed, or the host id is not a host's key.
        """
        options = self._options
        if len(payload) > options.max_payload_bytes:
            raise TooLargeError("payload", len(payload), options.max_payload_bytes)
        token = token or secrets.token_hex(16)
        invocation = make(
            self.origin,
            target,
            operation,
            payload,
            host_id=self.host_id,
            cluster=self._cluster,
            invocation_id=token,
            jti=token[16:] + _JTI_PADDING,
            iat=int(time.time()),
            trace=trace,
        )
        subject = rpc_subject(options.lattice, target)
        data = invocation.encode()
        wait_s = options.call_timeout_s if timeout_s is None else timeout_s
        if len(payload) > CHUNK_THRESHOLD_BYTES:
            wait_s += options.object_timeout_s
            await self._objects.put(token, payload)
        answer = await self._connection.request(subject, data, wait_s)
        try:
            response = decode_response(answer)
            result = judge_response(token, response, max_payload_bytes=options.max_payload_bytes)
        except proto_errors.RemoteError as error:
            raise RemoteError(str(error)) from None
        except (proto_errors.ResponseError, proto_errors.FormatError) as error:
            raise ResponseError(f"the answer cannot be used: {error}") from None
        if result is None:
            name = response_object_name(token)
            return await self._objects.take(name, response.size_bytes)
        return result

    async def close(self) -> None:
        """Wait for deletions of payloads that are under way."""
        await self._objects.close()
