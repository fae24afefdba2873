"""A capability provider: operations for linked actors, links, health, shutdown.

Links come from the host at each put, more than once; a provider that starts later asks for them.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from nats.aio.msg import Msg

from lattice.caller import host_id_of
from lattice.calling import Calling
from lattice.connection import LatticeConnection, Subscription
from lattice.control import ControlClient
from lattice.errors import LatticeError
from lattice.registry import Registry
from lattice.serving import Handler, Serving
from proto.lattice.entity import Entity
from proto.lattice.host_data import HostData
from proto.lattice.messages import (
    HealthCheckResponse,
    LinkDefinition,
    decode_link,
)
from proto.lattice.nkeys import KeyKind, decode_public
from proto.lattice.registry import ProviderClaims
from proto.lattice.subjects import (
    SubjectKind,
    provider_subject,
    queue_group,
    rpc_subject,
)

MAX_LINKS: Final = 10_000
COMPARE_AFTER_S: Final = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Waits before the links are read again after the connection came back."""
SHUTTING_DOWN: Final = b"shutting down"

LinkHook = Callable[[LinkDefinition], Awaitable[None]]
HealthHook = Callable[[], Awaitable[HealthCheckResponse]]
_log = logging.getLogger(__name__)


async def _healthy() -> HealthCheckResponse:
    return HealthCheckResponse(healthy=True)


