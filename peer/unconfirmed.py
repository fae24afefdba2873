"""Messages that were sent and may be lost: kept until a relay has them, resent when a link breaks.

The protocol has no acknowledgement, but a relay answers a ping only when everything before it on
that connection is decided and stored. So each link is pinged now and then, and the pong confirms
what was sent before. When a link ends, its unconfirmed messages are sent again over any available
link, byte for byte the same, so that a receiver recognises a repeat by its signature.

    send()  -->  a link accepts it             -->  pong, or `settle`  -->  on_settled(token)
                 no link does: it waits        -->  deadline passed    -->  on_expired(token)
                 all relays find it too large  ----------------------->     on_refused(token, error)

A relay may end a session because of one message, and would do so again and again. When the relay
reports that one was too large, the largest is not sent to it again. Otherwise messages that two
sessions have lost are set aside: they are sent after everything else, one at first, then twice as
many each time.

A ping is a message and counts against the twin's limit at its relay. So an answer that comes
earlier settles its request (`settle`), and pings are sent only while something is unconfirmed.

A relay that answers no ping may be frozen: if another one is connected, the messages of the first
are sent over that as well. A message counts as not sent if a ping after it has no pong by the
deadline of the message.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Hashable
from typing import Final

from peer.errors import TooLargeError
from peer.lanes import Lane, Lanes
from proto.rmb.bounds import MAX_MESSAGE_BYTES

BARRIER_S: Final = 1.0
"""Seconds between pings on one link while little is sent."""

BARRIER_MESSAGES: Final = 256
"""Number of messages after the last ping that trigger a new one under load."""

BARRIER_BYTES: Final = 1024 * 1024
"""Bytes of messages after the last ping that trigger a new one under load."""

BARRIER_TIMEOUT_S: Final = 10.0
"""Seconds after which an unanswered ping is repeated: a relay drops it when a limit is exceeded.
Another relay is used meanwhile."""

MAX_PINGS: Final = 16
"""Number of unanswered pings of one session that are remembered; a late pong may still arrive."""

MANY_LOSSES: Final = 2
"""Number of sessions that must have lost a message before it is set aside."""

TRIAL_PAUSE_S: Final = 10.0
"""Seconds until a message that was set aside, and has ended another session, is tried again."""

TOO_BIG: Final = 1009
"""Close code of a relay that received a message larger than it accepts (RFC 6455, 7.4.1)."""

RETRY_S: Final = 0.05
"""Seconds between attempts while a connected link accepts no messages."""

WINDOW_MESSAGES: Final = 4096
"""Number of messages from which on `full` asks the owner to bring no more."""

WINDOW_BYTES: Final = 64 * 1024 * 1024
"""Size of messages from which on `full` asks the owner to bring no more, in bytes."""

ANSWER_MESSAGES: Final = 32_768
"""Additional messages beyond the window, for answers; see `overfull`.

