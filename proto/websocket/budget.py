"""Who has to go when the incomplete messages of one process hold all they may together.

Of the account that holds the most, the connection that holds the most. What is asked for counts as
held by the asker, who goes himself where that makes him the one, or equal to another. So

- nobody is ended for an account that holds as much as his own, or more: to take from others one
  has to hold less than they do;
- of n accounts that hold something, each has an n-th of it all for certain, in however many
  connections: in a budget of 64 MiB one needs 64 accounts to end a message of a MiB;
- who asks for little gets in, and few have to go for one that asks for much.

Time plays no part. Who began first may be an honest client on a slow line, whom others pass that
begin again and again. So may the one that was silent for longest: a byte now and then costs an
attacker nothing, and a lost packet is a second of silence. Either may hold a few bytes only, and
then many would have to go to make room for one message. Silence has a time-out of its own
(`relay.idle_timeout_s`).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from proto.websocket.bounds import PARTIAL_BYTES, PartialBudget


class Holder(Hashable, Protocol):
    """One connection, as the budget sees it.

    Attributes:
        account: those with the same one are counted together; None: it is one of its own.
        charged_bytes: what it holds of the budget; written by the budget.
    """

    account: Hashable | None
    charged_bytes: int

    def give_up(self) -> None:
        """Let go of all: nothing is charged any more. Called within another holder's `settle`."""


class MessageBudget(PartialBudget):
    """Memory that all readers of one process may hold in incomplete messages."""

    __slots__ = ("_holders",)

    def __init__(self, limit_bytes: int = PARTIAL_BYTES) -> None:
        super().__init__(limit_bytes)
        self._holders: dict[Holder, None] = {}  # of something

    def settle(self, holder: Holder, held_bytes: int) -> bool:
        """Account for what a holder holds now; others may be ended for it.

        Returns:
            False, with nothing changed for the holder, when it is the one that has to go.
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
        """Who has to go. Looking at a thousand holders takes 0.3 ms; each look ends a connection,
        whose handshake took three times that."""
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
