"""An actor that runs outside of a host.

Its operations are async functions, and it can call other actors and providers.
"""

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
    """An actor outside of a host. Several instances with the same key share the calls.

    Attributes:
        serving: the serving of its calls, with the registered handlers.
    """

    def __init__(
        self, connection: LatticeConnection, key: str, name: str = "", call_alias: str = ""
    ) -> None:
        """Create an actor, which `start` connects to its calls.

        Args:
            connection: a connection that is open when the actor starts.
            key: public key of the actor (`M...`).
            name: name in the registry, without which actors on hosts refuse its calls; empty: no
                entry, unless there is a call alias.
            call_alias: alias in the registry by which others may call the actor; empty: no alias.

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
        """Return a decorator that registers an async function for an operation."""

        def register(handler: Handler) -> Handler:
            self.serving.handlers[name] = handler
            return handler

        return register

    async def start(self) -> None:
        """Write the registry entry, if the actor has a name, and begin to accept calls."""
        if self._claims.name:
            await Registry(self._connection).register(self._claims)
        lattice = self._options.lattice
        self._subscription = await self._connection.subscribe(
            rpc_subject(lattice, self.origin),
            self.serving.receive,
            queue_group(lattice, self.origin),
        )

    async def stop(self) -> None:
        """Stop accepting calls, and wait for those under way."""
        if self._subscription is not None:
            await self._subscription.drain()
        await self.serving.drain(self._options.drain_timeout_s)
        await self.close()
        await self._connection.flush()


async def _healthy(call: Call) -> bytes:
    return HealthCheckResponse(healthy=True).encode()
