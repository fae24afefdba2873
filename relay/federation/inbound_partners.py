"""Who brings messages here: what the operator decided about them, and that they were heard.

A relay names itself in a header, which anybody can write, so a name alone gives no right. A
*trusted* relay, whose messages are taken without the signature of their source twin, must also
call from an address its domain resolves to. *Blocked* needs no proof: who claims to be a blocked
relay is refused, and so is what a twin has signed that only blocked relays serve.

That a relay was heard ends the back-off that messages to it may be in; it is written each second.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from proto.federation import domains
from proto.federation.domains import reachable
from proto.limits.addresses import place_of
from redispipe import resp
from relay.queues import keys

if TYPE_CHECKING:
    from relay.sessions.worker import Worker

log = logging.getLogger(__name__)

TRUSTED: Final = "trusted"
BLOCKED: Final = "blocked"
FLUSH_S: Final = 1.0
START_LOOK_S: Final = 0.02
"""Between two looks whether the control state was read."""
RESOLVE_S: Final = 60.0
"""How long the addresses of a trusted domain are used; the old ones stay while none are found."""
RESOLVING_S: Final = 5.0
"""How long one domain may take to be looked up: they go side by side, and all wait for the last."""
MAX_HEARD: Final = 10_000
"""Domains noted between two writes."""


class Partner(NamedTuple):
    """Who sent one request, as far as that is known.

    Attributes:
        domain: what it calls itself; empty: nothing, as the reference relay.
        trusted: no signatures are asked for.
        blocked: nothing is taken.
        unsettled: it may be trusted, but addresses were not found yet: nothing that trust would
            let in is refused for good.
        place: what the limits of its address are counted under.
        banned: its address is; nothing is taken.
    """

    domain: str
    trusted: bool
    blocked: bool
    unsettled: bool
    place: str
    banned: bool = False


class InboundPartners:
    """What one worker knows of the relays that bring messages."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._addresses: dict[str, frozenset[str]] = {}  # of trusted domains
        self._received: Counter[str] = Counter()  # since the last write
        self._resolved = False  # whether the addresses were looked for at all
        self._resolve_at = 0.0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begins to write and to resolve."""
        loop = self._worker.loop
        self._tasks = [
            loop.create_task(self._write_heard()),
            loop.create_task(self._resolve_trusted()),
        ]

    async def stop(self) -> None:
        """Writes what is left, and ends."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._flush()

    def identify(self, address: str, domain: str) -> Partner:
        """Who calls from an address under a name."""
        control = self._worker.upkeep.control
        flags = control.relays
        banned = self._worker.router.banned_addresses.covers(address)
        if domain:
            own = flags.get(domain, frozenset())
            known = self._addresses.get(domain)
            trusted = TRUSTED in own and address in (known or ())
            unsettled = TRUSTED in own and not known
            return Partner(domain, trusted, BLOCKED in own, unsettled, place_of(address), banned)
        trusted = any(
            address in known
            for name, known in self._addresses.items()
            if TRUSTED in flags.get(name, ())  # as of now: names may take a while to be looked up
        )
        unsettled = not self._resolved and (
            not control.known or any(TRUSTED in own for own in flags.values())
        )
        return Partner("", trusted, False, unsettled, place_of(address), banned)

    def blocks(self, relays: tuple[str, ...]) -> bool:
        """Whether a twin with these relays is served by blocked ones only."""
        flags = self._worker.upkeep.control.relays
        if not flags:
            return False
        served_elsewhere = False
        for relay in reachable(relays):
            if relay not in self._worker.domains:
                if BLOCKED not in flags.get(relay, ()):
                    return False
                served_elsewhere = True
        return served_elsewhere

    def heard(self, partner: Partner, relays: tuple[str, ...], messages: int) -> None:
        """Messages were accepted.

        Args:
            partner: who brought them.
            relays: those of their source twin, which vouches for one of them; empty: unknown.
            messages: how many.
        """
        domain = partner.domain
        if not (partner.trusted and domain) and domain not in relays:
            others = [each for each in reachable(relays) if each not in self._worker.domains]
            if not others:
                return
            domain = others[0]
        if domain in self._received or len(self._received) < MAX_HEARD:
            self._received[domain] += messages

    async def _write_heard(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            self._flush()

    def _flush(self) -> None:
        received, self._received = self._received, Counter()
        commit = self._worker.commit
        now = f"{self._worker.wall_s():.3f}"
        for domain, count in received.items():
            name = keys.partner(domain)
            for command in (
                ("HINCRBY", name, "received", count),
                ("HSET", name, "heard", now),
                ("SADD", keys.PARTNERS, domain),
            ):
                commit.add_extra(resp.command(*command), lambda reply: None)

    async def _resolve_trusted(self) -> None:
        while True:
            control = self._worker.upkeep.control
            if not control.known:
                await asyncio.sleep(START_LOOK_S)
                continue
            flags = control.relays
            trusted = {domain for domain, own in flags.items() if TRUSTED in own}
            now = self._worker.loop.time()
            if trusted != self._addresses.keys() or (trusted and now >= self._resolve_at):
                self._resolve_at = now + RESOLVE_S
                names = list(trusted)
                found = await asyncio.gather(*map(_resolve, names))
                self._addresses = {
                    domain: addresses or self._addresses.get(domain, frozenset())
                    for domain, addresses in zip(names, found, strict=True)
                }
            self._resolved = True
            await asyncio.sleep(FLUSH_S)


async def _resolve(domain: str) -> frozenset[str]:
    """The addresses of a domain, which may have a port."""
    try:
        host = domains.parse(domain).host
        loop = asyncio.get_running_loop()
        asked = loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        found = await asyncio.wait_for(asked, RESOLVING_S)
        return frozenset(str(ipaddress.ip_address(entry[4][0])) for entry in found)
    except (OSError, ValueError) as error:  # a time-out, too
        log.warning("trusted relay %s has no address: %s", domain, error or "no answer in time")
        return frozenset()
