"""What of one shard is in memory: the envelopes of messages that go on soon, notes of the others.

New messages come with their envelopes. Those of lanes that have to wait are let go of, and read
again when their turn comes. When the window is full, lanes whose relay takes nothing give up their
place: a relay that is slow or away holds up neither the reading nor the messages of others, and its
mail takes hardly any memory (`notes.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError

from proto.federation.delivery import deadline_s
from proto.rmb.types_pb2 import Envelope
from redispipe import resp
from relay.federation.lane import Entry, Lane, Stage
from relay.federation.lease import Lease

if TYPE_CHECKING:
    from relay.federation.sender import Sender

PAGE_MESSAGES: Final = 512
PAGE_BYTES: Final = 4 << 20
"""Of one read, by the size of the messages before."""
FIRST_MEAN_BYTES: Final = float(PAGE_BYTES // 32)
LEAST_MEAN_BYTES: Final = 256.0
WINDOW_MESSAGES: Final = 4096
WINDOW_BYTES: Final = 16 << 20
"""Envelopes in memory; above, no more are read."""
STALL_S: Final = 0.1
"""A relay that took nothing for so long gives up its place in a full window."""
MAX_TRACKED: Final = 1_000_000
"""Messages known, nearly all of them by notes of 29 bytes; above, no more are read until some are
settled. That is forty times what one twin may have waiting for relays that are away."""
LOAD_MESSAGES: Final = 64
LOAD_BYTES: Final = 1 << 20
"""Of one lane, read again at once."""
LOAD_AGAIN_S: Final = 1.0
"""Redis did not answer: the next attempt."""


class Window:
    """The messages of one shard that its drainer knows.

    Attributes:
        tracked: how many.
        read_up_to: id of the last one that was read.
    """

    def __init__(self, sender: Sender, stream: bytes) -> None:
        self.tracked = 0
        self.read_up_to = b"0-0"
        self._sender = sender
        self._stream = stream
        self._loaded = 0
        self._loaded_bytes = 0
        self._mean_bytes = FIRST_MEAN_BYTES
        self._full_since: float | None = None

    # --- new messages -------------------------------------------------------------------------

    def page(self) -> int:
        """How many messages are read at once."""
        return max(1, min(PAGE_MESSAGES, int(PAGE_BYTES / self._mean_bytes)))

    def takes(self, lanes: Iterable[Lane]) -> bool:
        """Whether more messages are to be read now; makes room if there is none for too long."""
        if self.tracked >= MAX_TRACKED:
            return False
        now = time.monotonic()
        if self._full and self._full_since is not None and now - self._full_since >= STALL_S:
            for lane in lanes:
                if lane.queue is None or now - lane.queue.progress_at >= STALL_S:
                    self.unload(lane)
        if not self._full:
            self._full_since = None
        elif self._full_since is None:
            self._full_since = now
        return not self._full

    @property
    def _full(self) -> bool:
        return self._loaded >= WINDOW_MESSAGES or self._loaded_bytes >= WINDOW_BYTES

    def entries(self, page: list[Any], lease: Lease) -> Iterator[tuple[int, Entry]]:
        """The messages of a page with their destination twins, 0 for what is no envelope."""
        retention_s = self._sender.options.retention_s
        parse = Envelope.FromString
        size_bytes = 0
        for entry_id, fields in page:
            # In the order workers write them. What somebody else wrote is looked at by name.
            if len(fields) == 6 and fields[0] == b"_" and fields[2] == b"from":
                payload, origin, account = fields[1], fields[3], fields[5]
            else:
                values = dict(zip(fields[::2], fields[1::2], strict=True))
                payload, origin, account = (values.get(name, b"") for name in _NAMES)
            stored_at = int(entry_id.partition(b"-")[0]) / 1000
            try:
                envelope = parse(payload)
                twin = envelope.destination.twin
                deadline = deadline_s(
                    envelope.timestamp, envelope.expiration, stored_at, retention_s
                )
            except DecodeError:
                twin, deadline = 0, stored_at + retention_s
            size_bytes += len(payload)
            yield (
                twin,
                Entry(
                    entry_id,
                    stored_at,
                    deadline,
                    payload,
                    origin.decode("utf-8", "replace"),
                    account.decode("utf-8", "replace"),
                    lease.doubts(entry_id),
                ),
            )
        self.tracked += len(page)
        self._loaded += len(page)
        self._loaded_bytes += size_bytes
        self.read_up_to = page[-1][0]
        # Grows at once and shrinks slowly: a page of large messages takes no more than its share.
        self._mean_bytes = max(LEAST_MEAN_BYTES, size_bytes / len(page), self._mean_bytes / 2)

    def gone(self, entry: Entry) -> None:
        """A message was settled."""
        self.tracked -= 1
        if entry.payload is not None:
            self.let_go(entry)
        if self._full_since is not None and self._loaded < WINDOW_MESSAGES // 2:
            self._full_since = None
            self._sender.reader.look()

    # --- envelopes ----------------------------------------------------------------------------

    def let_go(self, entry: Entry) -> None:
        """Keeps no envelope of a message."""
        entry.payload = None
        self._loaded -= 1
        self._loaded_bytes -= entry.size_bytes

    def unload(self, lane: Lane) -> None:
        """Keeps no envelopes of a lane but those that are being sent."""
        sending = set(map(id, lane.sending))
        for entry in lane.entries:
            if entry.payload is not None and not entry.over and id(entry) not in sending:
                self.let_go(entry)
        if lane.stage is not Stage.FETCHING:  # those that are being read have to be in the lane
            lane.fold()

    def load(self, lane: Lane, then: Callable[[], None]) -> None:
        """Reads the first messages of a lane again, as far as they are not in memory."""
        if len(lane.entries) < LOAD_MESSAGES:
            lane.recall()
        wanted: list[Entry] = []
        size_bytes = 0
        for entry in lane.entries:
            if entry.over or entry.payload is not None:
                continue
            size_bytes += entry.size_bytes
            if wanted and (len(wanted) >= LOAD_MESSAGES or size_bytes > LOAD_BYTES):
                break
            wanted.append(entry)

        def read(entry: Entry, reply: Any) -> None:
            payload = read_again(entry, reply)
            if entry.over or entry.payload is not None:
                pass  # it expired meanwhile
            elif payload is not None:
                entry.payload = payload
                self._loaded += 1
                self._loaded_bytes += entry.size_bytes
            elif reply == []:
                entry.over = True  # somebody else removed it
                self.tracked -= 1
            if entry is wanted[-1]:
                if isinstance(reply, Exception):
                    self._sender.loop.call_later(LOAD_AGAIN_S, then)
                else:
                    then()

        for entry in wanted:
            self._sender.pipe.submit(self.range(entry), partial(read, entry))

    def range(self, entry: Entry) -> bytes:
        """The command that reads one message."""
        return resp.command("XRANGE", self._stream, entry.id, entry.id)


_NAMES: Final = (b"_", b"from", b"for")


def read_again(entry: Entry, reply: Any) -> bytes | None:
    """The envelope of a message in what Redis replied for it; None where there is none."""
    if not isinstance(reply, list) or not reply:
        return None
    fields = reply[0][1]
    values = dict(zip(fields[::2], fields[1::2], strict=True))
    payload: bytes
    payload, origin, account = (values.get(name, b"") for name in _NAMES)
    entry.origin = origin.decode("utf-8", "replace")
    entry.account = account.decode("utf-8", "replace")
    return payload
