"""Names of the Redis keys and channels used for queues, sessions and the relay's shared state.

Many contain the text of a session key. A connection of ``None`` (no session id) and ``""`` are two
different sessions, so their names differ too: ``stream:7`` and ``stream:7:``. The stream names are
those of the reference relay, so that either relay can take over the other's Redis.
"""

from __future__ import annotations

from typing import Final

from proto.rmb.address import Address, SessionKey, parse
from proto.rmb.address import format as key_text
from proto.rmb.bounds import LONGEST_CONNECTION_BYTES

__all__ = ["SessionKey", "key_text", "parse_key"]

SESSIONS: Final = "relay:sessions"
SBD_KEYS: Final = "sbd:keys"
"""Hash: key of an SBD client -> boot id of its worker, and epoch of the connection."""
GUESTS: Final = "relay:guests"
GUESTS_VERSION: Final = "relay:guests:version"
WORKERS: Final = "relay:workers"
WORKERS_SEEN: Final = "relay:workers:seen"
"""Hash: boot id -> Unix time of the last heartbeat, kept after the heartbeat itself expired."""
CONTROL: Final = "relay:control"
TWINS: Final = "relay:twin"
TWINS_VERSION: Final = "relay:twin:version"
TWINS_CHANNEL: Final = "relay:twins"
CHAIN: Final = "relay:chain"
"""Hash with the position of the follower of the chain, and its counters."""
CHAIN_LEASE: Final = "relay:chain:lease"
CHAIN_EVENTS: Final = "relay:chain:events"
"""Stream with the latest events of the chain."""
CHAIN_IMPORT: Final = "relay:chain:import"
"""Hash with the progress of the import of all twins."""
CHAIN_IMPORT_LEASE: Final = "relay:chain:import:lease"
HIT_KINDS: Final = ("twin", "address", "handshake")
"""Kinds of hits on rate limits: twins by messages, addresses by messages and by handshakes."""
PURGED: Final = "relay:purged"
"""Number of messages that operators deleted."""
FULLEST: Final = "relay:queues:fullest"
"""JSON: queues that the last sweep found at least half full, `[text, messages, bytes]` each."""
LAKES: Final = "relay:analytics:lakes"
"""Hash: how far the data lake of each machine is behind (`relay.analytics.lag`)."""
HISTORY: Final = "relay:history:1s"
"""Stream with the figures of the last hour, one entry per second (`relay.history.seconds`)."""
FULLEST_TWINS: Final = "relay:twins:fullest"
"""JSON: twins that the last sweep found near a bound of what may wait: percent, hash and counts."""
NODES: Final = "relay:nodes"
"""Hash: latest report of each supervisor about its machine (`relay.server.node_report`)."""
WAITING: Final = "relay:queues:waiting"
"""Number of messages that the last sweep found in all queues."""
SCHEMA: Final = "relay:schema"
UNUSED: Final = "relay:unused"
"""Key that is never written: deleting it is a write that Redis allows when it is out of memory (see
``lua/claim.lua``)."""

SCHEMA_VERSION: Final = 1
OUTBOX_SHARDS: Final = 8
"""Number of streams of the federation outbox. Messages are spread by destination twin, which keeps
their order."""

FEDERATION_ID: Final = "federation:id"
"""Random id of this relay, set once: partner relays store under it which deliveries they have."""
TAKEN: Final = "federation:taken:"
"""Prefix of the sets with the marks of messages that partner relays delivered, one set for each
period of Redis' clock (`lua/take.lua`)."""
PARTNERS: Final = "federation:relays"
"""Set of the domains of all partner relays that anything is stored about."""
STARTING: Final = "relay:starting"
"""Key that exists while a relay starts, with the name of its machine (`relay.ops.starting`)."""
STARTING_S: Final = 120
"""Seconds from the preparation of a relay until all its processes are up, on a busy machine."""
DEAD_LETTERS: Final = "federation:dead"
FEDERATION_COUNTERS: Final = "federation:counters"
REFERENCE_OUTBOX: Final = "relay.federation.stream"
"""Stream in which the reference relay keeps messages it has not delivered to other relays."""


