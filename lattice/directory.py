"""The contents of a lattice, read from its control interface every few seconds and at events."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import Any, Final, TypeVar

from nats.aio.msg import Msg

from lattice.connection import LatticeConnection, Subscription
from lattice.control import ControlClient
from lattice.errors import LatticeError, PermissionDeniedError
from lattice.health import Health
from lattice.monitor.judge import View
from lattice.registry import Registry
from proto.lattice.control import Host, Inventory
from proto.lattice.errors import FormatError
from proto.lattice.events import EventName, decode_event
from proto.lattice.messages import LinkDefinition
from proto.lattice.state import ActorRow, HostRow, LinkRow, ProviderRow, Seen, row_key
from proto.lattice.subjects import event_subject

LOOK_S: Final = 10.0
"""Seconds between two reads; an event brings the next one forward."""
SETTLE_S: Final = 0.3
"""Seconds from an event to the next read: events come in groups."""
MAX_HOSTS: Final = 1_000

Answer = TypeVar("Answer")

logger = logging.getLogger(__name__)


class Directory:
    """Hosts, actors, providers, links and claims of a lattice.

    While no host answers, there are no hosts, links are unknown, and claims come from `registry`.
    """

    def __init__(self, connection: LatticeConnection, registry: Registry | None = None) -> None:
        """Create an empty directory.

        Args:
            connection: connection to the lattice.
            registry: source of claims while no host answers; None: claims are unknown then.
        """
        self._connection = connection
        self._registry = registry
        self._control = ControlClient(connection)
        self._hosts: list[Host] = []
        self._inventories: list[Inventory] = []
        self._links: tuple[LinkDefinition, ...] | None = None
        self._claims: dict[str, Mapping[str, str]] | None = None
        self._event = asyncio.Event()
        self._seen_at = 0.0

    async def changes(self) -> AsyncIterator[None]:
        """Read the lattice and yield, repeatedly and without end."""
        subject = event_subject(self._connection.options.lattice)
        subscription: Subscription | None = None
        try:
            try:
                subscription = await self._connection.subscribe(subject, self._told)
            except PermissionDeniedError as error:
                logger.warning("changes of the lattice are seen late: %s", error)
            while True:
                self._event.clear()
                try:
                    await self.look()
                except LatticeError as error:
                    logger.warning("cannot read what the lattice runs: %s", error)
                yield
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._event.wait()
                        await asyncio.sleep(SETTLE_S)
        finally:
            if subscription is not None:
                await subscription.drain()

    async def look(self) -> None:
        """Read the contents of the lattice from all hosts.

        Raises:
            LatticeError: NATS is unavailable.
        """
        hosts = (await self._control.hosts())[:MAX_HOSTS]
        inventories = await asyncio.gather(
            *(_answer(self._control.inventory(host.id)) for host in hosts)
        )
        links = claims = None
        if hosts:
            links = await _answer(self._control.links())
            claims = await _answer(self._control.claims())
        elif self._registry is not None:
            claims = await self._registered(self._registry)
        self._hosts, self._links = hosts, links
        self._inventories = [each for each in inventories if each is not None]
        self._claims = None if claims is None else {_subject(each): each for each in claims}
        self._seen_at = time.time()

    async def _registered(self, registry: Registry) -> tuple[Mapping[str, str], ...] | None:
        try:
            found = await registry.claims()
        except LatticeError as error:  # for example, there is no JetStream
            logger.debug("%s", error)
            return None
        return tuple(
            {"sub": each.subject, "name": each.name, "call_alias": getattr(each, "call_alias", "")}
            for each in found
        )

    def actor_of(self, alias: str) -> str | None:
        """Return the public key of the actor with a call alias."""
        for key, claims in (self._claims or {}).items():
            if claims.get("call_alias") == alias:
                return key
        return None

    def contract_of(self, provider: str, link_name: str, actor: str) -> str | None:
        """Return the contract of the link between an actor and a provider."""
        for link in self._links or ():
            if (link.actor_id, link.provider_id, link.link_name) == (actor, provider, link_name):
                return link.contract_id
        return None

    def view(self) -> View:
        """Return the view by which the monitor judges invocations."""
        hosts = {
            each.host_id: {
                *(actor.id for actor in each.actors),
                *(provider.id for provider in each.providers),
            }
            for each in self._inventories
        }
        return View(
            registered=None if self._claims is None else set(self._claims),
            hosts=hosts or None,
            links=None
            if self._links is None
            else {(each.actor_id, each.provider_id, each.link_name) for each in self._links},
        )

    def providers(self) -> set[tuple[str, str]]:
        """Return public key and link name of all providers that run on hosts or have links."""
        return {
            *((each.id, each.link_name) for host in self._inventories for each in host.providers),
            *((each.provider_id, each.link_name) for each in self._links or ()),
        }

    def rows(self, health: Health) -> dict[Seen, dict[str, Any]]:
        """Return the rows of hosts, actors, providers and links for the operator site."""
        at = self._seen_at
        inventories = {each.host_id: each for each in self._inventories}
        hosts = {
            host.id: HostRow(
                host.id,
                host.friendly_name,
                host.issuer,
                host.version,
                host.uptime_s,
                dict(host.labels),
                len(inventories[host.id].actors) if host.id in inventories else 0,
                len(inventories[host.id].providers) if host.id in inventories else 0,
                at,
            )
            for host in self._hosts
        }
        actors = {
            row_key(actor.id, each.host_id): ActorRow(
                actor.id,
                actor.name,
                each.host_id,
                actor.image_ref,
                actor.max_instances,
                actor.revision,
                at,
            )
            for each in self._inventories
            for actor in each.actors
        }
        providers = {
            row_key(provider.id, provider.link_name, each.host_id): ProviderRow(
                provider.id,
                provider.name,
                each.host_id,
                provider.link_name,
                provider.contract_id,
                provider.image_ref,
                provider.revision,
                *health.of(provider.id, provider.link_name),
                at,
            )
            for each in self._inventories
            for provider in each.providers
        }
        on_hosts = {(each.id, each.link_name) for each in providers.values()}
        for link in self._links or ():
            key = (link.provider_id, link.link_name)
            if key not in on_hosts:
                providers[row_key(*key, "")] = ProviderRow(
                    link.provider_id,
                    (self._claims or {}).get(link.provider_id, {}).get("name", ""),
                    "",
                    link.link_name,
                    link.contract_id,
                    "",
                    0,
                    *health.of(*key),
                    at,
                )
        links = {
            row_key(link.actor_id, link.contract_id, link.link_name): LinkRow(
                link.actor_id,
                link.provider_id,
                link.link_name,
                link.contract_id,
                dict(link.values),
                at,
            )
            for link in self._links or ()
        }
        return {
            Seen.HOSTS: hosts,
            Seen.ACTORS: actors,
            Seen.PROVIDERS: providers,
            Seen.LINKS: links,
        }

    def _told(self, message: Msg) -> None:
        try:
            event = decode_event(message.data)
        except FormatError as error:
            logger.info("on %.200s: %s", message.subject, error)
            return
        if event.name != EventName.HOST_HEARTBEAT:
            self._event.set()


async def _answer(asked: Coroutine[Any, Any, Answer]) -> Answer | None:
    """Return a usable answer of the control interface, or None without one."""
    try:
        return await asked
    except LatticeError as error:
        logger.info("control interface: %s", error)
        return None


def _subject(claims: Mapping[str, str]) -> str:
    return claims.get("sub") or claims.get("subject") or ""
