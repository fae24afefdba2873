"""Services of a client for modules: those of the gateway, without a persistent store."""

from __future__ import annotations

from peer.client.session import Session
from peer.modules.api import Request, Response, Store
from proto.rmb.address import Address
from proto.rmb.bounds import DEFAULT_EXPIRATION_S, MAX_EXPIRATION_S


class MemoryStore:
    """A `Store` that is lost when the process ends."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    async def put(self, name: str, value: bytes) -> None:
        """Store a value under a name."""
        self._values[name] = value

    async def remove(self, name: str) -> None:
        """Remove a value."""
        self._values.pop(name, None)

    async def all(self) -> dict[str, bytes]:
        """Return all stored values by name."""
        return dict(self._values)


class ClientContext:
    """The `Context` of one module in a client."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._store = MemoryStore()

    @property
    def twin(self) -> int:
        """Id of the client's own twin."""
        return self._session.own.twin

    @property
    def store(self) -> Store:
        """Store of this module alone."""
        return self._store

    async def call(
        self,
        twin: int | Address,
        command: str,
        payload: bytes = b"",
        *,
        timeout_s: float = DEFAULT_EXPIRATION_S,
        schema: str | None = None,
        tags: str | None = None,
        uid: str | None = None,
    ) -> Response:
        """Send a request to a twin and wait for its first answer."""
        destination = twin if isinstance(twin, Address) else Address(twin)
        timeout_s = min(timeout_s, MAX_EXPIRATION_S)
        reply = await self._session.call(
            destination, command, payload, schema=schema, tags=tags, timeout_s=timeout_s, uid=uid
        )
        return Response(reply.payload, reply.schema)

    async def deliver(self, request: Request) -> None:
        """Pass a request to the client's own handlers, as if its source had sent it."""
        self._session.requested(request)