The requests of a burst as large as this follow each other on one connection, and the pongs that
make room in the window come behind them."""

ANSWER_BYTES: Final = 64 * 1024 * 1024
"""Additional bytes beyond the window, for answers."""


class _Message:
    """A message that is not settled."""

    __slots__ = (
        *("data", "deadline", "lane", "losses", "not_before", "number"),
        *("on_trial", "position", "token"),
    )

    def __init__(self, number: int, data: bytes, deadline: float, token: Hashable) -> None:
        self.number = number  # in the order of `send`
        self.data = data
        self.deadline = deadline  # unix seconds
        self.token = token
        self.lane: _Sent | None = None  # None: no link has accepted it
        self.position = 0  # position among the messages of its lane
        self.losses = 0  # sessions that ended while they had it
        self.not_before = 0.0  # monotonic; for messages that are set aside
        self.on_trial = False  # sent after it was set aside


class _Sent:
    """Messages that one session of a link has sent and the relay has not confirmed."""

    def __init__(self, session: int) -> None:
        self.session = session
        self.messages: dict[int, _Message] = {}  # by position
        self.position = 0  # of the last message
        self.pings: dict[str, int] = {}  # position of the last message before each, by uid
        self.pinged = 0  # position of the last message before the last ping
        self.pinged_at = 0.0  # monotonic
        self.moved: dict[int, _Message] = {}  # sent over another link as well
        self.frozen = False  # has not answered in time, and another link is used
        self.bytes_since = 0  # sent since the last ping
        self.confirms = 0  # number of answered pings


class Unconfirmed:
    """Sends messages over the links of a peer, and keeps each until a relay has it.

    Args:
        lanes: the links; the owner calls `changed` when one connects, ends, or accepts messages
            again, and `pong` with the uid of each pong.
        make_ping: returns a new ping's uid and bytes.
        on_settled: called with the token of a message that needs no further attention.
        on_expired: called with the token of a message that counts as not sent at its deadline.
        on_refused: called with the token of a message that is too large for all relays, and the
            error. It must not send.
        on_room: called when `full` has become false.
    """

    def __init__(
        self,
        lanes: Lanes,
        make_ping: Callable[[], tuple[str, bytes]],
        on_settled: Callable[[Hashable], None],
        on_expired: Callable[[Hashable], None],
        on_refused: Callable[[Hashable, TooLargeError], None],
        on_room: Callable[[], None] | None = None,
    ) -> None:
        self._lanes = lanes
        self._make_ping = make_ping
        self._on_settled = on_settled
        self._on_expired = on_expired
        self._on_room = on_room
        self._on_refused = on_refused
        self._messages: dict[Hashable, _Message] = {}
        self._bytes = 0
        self._number = 0
        self._waiting: deque[_Message] = deque()  # accepted by no link yet, in order
        self._aside: list[_Message] = []  # lost too often to be sent with the others
        self._on_trial = 0  # number of `_aside` messages sent and not settled
        self._portion = 1  # how many of them are sent at once
        self._sent: dict[Lane, _Sent] = {}
        self._frozen = 0  # number of frozen links
        self._limits: dict[Lane, int] = {}  # size assumed too large for a relay, in bytes
        self._was_full = False
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._flushes: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.resent = 0  # messages sent again after their link ended

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def waiting(self) -> int:
        """Number of messages that no link has accepted yet."""
        return len(self._waiting) + len(self._aside)

    @property
    def full(self) -> bool:
        """Whether the window is used up; `on_room` is called when it no longer is."""
        full = len(self._messages) >= WINDOW_MESSAGES or self._bytes >= WINDOW_BYTES
        self._was_full = self._was_full or full
        return full

    @property
    def overfull(self) -> bool:
        """Whether not even an answer should be sent; `on_room` is called when `full` has ended.

        The window may be filled with requests of our own whose receivers wait for our answers.
        """
        return self.full and (
            len(self._messages) >= WINDOW_MESSAGES + ANSWER_MESSAGES
            or self._bytes >= WINDOW_BYTES + ANSWER_BYTES
        )

    @property
    def limit_bytes(self) -> int:
        """Size above which messages are refused, in bytes: the largest that a relay may accept."""
        if len(self._limits) < len(self._lanes.links):
            return MAX_MESSAGE_BYTES
        return max(self._limits.values()) - 1

    def send(self, data: bytes, deadline: float, token: Hashable) -> None:
        """Send a message now, or as soon as a link accepts it; callers check `full` before.

        Args:
            data: the envelope.
            deadline: Unix time at which the message is given up.
            token: the owner's identifier; no two unsettled messages may have the same.
        """
        if token in self._messages:
            raise ValueError(f"{token!r} is in use")
        if len(data) > self.limit_bytes:
            self._on_refused(token, TooLargeError(len(data), self.limit_bytes))
            return
        self._number += 1
        message = _Message(self._number, data, deadline, token)
        self._messages[token] = message
        self._bytes += len(data)
        if self._waiting or not self._try(message):
            self._waiting.append(message)
        self._arm()

    def settle(self, token: Hashable) -> None:
        """Forget a message that has arrived, because its answer was received."""
        message = self._messages.get(token)
        if message is not None:
            if message.lane is not None:
                message.lane.messages.pop(message.position, None)
            self._settle(message)

    def pong(self, uid: str) -> bool:
        """Process a pong; return whether it answers a ping of this window."""
        for sent in self._sent.values():
            if uid in sent.pings:
                self._confirm(sent, uid)
                return True
        return False

    def changed(self, link: Lane) -> None:
        """Handle a link that has connected, has ended, or accepts messages again."""
        sent = self._sent.get(link)
        if sent is not None and (not link.connected or sent.session != link.sessions):
            self._lost(link, sent)
        elif sent is not None:
            self._ping_if_due(link, sent)
        self._send_waiting()

    async def flush(self) -> None:
        """Wait until everything that was sent before is settled or expired."""
        if not self._messages:
            return
        for link, sent in self._sent.items():
            if sent.messages:
                self._ping(link, sent)
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flushes.append((self._number, settled))
        await settled

    def close(self) -> None:
        """Stop; unsettled messages remain unsettled."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _lost(self, link: Lane, sent: _Sent) -> None:
        """Take back the messages that a session has not confirmed."""
        del self._sent[link]
        self._thaw(sent)
        lost = list(sent.messages.values())
        if link.close_code == TOO_BIG and lost:
            largest = max(len(message.data) for message in lost)
            self._limits[link] = min(largest, self._limits.get(link, largest))
        else:  # it may accept larger messages when it reconnects
            self._limits.pop(link, None)
            now = time.monotonic()
            for message in lost:
                message.losses += 1
                message.not_before = now + TRIAL_PAUSE_S if message.on_trial else 0.0
        for message in lost:
            self._end_trial(message)
            message.lane = None
        self._portion = 1
        self.resent += len(lost)
        ordered = sorted((*lost, *self._waiting), key=lambda message: message.number)
        if self._limits:
            ordered = [message for message in ordered if not self._refuse(message)]
            self._aside = [message for message in self._aside if not self._refuse(message)]
        self._waiting = deque(each for each in ordered if each.losses < MANY_LOSSES)
        self._aside += (each for each in ordered if each.losses >= MANY_LOSSES)
        self._aside.sort(key=lambda message: (message.losses, message.number))

    def _too_small_for(self, data: bytes) -> list[Lane]:
        """Return the links to relays that have rejected messages of this size."""
        return [link for link, limit in self._limits.items() if len(data) >= limit]

    def _without_frozen(self, without: Collection[Lane]) -> Collection[Lane]:
        """Return the links not to be used; a frozen one is used when no other is connected."""
        frozen = [link for link, sent in self._sent.items() if sent.frozen]
        usable = (each for each in self._lanes.links if each not in without and each not in frozen)
        return [*without, *frozen] if any(each.connected for each in usable) else without

    def _freeze(self, link: Lane, sent: _Sent) -> None:
        """Send what a silent relay did not confirm over another relay as well."""
        others = (each for each in self._lanes.links if each is not link and each.connected)
        if all(each in self._sent and self._sent[each].frozen for each in others):
            return
        if not sent.frozen:
            sent.frozen = True
            self._frozen += 1
        messages = list(sent.messages.values())
        sent.moved = {
            position: message
            for position, message in (sent.moved | sent.messages).items()
            if message.token in self._messages
        }
        sent.messages.clear()
        for message in messages:
            self._end_trial(message)
            message.lane = None
        self.resent += len(messages)
        self._waiting = deque(
            sorted((*messages, *self._waiting), key=lambda message: message.number)
        )

    def _thaw(self, sent: _Sent) -> None:
        if sent.frozen:
            sent.frozen = False
            self._frozen -= 1

    def _refuse(self, message: _Message) -> bool:
        """Give up a message that all relays find too large; return whether it is too large."""
        size_bytes, limit_bytes = len(message.data), self.limit_bytes
        refused = size_bytes > limit_bytes
        if refused and self._messages.get(message.token) is message:
            self._forget(message)
            self._on_refused(message.token, TooLargeError(size_bytes, limit_bytes))
        return refused

    def _end_trial(self, message: _Message) -> None:
        if message.on_trial:
            message.on_trial = False
            self._on_trial -= 1

    def _try(self, message: _Message) -> bool:
        without: Collection[Lane] = self._too_small_for(message.data) if self._limits else ()
        if self._frozen:
            without = self._without_frozen(without)
        link = self._lanes.try_send(message.data, without)
        if link is None:
            return False
        sent = self._sent.get(link)
        if sent is None or sent.session != link.sessions:
            # The call of `changed` for the former session is still to come.
            if sent is not None:
                self.changed(link)
            sent = self._sent[link] = _Sent(link.sessions)
        sent.position += 1
        sent.bytes_since += len(message.data)
        message.position, message.lane = sent.position, sent
        sent.messages[sent.position] = message
        self._ping_if_due(link, sent)
        return True

    def _ping_if_due(self, link: Lane, sent: _Sent) -> None:
        """Ping if enough was sent since the last ping.

        After a large message the link may accept nothing; `changed` then tries again.
        """
        if not sent.pings and (
            sent.position - sent.pinged >= BARRIER_MESSAGES or sent.bytes_since >= BARRIER_BYTES
        ):
            self._ping(link, sent)

    def _ping(self, link: Lane, sent: _Sent) -> None:
        uid, data = self._make_ping()
        if link.try_send(data):
            sent.pings[uid] = sent.pinged = sent.position
            sent.bytes_since = 0
            sent.pinged_at = time.monotonic()
            if len(sent.pings) > MAX_PINGS:
                del sent.pings[next(iter(sent.pings))]

    def _confirm(self, sent: _Sent, uid: str) -> None:
        """Process a pong: it confirms what was sent before its ping, and answers earlier pings."""
        until = sent.pings[uid]
        for earlier in list(sent.pings):
            del sent.pings[earlier]
            if earlier == uid:
                break
        sent.confirms += 1
        self._thaw(sent)
        confirmed = []
        for position in sent.messages:
            if position > until:
                break
            confirmed.append(position)
        for position in confirmed:
            self._settle(sent.messages.pop(position))
        for position in [each for each in sent.moved if each <= until]:
            message = sent.moved.pop(position)
            if self._messages.get(message.token) is message:
                self.settle(message.token)
        if self._aside:
            self._send_aside()

    def _settle(self, message: _Message) -> None:
        self._forget(message)
        self._on_settled(message.token)
        self._tell_room()

    def _forget(self, message: _Message) -> None:
        del self._messages[message.token]
        self._bytes -= len(message.data)
        if message.on_trial:
            self._end_trial(message)
            if not self._on_trial:
                self._portion *= 2
        while self._flushes and self._oldest() > self._flushes[0][0]:
            _, settled = self._flushes.popleft()
            if not settled.done():
                settled.set_result(None)

    def _oldest(self) -> float:
        """Return the number of the first message that is not settled."""
        return next((each.number for each in self._messages.values()), math.inf)

    def _tell_room(self) -> None:
        if self._was_full and len(self._messages) < WINDOW_MESSAGES // 2 and not self.full:
            self._was_full = False
            if self._on_room is not None:
                self._on_room()

    def _send_waiting(self) -> None:
        waiting = self._waiting
        while waiting:
            message = waiting[0]
            # A message that is not in the table was settled while it waited.
            if self._messages.get(message.token) is message and not self._try(message):
                if not (self._limits and self._too_small_for(message.data)):
                    break
                self._aside.append(message)  # the others need not wait for its relay
            waiting.popleft()
        if self._aside:
            self._send_aside()
        self._arm()

    def _send_aside(self) -> None:
        """Send messages that were set aside, once the others that were sent have been confirmed."""
        proven = all(sent.confirms or not sent.messages for sent in self._sent.values())
        if self._on_trial or self._waiting or not proven:
            return
        now = time.monotonic()
        for message in list(self._aside):
            if self._on_trial >= self._portion:
                break
            if self._messages.get(message.token) is not message:
                self._aside.remove(message)
            elif message.not_before <= now and self._try(message):
                self._aside.remove(message)
                message.on_trial = True
                self._on_trial += 1
        for link, sent in self._sent.items():
            if any(message.on_trial for message in sent.messages.values()):
                self._ping(link, sent)

    def _arm(self) -> None:
        """Schedule `_tick` if there is work for it."""
        if self._timer is not None or self._closed or not (self._messages or self._waiting):
            return
        connected = any(link.connected for link in self._lanes.links)
        pause_s = RETRY_S if self._waiting and connected else BARRIER_S
        self._timer = asyncio.get_running_loop().call_later(pause_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = time.time()
        for message in [each for each in self._messages.values() if each.deadline <= now]:
            lane = message.lane
            if lane is None or any(message.position <= until for until in lane.pings.values()):
                if lane is not None:  # its relay was pinged, and has not answered
                    del lane.messages[message.position]
                self._forget(message)
                self._on_expired(message.token)
            else:  # whether a relay has it no longer matters: it is expired
                self.settle(message.token)
        self._waiting = deque(each for each in self._waiting if each.token in self._messages)
        self._aside = [each for each in self._aside if each.token in self._messages]
        self._tell_room()
        overdue = time.monotonic() - BARRIER_TIMEOUT_S
        for link, sent in list(self._sent.items()):
            late = bool(sent.pings) and sent.pinged_at < overdue
            if late and sent.messages:
                self._freeze(link, sent)
            if late or (sent.messages and not sent.pings):
                self._ping(link, sent)
        self._send_waiting()
