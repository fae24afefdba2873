"""Names of the Redis keys and channels that queues and sessions live under.

The text of a session key is part of them. A connection of ``None`` (no session id) and ``""`` are
two different sessions, so their names differ too: ``stream:7`` and ``stream:7:``. The stream names
are those of the reference relay, so that one can take over the other's Redis.
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
"""Hash: boot id -> unix time of the last heartbeat, which is kept when the heartbeat is gone."""
CONTROL: Final = "relay:control"
TWINS: Final = "relay:twin"
TWINS_VERSION: Final = "relay:twin:version"
TWINS_CHANNEL: Final = "relay:twins"
CHAIN: Final = "relay:chain"
"""Hash with how far the follower of the chain is, and what it counted."""
CHAIN_LEASE: Final = "relay:chain:lease"
CHAIN_EVENTS: Final = "relay:chain:events"
"""Stream with the latest of what the chain told."""
CHAIN_IMPORT: Final = "relay:chain:import"
"""Hash with how far the import of all twins is."""
CHAIN_IMPORT_LEASE: Final = "relay:chain:import:lease"
HIT_KINDS: Final = ("twin", "address", "handshake")
"""What runs into limits: twins with messages, addresses with messages and with handshakes."""
PURGED: Final = "relay:purged"
"""How many messages operators deleted."""
FULLEST: Final = "relay:queues:fullest"
"""JSON: the queues the last sweep found filled by half or more, `[text, messages, bytes]` each."""
LAKES: Final = "relay:analytics:lakes"
"""Hash: how far the lake of each machine is behind (`relay.analytics.lag`)."""
HISTORY: Final = "relay:history:1s"
"""Stream with the values of the last hour, second by second (`relay.history.seconds`)."""
FULLEST_TWINS: Final = "relay:twins:fullest"
"""JSON: the twins the last sweep found near a bound of what waits: percent, hash and counts."""
NODES: Final = "relay:nodes"
"""Hash: what each supervisor told of its machine last (`relay.server.node_report`)."""
WAITING: Final = "relay:queues:waiting"
"""How many messages the last sweep found in all queues."""
SCHEMA: Final = "relay:schema"
UNUSED: Final = "relay:unused"
"""Never written: deleting it is the write that is allowed out of memory (see ``lua/claim.lua``)."""

SCHEMA_VERSION: Final = 1
OUTBOX_SHARDS: Final = 8
"""Streams the federation outbox is spread over: by destination twin, so that order is kept."""

FEDERATION_ID: Final = "federation:id"
"""Random, set once: under it partners remember which deliveries of this relay they have."""
TAKEN: Final = "federation:taken:"
"""How the names of the sets begin that hold the marks of messages other relays brought, one for
each period of Redis' clock (`lua/take.lua`)."""
PARTNERS: Final = "federation:relays"
"""Set of the domains of all partners anything is known of."""
STARTING: Final = "relay:starting"
"""There while a relay starts, with its machine (`relay.ops.starting`)."""
STARTING_S: Final = 120
"""From the preparation of a relay until everything that it runs is up, on a busy machine."""
DEAD_LETTERS: Final = "federation:dead"
FEDERATION_COUNTERS: Final = "federation:counters"
REFERENCE_OUTBOX: Final = "relay.federation.stream"
"""Where the reference relay keeps what it has not delivered to other relays."""


def parse_key(text: str) -> Address:
    """The session key of a name in Redis, whatever this relay takes for one today.

    Raises:
        AddressError, BoundError: it is none.
    """
    return parse(text, LONGEST_CONNECTION_BYTES)


def stream(text: str) -> bytes:
    """The Redis stream that queues the session named `text`."""
    return b"stream:" + text.encode()


def wake(text: str) -> bytes:
    """The channel that announces news for the session named `text`."""
    return b"wake:" + text.encode()


def log_channel(boot_id: str) -> str:
    """Channel with what a worker logs (`relay.ops.log_feed`)."""
    return f"relay:log:{boot_id}"


def worker(boot_id: str) -> str:
    """The hash with a worker's heartbeat and counters."""
    return f"relay:worker:{boot_id}"


def rates(boot_id: str) -> str:
    """The hash with the rates of what a worker holds (`relay.sessions.rates`)."""
    return f"relay:rates:{boot_id}"


def connections(boot_id: str) -> str:
    """The string with the connections of a worker that carry sessions (`relay.mux.report`)."""
    return f"relay:connections:{boot_id}"


def streams(boot_id: str) -> str:
    """The string with the streams of these connections."""
    return f"relay:streams:{boot_id}"


def burial(boot_id: str) -> str:
    """Who frees what a dead worker held."""
    return f"relay:burial:{boot_id}"


def commit_number(boot_id: str) -> str:
    """The string with the number of a worker's last applied batch."""
    return f"relay:commit:{boot_id}"


def share(text: str) -> str:
    """The hash with how much each source twin has in one session's stream (`relay.queues.held`)."""
    return f"relay:held:{text}"


SENT: Final = "relay:from:"
RECEIVED: Final = "relay:to:"


def sent(twin: int) -> str:
    """The hash with what a source twin has waiting in all queues (`relay.queues.charging`)."""
    return f"{SENT}{twin}"


def received(twin: int) -> str:
    """The hash with what waits in all queues of a twin."""
    return f"{RECEIVED}{twin}"


def known(twin: int) -> str:
    """The hash with the sessions of a twin that have signed in, and when they last did."""
    return f"relay:known:{twin}"


def guest_lease(text: str) -> str:
    """The string that the worker holds which moves a guest's mail on."""
    return f"relay:guest:{text}"


def limit(twin: int, window: int) -> str:
    """The counter of one twin in one window of the rate limit."""
    return f"limits:{twin}:{window}"


def hits(kind: str, minute: int) -> str:
    """The sorted set with who ran into limits most in one minute of unix time."""
    return f"limits:hits:{kind}:{minute}"


def outbox(twin: int) -> str:
    """The federation stream that messages for `twin` leave through; takes a shard's number too."""
    return f"federation:out:{twin % OUTBOX_SHARDS}"


def lease(shard: int) -> str:
    """The string that a shard's drainer holds while it reads the shard's stream."""
    return f"federation:lease:{shard}"


def leases() -> list[str]:
    """All that background work takes, of the shards and of the chain."""
    return [*map(lease, range(OUTBOX_SHARDS)), CHAIN_LEASE, CHAIN_IMPORT_LEASE]


def left(shard: int) -> str:
    """The string in which a shard's drainer leaves word for the next one."""
    return f"federation:left:{shard}"


def held(account: str) -> str:
    """The hash with what the outbox holds for one account (`relay.federation.outbox`)."""
    return f"federation:held:{account}"


def partner(domain: str) -> str:
    """The hash with the state of another relay."""
    return f"federation:relay:{domain}"


def failures(domain: str) -> str:
    """The sorted set with the times another relay failed at, for its rank."""
    return f"federation:failures:{domain}"


def tries(shard: int, entry_id: str) -> str:
    """The list with the failed tries of one message of the outbox."""
    return f"federation:tries:{shard}:{entry_id}"


def trace(order_id: str) -> str:
    """The stream with what was noted for one trace order."""
    return f"relay:trace:{order_id}"


def trace_figures(order_id: str) -> str:
    """The hash that counts the events of one trace order, and what is missing among them."""
    return f"relay:trace:{order_id}:figures"
