"""How full the outbox is for each account, as one worker knows it, and what its batches add.

A batch adds what it writes to the outbox to the counts in Redis: one ``HINCRBY`` for each account
and for each of its source twins, and one ``EXISTS`` for the lease of each shard. The replies are
the counts over all workers, so a bound is exceeded by at most what one batch of each worker has in
flight. A full account gets no more messages and therefore no more replies. Its counts are requested
instead: at most every `LOOK_S` while messages are refused, and always before a message would be
refused because of a reply older than `FRESH_S`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from redispipe import resp
from relay.federation.outbox import TOTAL, OutboxBounds, account_part
from relay.queues import keys
from relay.queues.batch import FRESH_S
from relay.queues.held import pack

LOOK_S: Final = 0.1
ACCOUNTS: Final = 10_000
"""Maximum number of accounts remembered. When it is reached all are forgotten, and each may then
exceed its bound by one batch."""

Ask = Callable[[bytes, Callable[[Any], None]], None]
Then = Callable[[], object]


class Account:
    """One list of relays, and the source twins that have used up their share of it."""

    __slots__ = ("_asking", "_bounds", "full", "full_sources", "key", "part", "seen_at", "text")

    def __init__(self, text: str, bounds: OutboxBounds) -> None:
        self.text = text
        self.part = account_part(text)
        self.key = keys.held(text)
        self.full = False
        self.seen_at = float("-inf")  # loop time of the reply that set `full`
        self.full_sources: dict[int, float] = {}  # the same for each full source: at most a few
        self._bounds = bounds
        self._asking: list[Then] | None = None  # callbacks that wait for a reply

    def takes(self, source: int) -> bool:
        """Check whether it takes one more message of a source twin, as of the last reply."""
        return not self.full and source not in self.full_sources

    def total_seen(self, now: float, reply: Any) -> None:
        """Record the packed count of everything held for this account, as of `now`."""
        if type(reply) is int:
            self.full = self._bounds.full(reply)
            self.seen_at = now

    def source_seen(self, source: int, now: float, reply: Any) -> None:
        """Record the packed count of what one source twin holds in this account, as of `now`."""
        if type(reply) is not int:
            return
        if self._bounds.share_full(reply):
            self.full_sources[source] = now
        else:
            self.full_sources.pop(source, None)

    def holds(self, source: int, now: float, ask: Ask) -> bool:
        """Check whether a message that the account does not take may be refused.

        False: the reply is too old to refuse by. A reply that is getting old is renewed.
        """
        age_s = now - (self.seen_at if self.full else self.full_sources[source])
        if age_s >= FRESH_S:
            return False
        if age_s >= LOOK_S and self._asking is None:
            self.look(now, ask)
        return True

    def look(self, now: float, ask: Ask, then: Then | None = None) -> None:
        """Ask Redis whether there is room again, then call `then`.

        Callers that ask while a request is in flight share its reply.
        """
        waiting = [] if then is None else [then]
        if self._asking is not None:
            self._asking += waiting
            return
        self._asking = waiting
        sources = list(self.full_sources)

        def answered(reply: Any) -> None:
            if isinstance(reply, list):
                total, *counts = [int(value or 0) for value in reply]
                self.total_seen(now, total)
                for source, count in zip(sources, counts, strict=True):
                    self.source_seen(source, now, count)
            else:  # unknown: messages are kept rather than lost
                self.full = False
                self.full_sources.clear()
            waiting, self._asking = self._asking or [], None
            for each in waiting:
                each()

        ask(resp.command("HMGET", self.key, TOTAL, *sources), answered)


class Accounts:
    """All accounts of a worker."""

    def __init__(self, bounds: OutboxBounds) -> None:
        self.bounds = bounds
        self._accounts: dict[str, Account] = {}

    def get(self, text: str) -> Account:
        """Return the account of that name (see `outbox.account_of`)."""
        account = self._accounts.get(text)
        if account is None:
            if len(self._accounts) >= ACCOUNTS:
                self._accounts.clear()
            account = self._accounts[text] = Account(text, self.bounds)
        return account


class Charge:
    """What one batch adds to accounts, and the shards that it writes to."""

    __slots__ = ("_accounts", "_on_idle", "_shards")

    def __init__(self, on_idle: Callable[[int], None]) -> None:
        """
        Args:
            on_idle: called with the number of a shard that no drainer holds.
        """
        self._accounts: dict[Account, dict[int, int]] = {}  # packed counts by source twin
        self._shards: set[int] = set()
        self._on_idle = on_idle

    def add(self, account: Account, source: int, shard: int, size_bytes: int) -> None:
        """Count one message."""
        sources = self._accounts.get(account)
        if sources is None:
            sources = self._accounts[account] = {}
        sources[source] = sources.get(source, 0) + pack(1, size_bytes)
        self._shards.add(shard)

    def encode(
        self,
        append: Callable[[bytes], None],
        handlers: list[Callable[[Any], None]],
        now: float,
    ) -> None:
        """Write the commands into a MULTI, and the handlers of their replies into `handlers`."""
        for account, sources in self._accounts.items():
            total = sum(sources.values())
            append(resp.command("HINCRBY", account.key, TOTAL, total))
            handlers.append(partial(account.total_seen, now))
            for source, packed in sources.items():
                append(resp.command("HINCRBY", account.key, source, packed))
                handlers.append(partial(account.source_seen, source, now))
        for shard in self._shards:
            append(resp.command("EXISTS", keys.lease(shard)))
            handlers.append(partial(self._lease_seen, shard))

    def _lease_seen(self, shard: int, reply: Any) -> None:
        # Without a reply (the batch turned out to be applied later) the shard may be idle. An
        # unneeded drainer ends when it cannot take the lease.
        if reply == 0 or reply is None:
            self._on_idle(shard)