def parse_key(text: str) -> Address:
    """Parse the session key in a Redis name, whatever bounds this relay has configured today.

    Raises:
        AddressError, BoundError: The text is not a session key.
    """
    return parse(text, LONGEST_CONNECTION_BYTES)


def stream(text: str) -> bytes:
    """Return the Redis stream that holds the queue of the session named `text`."""
    return b"stream:" + text.encode()


def wake(text: str) -> bytes:
    """Return the channel that announces new messages for the session named `text`."""
    return b"wake:" + text.encode()


def log_channel(boot_id: str) -> str:
    """Return the channel with the log lines of a worker (`relay.ops.log_feed`)."""
    return f"relay:log:{boot_id}"


def worker(boot_id: str) -> str:
    """Return the hash with a worker's heartbeat and counters."""
    return f"relay:worker:{boot_id}"


def rates(boot_id: str) -> str:
    """Return the hash with a worker's rates per session (`relay.sessions.rates`)."""
    return f"relay:rates:{boot_id}"


def connections(boot_id: str) -> str:
    """Return the string with a worker's connections that carry sessions (`relay.mux.report`)."""
    return f"relay:connections:{boot_id}"


def streams(boot_id: str) -> str:
    """Return the string with the streams of these connections."""
    return f"relay:streams:{boot_id}"


def burial(boot_id: str) -> str:
    """Return the lock of the process that releases what a dead worker held."""
    return f"relay:burial:{boot_id}"


def commit_number(boot_id: str) -> str:
    """Return the string with the number of a worker's last applied batch."""
    return f"relay:commit:{boot_id}"


def share(text: str) -> str:
    """Return the hash with each source twin's share of a session's stream (`relay.queues.held`)."""
    return f"relay:held:{text}"


SENT: Final = "relay:from:"
RECEIVED: Final = "relay:to:"


def sent(twin: int) -> str:
    """Return the hash with what a source twin has in all queues (`relay.queues.charging`)."""
    return f"{SENT}{twin}"


def received(twin: int) -> str:
    """Return the hash with what waits in all queues of a twin."""
    return f"{RECEIVED}{twin}"


def known(twin: int) -> str:
    """Return the hash with the sessions of a twin that have signed in, and when they last did."""
    return f"relay:known:{twin}"


def guest_lease(text: str) -> str:
    """Return the lease of the worker that forwards a guest's queue to another relay."""
    return f"relay:guest:{text}"


def limit(twin: int, window: int) -> str:
    """Return the counter of one twin in one window of the rate limit."""
    return f"limits:{twin}:{window}"


def hits(kind: str, minute: int) -> str:
    """Return the sorted set of those that hit rate limits most often in one minute of Unix time."""
    return f"limits:hits:{kind}:{minute}"


def outbox(twin: int) -> str:
    """Return the federation stream for messages to `twin`; accepts a shard's number as well."""
    return f"federation:out:{twin % OUTBOX_SHARDS}"


def lease(shard: int) -> str:
    """Return the string that a shard's drainer holds while it reads the shard's stream."""
    return f"federation:lease:{shard}"


def leases() -> list[str]:
    """Return all leases that background work takes, of the shards and of the chain."""
    return [*map(lease, range(OUTBOX_SHARDS)), CHAIN_LEASE, CHAIN_IMPORT_LEASE]


def left(shard: int) -> str:
    """Return the string with what a shard's drainer leaves for its successor."""
    return f"federation:left:{shard}"


def held(account: str) -> str:
    """Return the hash with what the outbox holds for one account (`relay.federation.outbox`)."""
    return f"federation:held:{account}"


def partner(domain: str) -> str:
    """Return the hash with the state of a partner relay."""
    return f"federation:relay:{domain}"


def failures(domain: str) -> str:
    """Return the sorted set with the times at which a partner relay failed, for its rank."""
    return f"federation:failures:{domain}"


def tries(shard: int, entry_id: str) -> str:
    """Return the list with the failed attempts to deliver one message of the outbox."""
    return f"federation:tries:{shard}:{entry_id}"


def trace(order_id: str) -> str:
    """Return the stream with the events recorded for one trace order."""
    return f"relay:trace:{order_id}"


def trace_figures(order_id: str) -> str:
    """Return the hash with the number of events of one trace order, recorded and missing."""
    return f"relay:trace:{order_id}:figures"