class LatticeProvider(Calling):
    """A provider; further instances share its calls, and each learns of the links.

    Attributes:
        serving: of its calls.
        links: by actor.
        name: in the registry.
        stopped: set after a shutdown by the host.
        on_link: called for a new link; an error refuses it.
        on_unlink: called for a link that is gone.
        health: asked by the host.
    """

    def __init__(
        self,
        connection: LatticeConnection,
        key: str,
        contract_id: str,
        link_name: str = "default",
        links: tuple[LinkDefinition, ...] = (),
        name: str = "provider",
    ) -> None:
        """
        Args:
            connection: open when the provider starts.
            key: `V...`
            contract_id: such as `wasmcloud:keyvalue`.
            link_name: that this process serves.
            links: to begin with.
            name: in the registry.

        Raises:
            KeyFormatError: a key is malformed.
        """
        decode_public(key, KeyKind.PROVIDER)
        origin = Entity.provider(key, link_name, contract_id)
        super().__init__(connection, origin, host_id_of(connection))
        self.links: dict[str, LinkDefinition] = {}
        self.serving = Serving(connection, origin, self.links.get)
        self.stopped = asyncio.Event()
        self.on_link: LinkHook | None = None
        self.on_unlink: LinkHook | None = None
        self.health: HealthHook = _healthy
        self.name = name
        self._first_links = links
        self._subscriptions: list[Subscription] = []
        self._changes: asyncio.Queue[tuple[SubjectKind, Msg]] = asyncio.Queue(MAX_LINKS)
        self._worker: asyncio.Task[None] | None = None
        self._comparing: asyncio.Task[None] | None = None

    @classmethod
    def of_host_data(
        cls, connection: LatticeConnection, data: HostData, contract_id: str
    ) -> LatticeProvider:
        """Return the provider that a host started, on a connection with `options_of` its data."""
        return cls(connection, data.provider_key, contract_id, data.link_name, data.links)

    def operation(self, name: str) -> Callable[[Handler], Handler]:
        """Register an async function for an operation, as a decorator."""

        def register(handler: Handler) -> Handler:
            self.serving.handlers[name] = handler
            return handler

        return register

    async def start(self) -> None:
        """Apply the links there are and take calls."""
        connection, lattice, origin = self._connection, self._options.lattice, self.origin
        for link in self._first_links:
            await self.put_link(link)
        for kind in (SubjectKind.LINK_PUT, SubjectKind.LINK_DEL, SubjectKind.HEALTH,
                     SubjectKind.SHUTDOWN):  # fmt: skip
            subject = provider_subject(lattice, origin.public_key, origin.link_name, kind)
            self._subscriptions.append(await connection.subscribe(subject, self._taker(kind)))
        self._worker = asyncio.create_task(self._work())
        await self._register()
        await self._read_links()
        connection.on_connected(self._compare_later)
        self._subscriptions.append(
            await connection.subscribe(
                rpc_subject(lattice, origin), self.serving.receive, queue_group(lattice, origin)
            )
        )

    async def stop(self) -> None:
        """Take no more calls and finish those under way."""
        await self._finish()
        tasks = [task for task in (self._worker, self._comparing) if task is not None]
        self._worker = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._connection.flush()

    async def put_link(self, link: LinkDefinition) -> None:
        """Apply a link; the same one again changes nothing, other values replace it."""
        if (link.provider_id, link.link_name) != (self.origin.public_key, self.origin.link_name):
            return
        former = self.links.get(link.actor_id)
        if former == link or (former is None and len(self.links) >= MAX_LINKS):
            return
        if former is not None:
            await self.delete_link(former)
        try:
            if self.on_link is not None:
                await self.on_link(link)
        except Exception as error:
            _log.warning("lattice: refused the link of %s: %s", link.actor_id, error)
            return
        self.links[link.actor_id] = link

    async def delete_link(self, link: LinkDefinition) -> None:
        """Take a link back."""
        if (link.provider_id, link.link_name) != (self.origin.public_key, self.origin.link_name):
            return
        if (former := self.links.pop(link.actor_id, None)) is None or self.on_unlink is None:
            return
        try:
            await self.on_unlink(former)
        except Exception:
            _log.exception("lattice: the end of the link of %s failed", link.actor_id)

    def _taker(self, kind: SubjectKind) -> Callable[[Msg], None]:
        def take(message: Msg) -> None:
            if self._changes.full():
                _log.warning("lattice: too many messages for provider %s", self.origin.public_key)
            else:
                self._changes.put_nowait((kind, message))

        return take

    async def _work(self) -> None:
        """Handle links, health and shutdown in their order."""
        while True:
            kind, message = await self._changes.get()
            try:
                if kind is SubjectKind.LINK_PUT:
                    await self.put_link(decode_link(message.data))
                elif kind is SubjectKind.LINK_DEL:
                    await self.delete_link(decode_link(message.data))
                elif kind is SubjectKind.HEALTH:
                    await self._reply(message, (await self._health()).encode())
                elif message.reply and _host_of(message.data) == self.host_id:
                    await self._finish()
                    await self._reply(message, SHUTTING_DOWN)
                    await self._connection.flush()
                    self.stopped.set()
            except LatticeError as error:
                _log.warning("lattice: cannot use a message on %s: %s", message.subject, error)

    async def _health(self) -> HealthCheckResponse:
        try:
            async with asyncio.timeout(self._options.call_timeout_s * 0.75):
                return await self.health()
        except Exception as error:
            text = str(error) or type(error).__name__
            return HealthCheckResponse(healthy=False, message=f"health check failed: {text}")

    async def _reply(self, message: Msg, data: bytes) -> None:
        if message.reply:
            await self._connection.publish(message.reply, data)

    async def _finish(self) -> None:
        subscriptions, self._subscriptions = self._subscriptions, []
        await asyncio.gather(*[each.drain() for each in subscriptions])
        await self.serving.drain(self._options.drain_timeout_s)
        await self.close()

    def _compare_later(self) -> None:
        if self._worker is not None and (self._comparing is None or self._comparing.done()):
            self._comparing = asyncio.create_task(self._compare_links())

    async def _compare_links(self) -> None:
        """Read the links again: no provider is told what changed while it was away.

        The hosts may come back later than this process.
        """
        for delay_s in COMPARE_AFTER_S:
            await asyncio.sleep(delay_s)
            if await self._read_links(all_of_them=True):
                return

    async def _read_links(self, *, all_of_them: bool = False) -> bool:
        """Ask a host for the links; without one there are only those to begin with.

        Args:
            all_of_them: a link that the host does not list is gone.

        Returns:
            Whether a host answered.
        """
        try:
            links = await ControlClient(self._connection).links()
        except LatticeError as error:
            _log.info("lattice: no links from the control interface: %s", error)
            return False
        for link in links:
            await self.put_link(link)
        if all_of_them:
            listed = {
                link.actor_id
                for link in links
                if (link.provider_id, link.link_name)
                == (self.origin.public_key, self.origin.link_name)
            }
            for gone in [each for key, each in self.links.items() if key not in listed]:
                await self.delete_link(gone)
        return True

    async def _register(self) -> None:
        claims = ProviderClaims(self.origin.public_key, self.name, self.origin.contract_id)
        try:
            await Registry(self._connection).put(claims)
        except LatticeError as error:
            _log.warning("lattice: actors on hosts will refuse our calls: %s", error)


def _host_of(data: bytes) -> str:
    try:
        return str(json.loads(data)["host_id"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""
