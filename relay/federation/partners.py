"""State of partner relays in a process that delivers to them, and its copy in Redis.

Whether a relay may be tried is decided from memory. The copy in Redis, `federation:relay:<domain>`,
survives restarts and is read by other processes and by the pages; workers write to it when the
relay was heard. It is read when a domain is first used, and once a second while something about it
may change from outside: while the relay fails, is paused, or an operator changed anything.
Successes are added up and written once a second.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Final

from proto.federation.delivery import Setbacks
from redispipe import resp
from redispipe.pipe import RedisPipe
from relay.federation.counters import Tally
from relay.ops.control import RELAY_PREFIX
from relay.ops.redis_client import number
from relay.queues import keys

MAX_PARTNERS: Final = 10_000
"""Maximum number of relays kept in memory, as twins name their relays freely. Above it the least
recently used one is forgotten, and read from Redis when it is used again; those in use are kept
even so."""
LOOKED_AT: Final = 32
"""Relays examined to find one that can be forgotten."""
READ_AT_ONCE: Final = 64
"""Relays whose state is read together, which takes some milliseconds; then messages get a turn."""
READ_EACH_TIME: Final = 512
"""Maximum number of failing relays whose state one refresh reads; if more fail, they take turns."""
LATENCY_WEIGHT: Final = 0.1
"""Weight of a new delivery in the moving average."""
MAX_ERROR_CHARS: Final = 120
PUT_OFF_S: Final = 1.0


class Partner:
    """One partner relay.

    Attributes:
        setbacks: its failures in a row.
        batch: whether it takes the batch form.
        paused: whether an operator stopped sending to it.
        blocked: whether an operator blocked it in both directions.
        loaded: whether its state was read; false again once it is forgotten.
        put_off_until: unix time until which it is not tried, as an attempt was impossible for a
            local reason; 0 once it has accepted messages since.
    """

    __slots__ = (
        "accepted",
        "batch",
        "blocked",
        "changed",
        "domain",
        "latency_ms",
        "loaded",
        "paused",
        "put_off_until",
        "setbacks",
        "success_at",
    )

    def __init__(self, domain: str) -> None:
        self.domain = domain
        self.setbacks = Setbacks()
        self.batch = False
        self.paused = False
        self.blocked = False
        self.loaded = False
        self.put_off_until = 0.0
        self.latency_ms = 0.0
        self.success_at = 0.0
        self.accepted = 0  # since the last flush
        self.changed = False  # something to be flushed

    @property
    def open(self) -> bool:
        """Whether its state is known, and nothing keeps messages from being sent to it."""
        against = self.setbacks.failures or self.paused or self.blocked or self.put_off_until
        return self.loaded and not against

    def retry_at(self) -> float:
        """Return the unix time from which it may be tried again."""
        if self.paused or self.blocked:
            return math.inf
        return max(self.setbacks.retry_at, self.put_off_until)


class Partners:
    """All relays that a process delivers to."""

    def __init__(
        self,
        pipe: RedisPipe,
        clock: Callable[[], float],
        random: Callable[[], float],
        batch: bool,
        tally: Tally,
        forget: Callable[[Partner], bool],
    ) -> None:
        """
        Args:
            pipe: connection for commands.
            clock: returns unix seconds.
            random: returns a number from 0 up to 1.
            batch: whether to use the batch form where it is offered.
            tally: counters of the relays' answers.
            forget: called with a relay that is about to be forgotten; returns whether it is not in
                use.
        """
        self._pipe = pipe
        self._clock = clock
        self._random = random
        self._use_batch = batch
        self._forget = forget
        self._partners: dict[str, Partner] = {}
        self._version: Any = None
        self._refreshed = 0  # number of failing relays that had their turn
        self._tally = tally

    def get(self, domain: str) -> Partner:
        """Return the relay of that domain; check that it is `loaded` before using it."""
        partner = self._partners.pop(domain, None)
        if partner is None:
            if len(self._partners) >= MAX_PARTNERS:
                self._make_room()
            partner = Partner(domain)
        self._partners[domain] = partner  # moved to the end: ordered by last use
        return partner

    def _make_room(self) -> None:
        for partner in list(islice(self._partners.values(), LOOKED_AT)):
            del self._partners[partner.domain]
            if partner.loaded and self._forget(partner):  # else a lane waits for its state
                self._flush(partner)
                partner.loaded = False  # lanes that used it last get it again
                return
            self._partners[partner.domain] = partner

    async def load(self, partners: Iterable[Partner]) -> None:
        """Read the state in Redis.

        Raises:
            LinkLost: Redis went away.
        """
        await asyncio.gather(*(self._read(partner) for partner in partners))

    # --- outcomes -----------------------------------------------------------------------------

    def accepted(self, partner: Partner, took_s: float, ages_s: Sequence[float]) -> None:
        """Record that a request was answered and messages of these ages were accepted."""
        now = self._clock()
        partner.accepted += len(ages_s)
        self._tally.delivered(partner.domain, ages_s)
        took_ms = took_s * 1000
        weight = LATENCY_WEIGHT if partner.success_at else 1.0
        partner.latency_ms += (took_ms - partner.latency_ms) * weight
        partner.success_at = now
        partner.put_off_until = 0.0
        partner.changed = True
        if partner.setbacks.failures:
            self.works(partner)

    def works(self, partner: Partner) -> None:
        """Record a valid answer, which ends the relay's back-off."""
        if not partner.setbacks.failures:
            return
        partner.setbacks.succeeded()
        self._send("HDEL", keys.partner(partner.domain), "retry_at", "failures")

    def failed(self, partner: Partner, started: float, why: str, wait_s: float) -> None:
        """Record a failed attempt."""
        partner.changed = True
        self._tally.failed(partner.domain)
        now = self._clock()
        if not partner.setbacks.failed(started, now, self._random, wait_s):
            return
        fields: dict[str, str | int] = {
            "failures": partner.setbacks.failures,
            "retry_at": f"{partner.setbacks.retry_at:.3f}",
            "last_failure": f"{now:.3f}",
            "last_error": why[:MAX_ERROR_CHARS],
        }
        pairs = [part for pair in fields.items() for part in pair]
        self._send("HSET", keys.partner(partner.domain), *pairs)

    def put_off(self, partner: Partner) -> None:
        """Record that a delivery could not be attempted; it is retried soon."""
        partner.put_off_until = self._clock() + PUT_OFF_S

    def declined(self, partner: Partner) -> None:
        """Record that a working relay declined a message for now."""
        partner.changed = True
        self._tally.failed(partner.domain)

    def offers(self, partner: Partner, batch: bool) -> None:
        """Record whether an answer offered the batch form."""
        if batch == partner.batch or not self._use_batch:
            return
        partner.batch = batch
        name = keys.partner(partner.domain)
        if batch:
            self._send("HSET", name, "kind", "ours")
        else:
            self._send("HDEL", name, "kind")

    # --- once a second ------------------------------------------------------------------------

    async def refresh(self) -> list[Partner]:
        """Read the state that may have changed.

        Returns:
            Relays that may be tried earlier than was known.
        """
        version = await self._pipe.call("HGET", keys.CONTROL, "version")
        partners = list(self._partners.values())
        if version == self._version:
            partners = self._next_in_doubt(partners)
        earlier: list[Partner] = []
        for at in range(0, len(partners), READ_AT_ONCE):
            page = partners[at : at + READ_AT_ONCE]
            # Relays that were forgotten meanwhile are not used again.
            before = {partner: partner.retry_at() for partner in page if partner.loaded}
            await self.load(before)
            earlier += [partner for partner, at in before.items() if partner.retry_at() < at]
        self._version = version  # only now: if Redis became unavailable, all have to be read again
        return earlier

    def _next_in_doubt(self, partners: list[Partner]) -> list[Partner]:
        """Return the relays that are not open, a limited number at a time."""
        found = [each for each in partners if each.loaded and not each.open]
        if len(found) <= READ_EACH_TIME:
            return found
        begin = self._refreshed % len(found)
        self._refreshed = begin + READ_EACH_TIME
        return (found[begin:] + found[:begin])[:READ_EACH_TIME]

    def flush(self) -> None:
        """Write the successes since the last call."""
        for partner in self._partners.values():
            self._flush(partner)

    def _flush(self, partner: Partner) -> None:
        if not partner.changed:
            return
        partner.changed = False
        name = keys.partner(partner.domain)
        self._send("SADD", keys.PARTNERS, partner.domain)
        if partner.accepted:
            self._send("HINCRBY", name, "sent", partner.accepted)
            success_at, latency = f"{partner.success_at:.3f}", f"{partner.latency_ms:.2f}"
            self._send("HSET", name, "last_success", success_at, "latency_ms", latency)
        partner.accepted = 0

    async def _read(self, partner: Partner) -> None:
        pipe, setbacks = self._pipe, partner.setbacks
        before = setbacks.failures, setbacks.retry_at
        fields, flags = await asyncio.gather(
            pipe.call("HGETALL", keys.partner(partner.domain)),
            pipe.call("HGET", keys.CONTROL, f"{RELAY_PREFIX}{partner.domain}"),
        )
        state = dict(zip(fields[::2], fields[1::2], strict=True))
        partner.batch = self._use_batch and state.get(b"kind") == b"ours"
        words = (flags or b"").split()
        partner.paused, partner.blocked = b"paused" in words, b"blocked" in words
        if not partner.loaded:
            partner.latency_ms = number(state.get(b"latency_ms"))
            partner.success_at = number(state.get(b"last_success"))
        partner.loaded = True
        now = self._clock()
        # The clock may have been set back.
        partner.put_off_until = min(partner.put_off_until, now + PUT_OFF_S)
        if before != (setbacks.failures, setbacks.retry_at):
            return  # it changed meanwhile: what was read is older
        failures = int(number(state.get(b"failures")))
        setbacks.stored(failures, number(state.get(b"retry_at")), now)
        if failures and number(state.get(b"heard")) > number(state.get(b"last_failure")):
            self.works(partner)

    def _send(self, *arguments: resp.Argument) -> None:
        """Send a command. A lost connection loses at most a second's worth of figures."""
        self._pipe.submit(resp.command(*arguments), _ignore)


def _ignore(reply: Any) -> None:
    """Ignore the reply: nothing depends on it."""
