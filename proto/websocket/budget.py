"""Choice of the connection to end when the incomplete messages of one process exceed their bound.

The connection that is ended is the one that holds the most, of the account that holds the most. The
requested bytes count as held by the requesting connection, which is ended itself if that makes it
the largest, or equal to another. As a result:

- no connection is ended for an account that holds as much as its own, or more: only an account that
  holds less than others can take from them;
- of n accounts that hold memory, each is guaranteed an n-th of the total, in however many
  connections: with a budget of 64 MiB, an attacker needs 64 accounts to end a message of one MiB;
- small requests are granted, and a large request ends few connections.

Time plays no part. The oldest message may belong to an honest client on a slow line, while others
start again and again. The same holds for the connection that was silent for longest: an attacker
can send a byte now and then at no cost, while a lost packet causes a second of silence. Either of
them may hold only a few bytes, so that many would have to be ended to make room for one message.
Silence has a time-out of its own (`relay.idle_timeout_s`).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from proto.websocket.bounds import PARTIAL_BYTES, PartialBudget


class Holder(Hashable, Protocol):
    """One connection, as the budget sees it.

    Attributes:
        account: connections with the same account are counted together; None if the connection is
            counted by itself.
        charged_bytes: bytes of the budget that it holds; written by the budget.
    """

    account: Hashable | None
    charged_bytes: int

    def give_up(self) -> None:
        """Release all held memory, which is no longer charged; called in another's `settle`."""


class MessageBudget(PartialBudget):
    """Memory that all readers of one process may hold in incomplete messages."""

    __slots__ = ("_holders",)

    def __init__(self, limit_bytes: int = PARTIAL_BYTES) -> None:
        super().__init__(limit_bytes)
        self._holders: dict[Holder, None] = {}  # holders with charged bytes

    def settle(self, holder: Holder, held_bytes: int) -> bool:
        """Account for the bytes that a holder holds now; other holders may be ended for it.

        Returns:
            False, with nothing changed for the holder, if it is the one that must be ended.
        """
        more = held_bytes - holder.charged_bytes
        if more > 0 and not self._make_room(holder, more):
            return False
        self.used_bytes += more
        holder.charged_bytes = held_bytes
        if held_bytes:
            self._holders[holder] = None
        else:
            self._holders.pop(holder, None)
        return True

    def _make_room(self, asker: Holder, more: int) -> bool:
        while self.used_bytes + more > self.limit_bytes:
            self.refused += 1
            heaviest = self._heaviest(asker, more)
            if heaviest is asker:
                return False
            self.settle(heaviest, 0)
            heaviest.give_up()
        return True

    def _heaviest(self, asker: Holder, more: int) -> Holder:
        """Return the holder that must be ended. A scan of a thousand holders takes 0.3 ms, and each
        scan ends a connection, whose handshake took three times that.
        """
        own = _account(asker)
        shares = {own: more}
        for holder in self._holders:
            account = _account(holder)
            shares[account] = shares.get(account, 0) + holder.charged_bytes
        heaviest = asker
        heaviest_bytes = 0
        account_to_go = max(shares, key=shares.__getitem__)  # the first of equals, which is `own`
        if account_to_go == own:
            heaviest_bytes = asker.charged_bytes + more
        for holder in self._holders:
            if holder.charged_bytes > heaviest_bytes and _account(holder) == account_to_go:
                heaviest = holder
                heaviest_bytes = holder.charged_bytes
        return heaviest


def _account(holder: Holder) -> Hashable:
    return holder if holder.account is None else holder.account
