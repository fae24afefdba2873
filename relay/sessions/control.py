"""Changes made by operators and other processes: bans, limits, kicks, drains, twins.

The changes are versioned state in the hash ``relay:control``. A worker reads it whenever the
version changes, so a lost notification does no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from proto.federation.domains import fold
from proto.limits.addresses import BannedNetworks, read_network
from proto.limits.window import Limit
from proto.rmb.reasons import SessionReason
from redispipe import resp
from relay.queues import keys
from relay.queues.charging import TwinBounds
from relay.sessions.hits import host_of

if TYPE_CHECKING:
    from relay.sessions.worker import Worker

log = logging.getLogger(__name__)


class Control:
    """The control state as this worker last saw it."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.started_s = worker.wall_s()
        self.relays: dict[str, frozenset[str]] = {}  # domain -> decisions about that relay
        self.known = False  # whether it was read at all
        self.listeners: list[Callable[[Mapping[str, str], BannedNetworks], None]] = []
        """Functions of other protocols, called with all fields and the banned networks."""
        self._version: bytes | None = None
        self._twins_version: bytes | None = None
        self._networks: frozenset[str] = frozenset()  # banned, as texts

    def twins_news(self, payload: bytes) -> None:
        """Handle a notification that twins changed.

        Args:
            payload: the new version, if any, and ``<id>,<id>`` or ``*`` for all twins.
        """
        version, _, names = payload.rpartition(b" ")
        ids = None if names == b"*" else [int(number) for number in names.split(b",")]
        self._twins_changed(ids)
        if version and int(version) == int(self._twins_version or 0) + 1:
            self._twins_version = version  # no notification was missed

    def twins_version(self, version: bytes | None) -> None:
        """Handle the present version of the twins: invalidate all twins if it was not announced."""
        if version != self._twins_version:
            if self._twins_version is not None or version is not None:
                self._twins_changed(None)
            self._twins_version = version

    def _twins_changed(self, ids: list[int] | None) -> None:
        self._worker.twins.invalidate(ids)
        self._worker.router.generation += 1
        self._worker.rights.changed(ids)

    async def version_seen(self, version: bytes | None) -> None:
        """Handle the present version of the control state: read and apply the state if it is new.

        Raises:
            LinkLost: it could not be read; the known version stays the old one.
        """
        if version == self._version:
            self.known = True
            return
        reply = await self._worker.request(resp.command("HGETALL", keys.CONTROL))
        fields = {
            name.decode(): value.decode()
            for name, value in zip(reply[::2], reply[1::2], strict=True)
        }
        self._version = version
        self._apply(fields)
        self.known = True

    def _apply(self, fields: dict[str, str]) -> None:
        worker = self._worker
        banned: dict[int, str] = {}
        overrides: dict[int, Limit] = {}
        waiting: dict[int, TwinBounds] = {}
        default = worker.options.limit
        kicks: dict[str, int] = {}  # session key -> highest epoch to be ended
        twin_kicks: dict[int, int] = {}
        relays: dict[str, frozenset[str]] = {}
        traces: dict[str, str] = {}
        networks: set[str] = set()
        for name, value in fields.items():
            kind, _, subject = name.partition(":")
            try:
                if kind == "ban":
                    banned[int(subject)] = value
                elif kind == "ban_address":
                    networks.add(subject)
                elif name == "limit":
                    default = _limit(value)
                elif kind == "limit":
                    overrides[int(subject)] = _limit(value)
                elif kind == "waiting":
                    waiting[int(subject)] = _waiting(value, worker.options.queue.twin)
                elif kind == "kick":
                    kicks[subject] = _epoch(value)
                elif kind == "kick_twin":
                    twin_kicks[int(subject)] = _epoch(value)
                elif kind == "relay":
                    # An older release may have stored several spellings of one relay.
                    domain = fold(subject)
                    relays[domain] = relays.get(domain, frozenset()).union(value.split())
                elif kind == "trace":
                    traces[subject] = value
                elif kind == "drain" and subject == worker.boot_id:
                    worker.leave()
            except ValueError:
                log.error("control state: %s = %.80r is malformed", name, value)
        self.relays = relays
        worker.on_traces(traces)
        worker.router.banned = banned
        worker.router.generation += 1
        worker.meters.change(default, overrides)
        worker.room.change(waiting)
        self._ban_addresses(frozenset(networks))
        for session in list(worker.sessions):
            key = session.destination.key
            if key[0] in banned:
                worker.end(session, SessionReason.BANNED)
                continue
            last = max(kicks.get(session.destination.text, 0), twin_kicks.get(key[0], 0))
            if 0 < session.epoch <= last:
                worker.end(session, SessionReason.KICKED)
        for tell in self.listeners:
            tell(fields, worker.router.banned_addresses)

    def refuses(self, address: str) -> bool:
        """Check whether an address without a port is banned, and count the handshake then."""
        worker = self._worker
        if not worker.router.banned_addresses.covers(address):
            return False
        worker.metrics.refused_handshakes[SessionReason.ADDRESS_BANNED] += 1
        worker.hits.handshake(address)
        return True

    def _ban_addresses(self, networks: frozenset[str]) -> None:
        """Refuse connections from these networks, and end the sessions from new ones."""
        worker = self._worker
        if networks == self._networks:
            return
        self._networks = networks
        parsed = []
        for text in networks:
            try:
                parsed.append(read_network(text))
            except ValueError as error:
                log.error("control state: banned address: %s", error)
        banned = worker.router.banned_addresses = BannedNetworks(parsed)
        for session in list(worker.sessions):
            if banned.covers(host_of(session.address)):
                worker.end(session, SessionReason.ADDRESS_BANNED)


def _epoch(text: str) -> int:
    return int(text.partition("|")[0])


def _limit(text: str) -> Limit:
    count, _, size = text.partition(" ")
    return Limit(int(count), int(size))


def _waiting(text: str, default: TwinBounds) -> TwinBounds:
    messages, size_bytes, queues = map(int, text.split())
    return default._replace(
        messages=messages or default.messages,
        size_bytes=size_bytes or default.size_bytes,
        queues=queues or default.queues,
    )
