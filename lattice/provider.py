"""A capability provider: operations for linked actors, links, health checks, shutdown.

The host sends a link each time it is put, so a provider may receive it more than once. A provider
that starts later asks the host for the links.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
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
    decode_shutdown,
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
"""Seconds to wait before each attempt to read the links again after a reconnection."""
MAX_ANSWERING: Final = 16
"""Maximum number of health checks and shutdowns handled at once; hosts check every 30 s."""
SHUTTING_DOWN: Final = b"shutting down"

LinkHook = Callable[[LinkDefinition], Awaitable[None]]
HealthHook = Callable[[], Awaitable[HealthCheckResponse]]
_log = logging.getLogger(__name__)


async def _healthy() -> HealthCheckResponse:
    return HealthCheckResponse(healthy=True)


class LatticeProvider(Calling):
    """A provider. Several instances with the same key share the calls; each one receives all links.

    Attributes:
        serving: the serving of its calls, with the registered handlers.
        links: links by actor.
        name: name in the registry; empty: no entry.
        stopped: event that is set after a shutdown by the host.
        on_link: function called for a new link; an exception refuses the link.
        on_unlink: function called for a deleted link.
        health: function that answers the host's health checks.
        unusable: number of messages other than calls that were malformed or too many, by kind.
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
        """Create a provider, which `start` connects to its calls.

        Args:
            connection: a connection that is open when the provider starts.
            key: public key of the provider (`V...`).
            contract_id: contract, such as `wasmcloud:keyvalue`.
            link_name: name of the link that this process serves.
            links: links to apply at the start.
            name: name in the registry; empty: no entry, because a host has made it.

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
        self.unusable: Counter[SubjectKind] = Counter()
        self._first_links = links
        self._subscriptions: list[Subscription] = []
        self._changes: asyncio.Queue[tuple[SubjectKind, Msg]] = asyncio.Queue(MAX_LINKS)
        self._changing = asyncio.Lock()
        self._worker: asyncio.Task[None] | None = None
        self._answering: set[asyncio.Task[None]] = set()
        self._comparing: asyncio.Task[None] | None = None

    @classmethod
    def of_host_data(
        cls, connection: LatticeConnection, data: HostData, contract_id: str
    ) -> LatticeProvider:
        """Return the provider that a host started; the connection has `options_of` the data."""
        return cls(connection, data.provider_key, contract_id, data.link_name, data.links, name="")

    def operation(self, name: str) -> Callable[[Handler], Handler]:
        """Return a decorator that registers an async function for an operation."""

        def register(handler: Handler) -> Handler:
            self.serving.handlers[name] = handler
            return handler

        return register

    async def start(self) -> None:
        """Apply the existing links, and begin to accept calls."""
        connection, lattice, origin = self._connection, self._options.lattice, self.origin
        for link in self._first_links:
            await self.put_link(link)
        for kind in (SubjectKind.LINK_PUT, SubjectKind.LINK_DEL, SubjectKind.HEALTH,
                     SubjectKind.SHUTDOWN):  # fmt: skip
            subject = provider_subject(lattice, origin.public_key, origin.link_name, kind)
            self._subscriptions.append(await connection.subscribe(subject, self._taker(kind)))
        self._worker = asyncio.create_task(self._work())
        if self.name:
            claims = ProviderClaims(origin.public_key, self.name, origin.contract_id)
            await Registry(connection).register(claims)
        await self._read_links()
        connection.on_connected(self._compare_later)
        self._subscriptions.append(
            await connection.subscribe(
                rpc_subject(lattice, origin), self.serving.receive, queue_group(lattice, origin)
            )
        )

    async def stop(self) -> None:
        """Stop accepting calls, and wait for those under way."""
        await self._finish()
        if self._answering:
            await asyncio.wait(self._answering, timeout=self._options.call_timeout_s)
        tasks = [task for task in (self._worker, self._comparing, *self._answering) if task]
        self._worker = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._connection.flush()

    async def put_link(self, link: LinkDefinition) -> None:
        """Apply a link: an unchanged one is ignored, one with other values replaces the former."""
        async with self._changing:
            former = self.links.get(link.actor_id)
            if not self._is_ours(link) or former == link:
                return
            if former is None and len(self.links) >= MAX_LINKS:
                _log.warning("lattice: refused the link of %s: %d links", link.actor_id, MAX_LINKS)
                return
            if former is not None:
                await self._delete(former)
            try:
                if self.on_link is not None:
                    await self.on_link(link)
            except Exception as error:
                _log.warning("lattice: refused the link of %s: %s", link.actor_id, error)
                return
            self.links[link.actor_id] = link

    async def delete_link(self, link: LinkDefinition) -> None:
        """Delete a link."""
        async with self._changing:
            if self._is_ours(link):
                await self._delete(link)

    async def _delete(self, link: LinkDefinition) -> None:
        if (former := self.links.pop(link.actor_id, None)) is None or self.on_unlink is None:
            return
        try:
            await self.on_unlink(former)
        except Exception:
            _log.exception("lattice: the end of the link of %s failed", link.actor_id)

    def _is_ours(self, link: LinkDefinition) -> bool:
        origin = self.origin
        return (link.provider_id, link.link_name) == (origin.public_key, origin.link_name)

    def _taker(self, kind: SubjectKind) -> Callable[[Msg], None]:
        is_change = kind in (SubjectKind.LINK_PUT, SubjectKind.LINK_DEL)

        def take(message: Msg) -> None:
            if is_change and not self._changes.full():
                self._changes.put_nowait((kind, message))
            elif not is_change and len(self._answering) < MAX_ANSWERING:
                task = asyncio.create_task(self._handle(kind, message))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)
            else:
                self.unusable[kind] += 1
                _log.warning("lattice: too many messages on %s", message.subject)

        return take

    async def _work(self) -> None:
        """Handle changes of links in the order in which they arrive."""
        while True:
            await self._handle(*await self._changes.get())

    async def _handle(self, kind: SubjectKind, message: Msg) -> None:
        try:
            if kind is SubjectKind.LINK_PUT:
                await self.put_link(decode_link(message.data))
            elif kind is SubjectKind.LINK_DEL:
                await self.delete_link(decode_link(message.data))
            elif kind is SubjectKind.HEALTH:
                await self._reply(message, (await self._health()).encode())
            elif message.reply and decode_shutdown(message.data) == self.host_id:
                await self._finish()
                await self._reply(message, SHUTTING_DOWN)
                await self._connection.flush()
                self.stopped.set()
        except LatticeError as error:
            self.unusable[kind] += 1
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
        """Read the links again: providers miss changes that occur while they are disconnected.

        Retries, because the hosts may reconnect later than this process.
        """
        for delay_s in COMPARE_AFTER_S:
            await asyncio.sleep(delay_s)
            if await self._read_links(all_of_them=True):
                return

    async def _read_links(self, *, all_of_them: bool = False) -> bool:
        """Ask a host for the links, and apply them; if none answers, the links do not change.

        Args:
            all_of_them: whether to delete links that the host does not list.

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
            listed = {link.actor_id for link in links if self._is_ours(link)}
            for gone in [each for key, each in self.links.items() if key not in listed]:
                await self.delete_link(gone)
        return True
