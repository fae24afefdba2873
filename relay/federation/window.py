"""The part of a shard that is in memory: envelopes of messages that are sent soon, notes of others.

New messages arrive with their envelopes. Lanes that have to wait release theirs, and read them
again when their turn comes. When the window is full, lanes whose relay accepts nothing release
their envelopes. So a slow or unavailable relay blocks neither the reading nor the messages of
others, and its queue takes hardly any memory (`notes.py`).
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
"""Target size of one read in bytes, estimated from the mean size of earlier messages."""
FIRST_MEAN_BYTES: Final = float(PAGE_BYTES // 32)
LEAST_MEAN_BYTES: Final = 256.0
WINDOW_MESSAGES: Final = 4096
WINDOW_BYTES: Final = 16 << 20
"""Maximum size of the envelopes in memory, in bytes; above it no more are read."""
STALL_S: Final = 0.1
"""Seconds without an answer of its relay after which a lane makes room in a full window."""
MAX_TRACKED: Final = 1_000_000
"""Maximum number of messages known, nearly all of them as notes of 29 bytes; above it no more are
read until some are settled. That is forty times what one twin may have waiting for unavailable
relays."""
LOAD_MESSAGES: Final = 64
LOAD_BYTES: Final = 1 << 20
"""Maximum size of a lane's envelopes that are read again at once, in bytes."""
LOAD_AGAIN_S: Final = 1.0
"""Seconds until the next attempt after Redis did not answer."""


class Window:
    """Messages of one shard that its drainer knows.

    Attributes:
        tracked: number of messages.
        read_up_to: id of the last message that was read.
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
        """Return the maximum number of messages to read at once."""
        return max(1, min(PAGE_MESSAGES, int(PAGE_BYTES / self._mean_bytes)))

    def takes(self, lanes: Iterable[Lane]) -> bool:
        """Check whether more messages are to be read now; make room if it was full for too long."""
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
        """Yield the messages of a page with their destination twins; 0 if it is not an envelope."""
        retention_s = self._sender.options.retention_s
        parse = Envelope.FromString
        size_bytes = 0
        for entry_id, fields in page:
            # In the order in which workers write them. Entries of other programs are read by name.
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
        # Grows at once and shrinks slowly, so that pages of large messages stay near the target.
        self._mean_bytes = max(LEAST_MEAN_BYTES, size_bytes / len(page), self._mean_bytes / 2)

    def gone(self, entry: Entry) -> None:
        """Record that a message was settled."""
        self.tracked -= 1
        if entry.payload is not None:
            self.let_go(entry)
        if self._full_since is not None and self._loaded < WINDOW_MESSAGES // 2:
            self._full_since = None
            self._sender.reader.look()

    # --- envelopes ----------------------------------------------------------------------------

    def let_go(self, entry: Entry) -> None:
        """Release the envelope of a message."""
        entry.payload = None
        self._loaded -= 1
        self._loaded_bytes -= entry.size_bytes

    def unload(self, lane: Lane) -> None:
        """Release the envelopes of a lane except those that are being sent."""
        sending = set(map(id, lane.sending))
        for entry in lane.entries:
            if entry.payload is not None and not entry.over and id(entry) not in sending:
                self.let_go(entry)
        if lane.stage is not Stage.FETCHING:  # messages that are being read must stay in the lane
            lane.fold()

    def load(self, lane: Lane, then: Callable[[], None]) -> None:
        """Read those of a lane's first messages again that are not in memory."""
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
                pass  # it ended meanwhile
            elif payload is not None:
                entry.payload = payload
                self._loaded += 1
                self._loaded_bytes += entry.size_bytes
            elif reply == []:
                entry.over = True  # removed from the outbox meanwhile
                self.tracked -= 1
            if entry is wanted[-1]:
                if isinstance(reply, Exception):
                    self._sender.loop.call_later(LOAD_AGAIN_S, then)
                else:
                    then()

        for entry in wanted:
            self._sender.pipe.submit(self.range(entry), partial(read, entry))

    def range(self, entry: Entry) -> bytes:
        """Return the command that reads one message."""
        return resp.command("XRANGE", self._stream, entry.id, entry.id)


_NAMES: Final = (b"_", b"from", b"for")


def read_again(entry: Entry, reply: Any) -> bytes | None:
    """Return the envelope in the reply to `Window.range`, and set the entry's origin and account.

    None: the reply holds no message.
    """
    if not isinstance(reply, list) or not reply:
        return None
    fields = reply[0][1]
    values = dict(zip(fields[::2], fields[1::2], strict=True))
    payload: bytes
    payload, origin, account = (values.get(name, b"") for name in _NAMES)
    entry.origin = origin.decode("utf-8", "replace")
    entry.account = account.decode("utf-8", "replace")
    return payload
