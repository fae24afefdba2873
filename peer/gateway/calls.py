"""Requests that modules of the gateway send, and the answers to them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from peer.errors import (
    CallError,
    ExpiredError,
    RelayError,
    RemoteError,
    TooLargeError,
    TwinNotFoundError,
    seconds,
)
from peer.gateway.bodies import Failure
from peer.modules.api import Response
from peer.randomness import random_bytes
from peer.twins import TwinCache
from proto.identity.errors import AgreementError
from proto.rmb.address import Address
from proto.rmb.bounds import MAX_EXPIRATION_S, MAX_MESSAGE_BYTES, MAX_PENDING_REQUESTS
from proto.rmb.sealing import Sealer, new_uid

_MIN_EXPIRATION_S: Final = 1


Refused = Callable[[TooLargeError], None]
"""Callback that receives the error when all relays refuse a message."""


class Calls:
    """Sends requests for modules, and passes answers to the callers that wait in this process.

    Args:
        sealer: signs and encrypts for the gateway.
        twins: cache of the twins that can be asked.
        send: sends a message that is not stored, given its deadline.
    """

    def __init__(
        self, sealer: Sealer, twins: TwinCache, send: Callable[[bytes, int, Refused], None]
    ) -> None:
        self._sealer = sealer
        self._twins = twins
        self._send = send
        self._waiting: dict[str, tuple[int, asyncio.Future[Response]]] = {}

    async def call(
        self,
        twin: int | Address,
        command: str,
        payload: bytes,
        timeout_s: float,
        schema: str | None,
        tags: str | None,
        uid: str | None = None,
    ) -> Response:
        """Send a request to a twin and wait for its first answer.

        An explicit `uid` must not be that of another waiting request.

        Raises:
            CallError: no usable answer came.
        """
        destination = Address(twin) if isinstance(twin, int) else twin
        if len(self._waiting) >= MAX_PENDING_REQUESTS:
            raise CallError("too many requests wait for answers")
        found = await self._twins.get(destination.twin)
        if found is None:
            raise TwinNotFoundError(destination.twin)
        now = int(time.time())
        expiration_s = min(max(int(timeout_s + 0.999), _MIN_EXPIRATION_S), MAX_EXPIRATION_S)
        uid = uid or new_uid(random_bytes)
        try:
            data = self._sealer.request(
                uid,
                destination,
                command,
                payload,
                found,
                now,
                expiration_s,
                tags=tags,
                schema=schema,
            )
        except AgreementError as error:
            raise CallError(f"twin {destination.twin}: {error}") from None
        if len(data) > MAX_MESSAGE_BYTES:
            raise TooLargeError(len(data), MAX_MESSAGE_BYTES)
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiting[uid] = destination.twin, answer

        def refused(error: TooLargeError) -> None:
            if not answer.done():
                answer.set_exception(error)

        try:
            self._send(data, now + expiration_s, refused)
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise ExpiredError(
                f"twin {destination.twin} did not answer within {seconds(timeout_s)}"
            ) from None
        finally:
            del self._waiting[uid]

    def answer(
        self,
        uid: str,
        source: Address,
        payload: bytes,
        schema: str | None,
        failure: Failure | None,
    ) -> bool:
        """Process an answer; return False if no module waits for it.

        Args:
            uid: uid of the request.
            source: sender of the answer; twin 0: a relay.
            payload: decrypted payload.
            schema: content type of the payload.
            failure: the error, if the answer is one.
        """
        asked, future = self._waiting.get(uid, (0, None))
        if future is None:
            return False
        if source.twin not in (asked, 0) or future.done():
            return True  # from a twin that was not asked, or a second answer
        if failure is None:
            future.set_result(Response(payload, schema))
        elif source.twin:
            future.set_exception(RemoteError(failure.code, failure.message, source))
        else:
            future.set_exception(RelayError(failure.message))
        return True
