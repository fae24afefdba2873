"""The process of a bridge: a provider of the lattice, and a twin of the relay."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from lattice.bridge.asked import Asked
from lattice.bridge.counts import Counts, Passing
from lattice.bridge.lease import Lease
from lattice.bridge.links import Links
from lattice.bridge.policies import LivePolicies
from lattice.bridge.refusals import FailedError
from lattice.bridge.to_lattice import ToLattice
from lattice.bridge.to_twin import ToTwin
from lattice.caller import LatticeCaller
from lattice.connection import LatticeConnection
from lattice.directory import Directory
from lattice.health import Health
from lattice.janitor import Janitor
from lattice.objects import Objects
from lattice.options import LatticeOptions
from lattice.process import together
from lattice.provider import LatticeProvider
from lattice.recording import Events
from lattice.registry import Registry
from lattice.report import Report
from lattice.serving import Call, OperationError
from peer.client import Client, PeerError
from peer.client.serving import ANY_COMMAND
from proto.lattice import state
from proto.lattice.entity import Entity
from proto.lattice.errors import Reason
from proto.lattice.messages import LinkDefinition
from proto.lattice.nkeys import KeyKind, KeyPair, encode_public
from proto.lattice.policy import Direction
from proto.lattice.state import ProcessKind, Total, total_field
from proto.lattice.twin_contract import CALL, CONTRACT, SEND

RETRY_S: Final = 2.0
"""Seconds until a failed session of the twin is retried."""

logger = logging.getLogger(__name__)


class Bridge:
    """A bridge: a provider of the lattice, a client of the relay, and what both report.

    Args:
        settings: `options` (see `LatticeOptions`), `redis_url`, `provider_seed`, `link_name`,
            `twin_secret`, `relays`, `twins` (or null) and `substrate` (see `peer.client.Client`),
            and `record`: whether to record each call as an event in the lake.

    Raises:
        KeyFormatError: a seed is malformed.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        options = LatticeOptions(**settings["options"])
        key = KeyPair.of_seed(settings["provider_seed"], KeyKind.PROVIDER)
        # Operators keep one secret only: as a caller of providers, the bridge is an actor whose key
        # has the same bytes.
        self.actor = encode_public(KeyKind.ACTOR, key.raw_public)
        self.connection = LatticeConnection(options)
        self.provider = LatticeProvider(
            self.connection, key.public, CONTRACT, settings["link_name"]
        )
        self.caller = LatticeCaller(self.connection, self.actor)
        self.redis = Redis.from_url(settings["redis_url"])
        self.policies = LivePolicies(self.redis, state.POLICIES, state.POLICIES_CHANGED)
        self.directory = Directory(self.connection, Registry(self.connection))
        self.health = Health(self.connection)
        self.links = Links()
        self.events = Events(self.redis) if settings.get("record") else None
        self.counts = Counts(self.events)
        self.report = Report(
            self.redis, ProcessKind.BRIDGE, self._told, self.counts, self._totals, self.events
        )
        self.lease = Lease(self.redis, self.report.id)
        self._twin: int | None = None

    async def run(self, stop: asyncio.Event, ready: Callable[[], None]) -> None:
        """Run the bridge until the event is set."""
        try:
            await together(
                stop,
                self.policies.keep(),
                self.report.keep(),
                self.lease.keep(),
                self._lattice(ready),
                self._serve_twin(),
                self._clean(),
            )
        finally:
            await self.provider.stop()
            await self.connection.close()
            await self.report.finish()
            await self.redis.aclose()

    async def _lattice(self, ready: Callable[[], None]) -> None:
        """Handle calls of actors, once both the lattice and the relay are connected."""
        await self.connection.open(wait=True)
        async with self._client() as client:
            to_twin = ToTwin(client, self.links, lambda: self.policies.now, self.counts)
            for name, answer in ((CALL, to_twin.call), (SEND, to_twin.send)):
                self._register(name, answer)
            self.provider.on_link = self._linked
            self.provider.on_unlink = self._unlinked
            try:
                await self.provider.start()
                ready()
                asked = Asked(
                    self.redis, self.connection, self.caller, self.provider, self.directory
                )
                await asyncio.gather(
                    asked.keep(), self._look(), self.health.keep(self.directory.providers)
                )
            finally:
                await self.provider.stop()  # while the client is still open

    def _register(self, name: str, answer: Callable[[Call], Any]) -> None:
        @self.provider.operation(name)
        async def handle(call: Call) -> bytes:
            try:
                found: bytes = await answer(call)
            except FailedError as error:
                raise OperationError(str(error)) from error
            return found

    async def _linked(self, link: LinkDefinition) -> None:
        self.links.put(link.actor_id, link.values)

    async def _unlinked(self, link: LinkDefinition) -> None:
        self.links.remove(link.actor_id)

    async def _look(self) -> None:
        async for _ in self.directory.changes():
            try:
                for kind, rows in self.directory.rows(self.health).items():
                    await self.report.saw(kind, rows)
            except RedisError as error:
                logger.warning("cannot report what the lattice runs: %s", error)

    async def _clean(self) -> None:
        """Delete payloads that were never fetched; only the bridge with the lease does this."""
        janitor = Janitor(Objects(self.connection), self.connection.options.object_ttl_s)
        await janitor.run(self.lease.held.is_set)

    def _client(self, **more: Any) -> Client:
        """Return a new client of the bridge's twin."""
        return Client(
            self._settings["twin_secret"],
            self._settings["relays"],
            self._settings["twins"],
            substrate=self._settings["substrate"],
            connect_timeout=0,
            **more,
        )

    async def _serve_twin(self) -> None:
        """Answer requests to the bridge's twin while this bridge holds the lease of its session."""
        to_lattice = ToLattice(
            self._invoke,
            self.links,
            _Own(self.directory, self.actor),
            lambda: self.policies.now,
            self.counts,
        )
        while True:
            await self.lease.held.wait()
            try:
                handlers = {ANY_COMMAND: to_lattice.handle}
                async with self._client(sid=None, handlers=handlers) as client:
                    self._twin = client.address.twin
                    await self.lease.lost.wait()
            except PeerError as error:
                logger.warning("the session of the bridge's twin failed: %s", error)
                await asyncio.sleep(RETRY_S)
            finally:
                self._twin = None

    async def _invoke(
        self, target: Entity, operation: str, payload: bytes, timeout_s: float, passing: Passing
    ) -> bytes:
        caller = self.provider if target.is_actor else self.caller
        passing.origin, passing.host_id = caller.origin.public_key, caller.host_id
        passing.id = secrets.token_hex(16)
        return await caller.call(target, operation, payload, timeout_s, token=passing.id)

    def _told(self) -> dict[str, Any]:
        return {
            "nats": self.connection.state,
            "error": self.connection.last_error,
            "jetstream": self.health.jetstream,
            "running": self.counts.running,
            "links": len(self.provider.links),
            "policies": len(self.policies.now),
            "provider": self.provider.origin.public_key,
            "actor": self.actor,
            "host_ids": [self.provider.host_id, self.caller.host_id],
            "twin": self._twin,
        }

    def _totals(self) -> dict[str, int]:
        """Return counts of invocations that were refused before any policy was checked."""
        counts = self.provider.serving.counts
        return {
            total_field(Total.REFUSED, Direction.TO_TWIN, reason): counts[reason]
            for reason in Reason
            if counts[reason]
        }


class _Own:
    """The directory as `ToLattice` needs it: contracts are those of the bridge's own links."""

    def __init__(self, directory: Directory, actor: str) -> None:
        self._directory = directory
        self._actor = actor

    def actor_of(self, alias: str) -> str | None:
        return self._directory.actor_of(alias)

    def contract_of(self, provider: str, link_name: str) -> str | None:
        return self._directory.contract_of(provider, link_name, self._actor)


async def run(settings: dict[str, Any], stop: asyncio.Event, ready: Callable[[], None]) -> None:
    """Run a bridge; see `Bridge` and `lattice.process`."""
    await Bridge(settings).run(stop, ready)
