"""The partner relay behind a request: the operator's decisions about it, and when it was heard.

A relay names itself in a header, which any client can write, so a name alone gives no right. A
*trusted* relay, whose messages are accepted without the signature of their source twin, must also
call from an address that its domain resolves to. *Blocked* needs no proof: a client that claims to
be a blocked relay is refused, and so is a message signed by a twin that only blocked relays serve.

Hearing from a relay ends the back-off of messages to it; this is written once a second.
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
"""Seconds between two checks whether the control state was read."""
RESOLVE_S: Final = 60.0
"""Seconds for which a trusted domain's addresses are used; they stay if no new ones are found."""
RESOLVING_S: Final = 5.0
"""Maximum seconds for one domain's look-up: look-ups run in parallel, and all wait for the last."""
MAX_HEARD: Final = 10_000
"""Maximum number of domains recorded between two writes."""


class Partner(NamedTuple):
    """The relay that sent a request, as far as it is known.

    Attributes:
        domain: name that it gives itself; empty if it gives none, as the reference relay.
        trusted: whether its messages need no signatures.
        blocked: whether nothing is accepted from it.
        unsettled: whether it may turn out to be trusted, as addresses were not found yet. No
            message that trust would admit is then refused for good.
        place: address or network under which the limits count it.
        banned: whether its address is banned; nothing is accepted from it then.
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
        self._addresses: dict[str, frozenset[str]] = {}  # by trusted domain
        self._received: Counter[str] = Counter()  # since the last write
        self._resolved = False  # whether the addresses were looked for at all
        self._resolve_at = 0.0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the tasks that write and resolve."""
        loop = self._worker.loop
        self._tasks = [
            loop.create_task(self._write_heard()),
            loop.create_task(self._resolve_trusted()),
        ]

    async def stop(self) -> None:
        """Stop the tasks, and write what is left."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._flush()

    def identify(self, address: str, domain: str) -> Partner:
        """Return the partner that calls from an address under a name."""
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
            if TRUSTED in flags.get(name, ())  # by the current flags, as look-ups may lag behind
        )
        unsettled = not self._resolved and (
            not control.known or any(TRUSTED in own for own in flags.values())
        )
        return Partner("", trusted, False, unsettled, place_of(address), banned)

    def blocks(self, relays: tuple[str, ...]) -> bool:
        """Check whether a twin with these relays is served by blocked ones only."""
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
        """Record that messages were accepted.

        Args:
            partner: the relay that brought them.
            relays: relays of the source twin, which vouches for them; empty if unknown.
            messages: number of messages.
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
    """Return the addresses of a domain, which may include a port."""
    try:
        host = domains.parse(domain).host
        loop = asyncio.get_running_loop()
        asked = loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        found = await asyncio.wait_for(asked, RESOLVING_S)
        return frozenset(str(ipaddress.ip_address(entry[4][0])) for entry in found)
    except (OSError, ValueError) as error:  # includes a time-out
        log.warning("trusted relay %s has no address: %s", domain, error or "no answer in time")
        return frozenset()
