"""The gateway as a whole: how its parts fit, and its life from start to stop.

    msgbus.system.local ┐                            ┌ relay 1
    msgbus.system.reply ┴ SystemQueue -> Outgoing -> Unconfirmed -> Links ┤
                                                     └ relay 2..4
    msgbus.<command> ┐
    <ret>            ┴ QueueWrites <- Incoming <------------------- Links
                        Handlers of modules <--'

All writes to Redis go through `Commits`: batches that are applied once. What is under way in one
direction is bounded; above the bound the other end waits: system lists are not read while relays
take nothing, and relays are not read while Redis takes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Final, NamedTuple

from peer.errors import TooLargeError
from peer.gateway import keys, queues
from peer.gateway.backlog import Backlogs
from peer.gateway.bounds import ROOM_POLL_S
from peer.gateway.calls import Calls, Refused
from peer.gateway.commits import Commits
from peer.gateway.handlers import Handlers, ModuleContext, ModuleStore
from peer.gateway.incoming import Incoming
from peer.gateway.outgoing import Outgoing
from peer.gateway.queue_writes import QueueWrites
from peer.gateway.queues import SystemQueue
from peer.identity import Identity
from peer.link import Link
from peer.links import Links
from peer.modules.api import Module, Modules, stop_module
from peer.randomness import random_bytes
from peer.twins import Twin, TwinCache
from peer.unconfirmed import Unconfirmed
from proto.rmb.address import Address
from proto.rmb.errors import NotBinaryError
from proto.rmb.sealing import Sealer

log = logging.getLogger(__name__)

LinksFactory = Callable[[Callable[[bytes], None], Callable[[Link], None]], Links]
"""Makes the links, given who takes messages and who is told of changes."""

SWEEP_S: Final = 30.0
"""How often `msgbus.processing` is looked through for entries nobody works on."""

HANDLERS_S: Final = 2.0
"""How long handlers of modules may take at the end, those of requests that come meanwhile too."""

CONFIRM_S: Final = 1.0
"""How long relays may take at the end to confirm what was sent; the next start sends the rest."""

DROPPED_LOGGED: Final = 1000
"""Of so many errors that are dropped one is logged: anybody can cause them."""

STOP_S: Final = 5.0
"""How long writes may take at the end."""

COUNTERS: Final = {
    "requests_sent": "Requests of local programs sent, one for each destination",
    "responses_sent": "Answers of local services sent",
    "errors_sent": "Errors of local services sent",
    "requests_received": "Verified requests of other twins",
    "responses_received": "Verified answers of other twins",
    "errors_received": "Verified errors of other twins",
    "relay_errors": "Errors made by relays",
    "handled": "Requests answered by modules",
    "handled_local": "Requests of local programs answered by modules",
    "repeats": "Messages that were here before",
    "resumed": "Entries found in hand of a former process or connection",
    "keys_changed": "Twins whose changed keys were noticed by a message that did not open",
    "dead_letters": "Entries that could not be read",
    "refused": "Entries of local programs and services that were not sent",
    "rejected": "Incoming messages that could not be used, by the code of the error",
    "dropped": "Incoming messages that were dropped without an answer",
}
"""Names in `Gateway.counters`, what comes after a colon there left out, and what they count."""

REASONS: Final = {
    "refused": ("malformed", "expired", "unsent", "unsendable"),
    "rejected": ("100", "101", "102", "103", "104", "105", "106", "429", "500"),
    "dropped": (
        "uid_too_long",
        "misdirected",
        "twins_away",
        "kind",
        "unmatched",
        "errors",
        "ending",
        "list",
        "late",
    ),
}
"""What comes after the colon. All begin at 0: who looks for a rise sees the first one too."""

GAUGES: Final = {
    "in_hand": "Entries taken from system lists whose messages are not settled",
    "unconfirmed": "Messages no relay has confirmed",
    "unsent": "Messages no relay has taken",
    "resent": "Messages sent again after a connection to a relay was lost",
    "redis_connected": "Whether Redis takes writes",
}
"""Names in `Gateway.gauges`, and what they say."""


def _with_reasons(name: str) -> list[str]:
    """The keys of a counter."""
    return [f"{name}:{reason}" for reason in REASONS[name]] if name in REASONS else [name]


class _Unkept(NamedTuple):
    """Token of a message that is in memory only."""

    number: int
    refused: Refused | None  # called when it is too large for the relays


class Gateway:
    """One twin's gateway.

    Args:
        identity: the twin's keys.
        twin: the twin itself.
        twins: all twins.
        links: makes the links to its relays.
        redis_url: where the queues are.
        modules: commands that are answered here.

    Attributes:
        counters: what happened, see COUNTERS.
        links: to its relays.
    """

    def __init__(
        self,
        identity: Identity,
        twin: Twin,
        twins: TwinCache,
        links: LinksFactory,
        redis_url: str,
        modules: Sequence[Module] = (),
    ) -> None:
        self.counters = Counter({key: 0 for name in COUNTERS for key in _with_reasons(name)})
        own = Address(twin.id)
        self._own = own
        self._modules = modules
        self._started: list[Module] = []
        by_prefix = Modules.of(*modules)
        encryption = identity.encryption_as(twin.pk)
        if encryption is None:
            log.warning("twin %d has not published this key: nothing is encrypted", twin.id)
        self._sealer = Sealer(own, identity.key, encryption, random_bytes)
        self._numbers = itertools.count()
        self.links = links(self._received, self._link_changed)
        for link in self.links.links:
            link.on_text = self._text_received
        self._commits = Commits(redis_url, self._redis_has_room)
        self._writes = writes = QueueWrites(self._commits, self.counters)
        backlogs = Backlogs(self._commits)
        self._unconfirmed = Unconfirmed(
            self.links,
            self._make_ping,
            self._settled,
            self._expired,
            self._refused,
            self._relays_have_room,
        )
        self._room = asyncio.Event()
        self._calls = Calls(self._sealer, twins, self._send)
        self._handlers = Handlers(
            by_prefix,
            self._sealer,
            twins,
            writes,
            self._wait_for_room,
            self._send,
            self._send_refusal,
            self.counters,
        )
        self._outgoing = Outgoing(
            own,
            self._sealer,
            twins,
            self._commits,
            writes,
            backlogs,
            self._unconfirmed,
            by_prefix,
            self._handlers.serve_local,
            self.counters,
            self._balance,
        )
        self._incoming = Incoming(
            own,
            self._sealer,
            twins,
            self._commits,
            writes,
            backlogs,
            self._calls,
            self._handlers.serve,
            self._handlers.refuse,
            self._send_error,
            self._outgoing.answered,
            self._unconfirmed.pong,
            self.counters,
            self._flooded,
        )
        fields = queues.Fields()
        self._queues = (
            SystemQueue(
                redis_url,
                keys.LOCAL,
                queues.REQUEST,
                fields,
                self._outgoing.take_request,
                self._entries_taken,
                self._look_again,
            ),
            SystemQueue(
                redis_url,
                keys.REPLY,
                queues.RESPONSE,
                fields,
                self._outgoing.take_response,
                self._entries_taken,
                self._look_again,
            ),
        )
        self._sweep_now = asyncio.Event()

    def gauges(self) -> dict[str, float]:
        """How things stand, see GAUGES."""
        return {
            "in_hand": self._outgoing.in_hand,
            "unconfirmed": len(self._unconfirmed),
            "unsent": self._unconfirmed.waiting,
            "resent": self._unconfirmed.resent,
            "redis_connected": float(self._commits.pipe.usable),
        }

    async def run(self, stop: asyncio.Event) -> None:
        """Serves until `stop` is set."""
        serving = asyncio.create_task(self._serve())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((stopping, serving), return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()  # it does not end by itself
        finally:
            stopping.cancel()
            serving.cancel()
            await asyncio.gather(stopping, serving, return_exceptions=True)
            await self._aclose()

    async def _serve(self) -> None:
        self._commits.start()
        self._incoming.restore(await self._signatures())
        # The gateway's own come last: an upload that had arrived calls a command of the others.
        for module in reversed(self._modules):
            store = ModuleStore(self._commits, module.prefix)
            context = ModuleContext(
                self._own.twin, store, self._calls, self._writes, self._handlers.deliver
            )
            await module.on_start(context)
            self._started.append(module)
        self.links.start()
        # What a former process left goes out before anything newer does.
        await self._sweep()
        async with asyncio.TaskGroup() as tasks:
            for queue in self._queues:
                tasks.create_task(queue.run())
            tasks.create_task(self._keep_sweeping())

    async def _aclose(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HANDLERS_S):
                await self._incoming.worked()
                await self._handlers.idle()
        # While there are links, so that whoever asked a module that ends is told.
        await self._handlers.aclose()
        for module in reversed(self._started):
            await stop_module(module, log)
        await self._outgoing.aclose()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CONFIRM_S):
                await self._unconfirmed.flush()
        await self.links.aclose()
        self._unconfirmed.close()
        await self._incoming.aclose()
        await self._commits.aclose(STOP_S)

    # Between the parts.

    def _received(self, data: bytes) -> None:
        self._incoming.receive(data)

    def _text_received(self) -> None:
        self.counters[f"rejected:{NotBinaryError.code}"] += 1

    def _link_changed(self, link: Link) -> None:
        self._unconfirmed.changed(link)

    def _make_ping(self) -> tuple[str, bytes]:
        return self._sealer.ping(int(time.time()))

    def _send(self, data: bytes, deadline: int, refused: Refused | None = None) -> None:
        """Sends what is kept nowhere: what a module asks or answers, or an error."""
        self._unconfirmed.send(data, deadline, _Unkept(next(self._numbers), refused))

    def _send_error(self, data: bytes, deadline: int) -> None:
        """Sends the error for what can't be used; anybody can cause many."""
        self._send_unless(self._unconfirmed.full, data, deadline)

    def _send_refusal(self, data: bytes, deadline: int, refused: Refused | None = None) -> None:
        """Sends the error for a verified request that is not carried out."""
        self._send_unless(self._unconfirmed.overfull, data, deadline)

    def _send_unless(self, full: bool, data: bytes, deadline: int) -> None:
        if not full:
            self._send(data, deadline)
            return
        self.counters["dropped:errors"] += 1
        if self.counters["dropped:errors"] % DROPPED_LOGGED == 1:
            log.warning("relays do not take enough: errors for others are dropped")

    def _settled(self, token: Hashable) -> None:
        if isinstance(token, str):
            self._outgoing.settled(token)

    def _expired(self, token: Hashable) -> None:
        if isinstance(token, str):
            self._outgoing.expired(token)

    def _refused(self, token: Hashable, error: TooLargeError) -> None:
        if isinstance(token, str):
            self._outgoing.refused(token)
        elif isinstance(token, _Unkept) and token.refused is not None:
            # Not now: it may send, and the window must not be sent to.
            asyncio.get_running_loop().call_soon(token.refused, error)

    # Who waits for whom.

    def _entries_taken(self) -> None:
        """Has what came of them written with the next read: Redis does both when it wakes up."""
        self._balance()
        self._commits.flush()

    def _balance(self) -> None:
        """Takes from the system lists as long as there is room for it."""
        full = self._outgoing.full or self._unconfirmed.full or self._commits.full
        for queue in self._queues:
            if full:
                queue.pause()
            else:
                queue.resume()

    async def _wait_for_room(self) -> None:
        while self._unconfirmed.overfull:
            self._room.clear()
            await self._room.wait()

    def _relays_have_room(self) -> None:
        self._room.set()
        self._balance()

    def _redis_has_room(self) -> None:
        self._incoming.resume()
        self._balance()

    def _flooded(self, flooded: bool) -> None:
        if flooded:
            self.links.pause()
        else:
            self.links.resume()

    # What is in hand and nobody works on.

    def _look_again(self) -> None:
        self._sweep_now.set()

    async def _keep_sweeping(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SWEEP_S):
                    await self._sweep_now.wait()
            self._sweep_now.clear()
            await self._sweep()

    def _holds(self, field: str) -> bool:
        """Whether a field is worked on here, or its entry is in a reply still to come."""
        return self._outgoing.holds(field) or any(queue.asks(field) for queue in self._queues)

    async def _sweep(self) -> None:
        """Goes on with entries in the hash that nobody here knows, oldest first."""
        for field in await queues.held(self._commits.ask):
            if self._holds(field):
                continue
            while self._outgoing.full or self._unconfirmed.full or self._commits.full:
                await asyncio.sleep(ROOM_POLL_S)
            if not self._holds(field):
                value = await queues.value(self._commits.ask, field)
                if value is not None:
                    self._outgoing.adopt(field, value)

    async def _signatures(self) -> frozenset[bytes]:
        found: list[bytes] = await self._commits.ask("LRANGE", keys.SEEN, 0, -1)
        return frozenset(found)
