"""SBD connections as sessions of the worker: their history, rates and kicks, for operators.

A connection is a session from the reply to its claim, which gives it its epoch, to its end; a
connection whose claim never succeeded has no row. Nothing here waits for the database.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from proto.sbd.errors import KeyFormatError
from proto.sbd.frames import key_of_path, path_of_key
from relay.ops.control import KICK_PREFIX
from relay.sbd.options import EndReason
from relay.sessions.history import SessionHistory, SessionOpened, SessionProgress
from relay.sessions.models import SBD, Peer

if TYPE_CHECKING:
    from proto.sbd.errors import DropReason
    from relay.sbd.connection import Connection
    from relay.sbd.switch import Switch
    from relay.sessions.worker import Worker


_KICK: Final = f"{KICK_PREFIX}{SBD}:"


class SbdSessions:
    """The sessions of one switch."""

    def __init__(self, switch: Switch, history: SessionHistory, worker: Worker) -> None:
        """Create the sessions of a switch.

        Args:
            worker: worker that publishes the rates.
        """
        self._switch = switch
        self._history = history
        self._rates = worker.upkeep.rates
        self._reported: dict[Connection, int] = {}  # sum of its counters when last reported
        switch.sessions = self
        worker.upkeep.rates.peers = switch.keys

    def opened(self, connection: Connection) -> None:
        """Record a connection that has its epoch."""
        peer = Peer(SBD, path_of_key(connection.key))
        connection.text = peer.text
        self._reported[connection] = 0
        self._history.opened(
            SessionOpened(peer, connection.epoch, connection.opened_at, connection.address)
        )

    def closed(self, connection: Connection, reason: DropReason | EndReason) -> None:
        """Record that a connection has ended."""
        if self._reported.pop(connection, None) is not None:
            self._rates.peer_ended(connection)
            self._history.closed(_progress(connection), reason)

    def progress(self) -> None:
        """Record the counters of connections whose counters changed since the last call."""
        changed = []
        for connection, reported in self._reported.items():
            total = connection.messages_in + connection.messages_out + connection.drops
            if total != reported:
                self._reported[connection] = total
                changed.append(_progress(connection))
        if changed:
            self._history.progress(changed)

    def kick(self, fields: Mapping[str, str]) -> None:
        """End the connections that operators kicked.

        Args:
            fields: all fields of `relay:control`; a kick names the highest epoch that it ends.
        """
        for name, value in fields.items():
            if name.startswith(_KICK):
                connection = self._of_key(name.removeprefix(_KICK))
                epoch = value.partition("|")[0]
                if connection is None or not epoch.isdecimal():
                    continue
                if 0 < connection.epoch <= int(epoch):
                    connection.end(EndReason.KICKED)

    def _of_key(self, name: str) -> Connection | None:
        try:
            return self._switch.keys.get(key_of_path(name))
        except KeyFormatError:
            return None


def _progress(connection: Connection) -> SessionProgress:
    return SessionProgress(
        Peer(SBD, path_of_key(connection.key)),
        connection.epoch,
        messages_in=connection.messages_in,
        messages_out=connection.messages_out,
        bytes_in=connection.bytes_in,
        bytes_out=connection.bytes_out,
        drops=connection.drops,
    )
