"""An actor: its operations are async functions, and it calls other actors and providers."""

from __future__ import annotations

from collections.abc import Callable

from lattice.caller import host_id_of
from lattice.calling import Calling
from lattice.connection import LatticeConnection, Subscription
from lattice.registry import Registry
from lattice.serving import Call, Handler, Serving
from proto.lattice.entity import Entity
from proto.lattice.messages import HealthCheckResponse
from proto.lattice.nkeys import KeyKind, decode_public
from proto.lattice.registry import ActorClaims
from proto.lattice.subjects import queue_group, rpc_subject


class LatticeActor(Calling):
    """An actor outside of a host; further instances share its calls.

    Attributes:
        serving: of its calls.
    """

    def __init__(
        self, connection: LatticeConnection, key: str, name: str = "", call_alias: str = ""
    ) -> None:
        """
        Args:
            connection: open when the actor starts.
            key: `M...`
            name: in the registry, without which actors on hosts refuse its calls; empty: no entry,
                unless it has an alias.
            call_alias: in the registry, by which others may call it; empty: none.

        Raises:
            KeyFormatError: a key is malformed.
        """
        decode_public(key, KeyKind.ACTOR)
        super().__init__(connection, Entity.actor(key), host_id_of(connection))
        self.serving = Serving(connection, self.origin)
        self.serving.handlers["Actor.HealthRequest"] = _healthy
        self._claims = ActorClaims(key, name or call_alias, call_alias=call_alias)
        self._subscription: Subscription | None = None

    def operation(self, name: str) -> Callable[[Handler], Handler]:
        """Register an async function for an operation, as a decorator."""

        def register(handler: Handler) -> Handler:
            self.serving.handlers[name] = handler
            return handler

        return register

    async def start(self) -> None:
        """Take calls."""
        if self._claims.name:
            await Registry(self._connection).register(self._claims)
        lattice = self._options.lattice
        self._subscription = await self._connection.subscribe(
            rpc_subject(lattice, self.origin),
            self.serving.receive,
            queue_group(lattice, self.origin),
        )

    async def stop(self) -> None:
        """Take no more calls and finish those under way."""
        if self._subscription is not None:
            await self._subscription.drain()
        await self.serving.drain(self._options.drain_timeout_s)
        await self.close()
        await self._connection.flush()


async def _healthy(call: Call) -> bytes:
    return HealthCheckResponse(healthy=True).encode()
