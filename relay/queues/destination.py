"""What a worker knows about one session key that messages are sent to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from redispipe import resp
from relay.queues import keys

if TYPE_CHECKING:
    from proto.rmb.routing import Route
    from relay.sessions.session import Session


class Share(NamedTuple):
    """What one source twin has in a queue.

    Attributes:
        packed: Messages and bytes (`relay.queues.held`).
        seen_at: Loop time at which this was true.
    """

    packed: int
    seen_at: float


class Destination:
    """One session key: its encoded names, its session on this worker, and how full its queue is.

    Everything that is the same for each message to a key is computed once and kept here, so that
    routing one message is one dictionary look-up.
    """

    __slots__ = (
        "announcement",
        "bytes_at",
        "coming",
        "decided",
        "expire_at",
        "generation",
        "key",
        "known",
        "look",
        "prefix",
        "present",
        "queued",
        "queued_bytes",
        "seen_at",
        "session",
        "shares",
        "stored",
        "stream",
        "text",
        "wake",
    )

    def __init__(self, key: keys.SessionKey) -> None:
        self.key = key
        self.text = keys.key_text(key)
        self.stream = keys.stream(self.text)
        self.wake = keys.wake(self.text)
        self.prefix = resp.xadd_prefix(self.stream)
        self.announcement = b""  # PUBLISH of its wake, encoded when first needed
        self.look = b""  # XLEN of its stream, encoded when first needed
        self.session: Session | None = None  # the session held by this worker
        self.queued = 0  # messages in the stream, as last seen
        self.queued_bytes = 0  # memory of the stream, as last seen
        self.stored = 0  # messages put into the stream, since the rate was last measured
        self.present = False  # its session is connected somewhere, as last seen
        self.known = False  # its session has signed in once, as last seen
        self.seen_at = float("-inf")  # loop time at which `queued` was last seen
        self.bytes_at = 0.0  # loop time from which `queued_bytes` may be asked again
        self.expire_at = 0.0  # loop time from which the stream's EXPIRE is due again
        self.shares: dict[int, Share] | None = None  # of each source twin, as last seen
        self.coming: dict[int, int] | None = None  # source twin -> bytes of large ones on their way
        self.generation = -1  # the router's generation that `decided` belongs to
        self.decided: Route | None = None  # where messages go while no session here has the key

    def announced(self, reply: Any) -> None:
        """Note how many workers received its wake: the one that holds its session, or none."""
        if type(reply) is int:
            self.present = reply > 0

    def encode_for_absent(self) -> None:
        """Encode the commands that each batch with messages for a key not held here needs."""
        self.announcement = resp.command("PUBLISH", self.wake, "new")
        self.look = resp.command("XLEN", self.stream)


class Coming:
    """A large message on its way into a queue, counted here until Redis has counted it.

    A few of them can fill a queue before any size known of it shows that.
    """

    __slots__ = ("_destination", "_size_bytes", "_source")

    def __init__(self, destination: Destination, source: int, size_bytes: int) -> None:
        self._destination = destination
        self._source = source
        self._size_bytes = size_bytes
        if destination.coming is None:
            destination.coming = {}
        destination.coming[source] = destination.coming.get(source, 0) + size_bytes

    def batch_done(self) -> None:
        """Stop counting the message: it is stored, or refused."""
        coming = self._destination.coming
        assert coming is not None
        coming[self._source] -= self._size_bytes
        if not coming[self._source]:
            del coming[self._source]
            if not coming:
                self._destination.coming = None
