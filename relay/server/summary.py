"""What a relay prints about itself when it starts: short, and only facts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hotpath import compiled
from relay.server.listen import ListenAddress
from relay.server.open_files import current_limit

SPARE_FILES = 64
"""Open files of a worker other than sessions: Redis, database, logs, listeners."""


def client_url(address: ListenAddress, scheme: str) -> str:
    """Return the URL at which programs on this machine reach a listener."""
    if address.path:
        return f"unix:{address.path}"
    loopback = {"::": "127.0.0.1", "0.0.0.0": "127.0.0.1"}
    host = loopback.get(address.host, address.host)
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{address.port}"


@dataclass(frozen=True, slots=True)
class Summary:
    """Facts of a start."""

    config: Any
    relay: Sequence[ListenAddress]
    admin: Sequence[ListenAddress]
    own: Mapping[str, Sequence[ListenAddress]]
    prepared: Mapping[str, Any]
    open_files: str

    def text(self) -> str:
        """Return the lines printed before the workers start."""
        relay = self.config.relay
        processes = f"{relay.processes} worker{'s' if relay.processes > 1 else ''}"
        tls = ", TLS" if relay.tls_cert else ""
        lines = [
            f"relay     {_places(self.relay)}{tls} ({processes}, {relay.server})",
            f"domains   {', '.join(relay.domains)}",
            *([f"sbd       {self._sbd()}"] if self.config.sbd.enabled else []),
            *([f"streams   {self._streams()}"] if self.config.mux.enabled else []),
            *([f"lattice   {self._lattice()}"] if self.config.lattice.enabled else []),
            f"operator  {_places(self.admin) or 'none'}",
            f"redis     {self.prepared['redis']}",
            f"database  {self.prepared['database']}",
            f"twins     {self.config.twins.source}, {self.prepared['twins']} known",
            *([f"chain     {', '.join(self.config.substrate.urls)}"] if self._on_chain else []),
            f"celery    {self._background()}",
            f"hot path  {compiled.state()}",
            *([f"events    {self._events()}"] if self.config.analytics.record else []),
            f"limits    {self._limits()}; {self.open_files}",
        ]
        lines += [f"note      {note}" for note in self._notes()]
        lines += [f"WARNING   {warning}" for warning in self.prepared["warnings"]]
        return "\n".join(lines)

    def next_steps(self, peer_command: str = "") -> str:
        """Return suggestions for a user who starts a relay for the first time.

        Args:
            peer_command: Command with which a demo twin uses this relay; empty: no demo twin can.
        """
        admin = client_url(self.admin[0], "http") if self.admin else ""
        lines = ["", f"relay           {self._relay_url()}"]
        if admin:
            lines.append(f"operator site   {admin}/")
        if admin and self.prepared["password"]:
            user, password = self.prepared["operator"], self.prepared["password"]
            lines.append(f"sign in as      {user}, password {password} (shown only this once)")
        lines.append("try             make demo   (in another terminal)")
        if peer_command:
            lines.append(f"try a peer      {peer_command}")
        lines += ["stop            Ctrl-C", ""]
        return "\n".join(lines)

    def runtime(self) -> dict[str, Any]:
        """Return what other programs need to connect to this relay."""
        return {
            "pid": os.getpid(),
            "relay_url": self._relay_url(),
            "admin_url": client_url(self.admin[0], "http") if self.admin else None,
            "redis_url": os.environ["RMB_REDIS__URL"],
            "domains": list(self.config.relay.domains),
        }

    def _relay_url(self) -> str:
        return client_url(self.relay[0], "wss" if self.config.relay.tls_cert else "ws")

    def _sbd(self) -> str:
        return f"at the relay's address{self._own('sbd')}, for paths that are a public key"

    def _streams(self) -> str:
        return f"at the relay's address{self._own('mux')}, path {self.config.mux.path}"

    def _lattice(self) -> str:
        lattice = self.config.lattice
        servers = ", ".join(lattice.servers) or f"a NATS server at {lattice.embedded_listen}"
        return f"{lattice.name}, {servers}, bridges: {lattice.processes}"

    def _own(self, protocol: str) -> str:
        own = self.own[protocol]
        return f" and {_places(own)}" if own else ""

    def _limits(self) -> str:
        limits, relay = self.config.limits, self.config.relay
        per_twin = f"{limits.count} messages, {limits.size} bytes per twin and minute"
        capacity = relay.workers * relay.user_per_worker
        return f"{per_twin if limits.count else 'none per twin'}, capacity {capacity} sessions"

    @property
    def _on_chain(self) -> bool:
        return bool(self.config.twins.source == "tfchain")

    def _background(self) -> str:
        if self.config.celery.embedded:
            return "two workers of its own (federation; chain, default and the schedule)"
        return "none of its own: federation and the chain wait for `celery -A rmbsite worker`"

    def _events(self) -> str:
        analytics = self.config.analytics
        folder = analytics.dir or self.config.data_dir / "analytics"
        return f"recorded in {folder}, kept for {analytics.keep_days} days"

    def _notes(self) -> list[str]:
        relay = self.config.relay
        notes: list[str] = []
        limit = current_limit()
        if limit is not None:
            possible = max(limit - SPARE_FILES, 0) * relay.processes
            if possible < relay.workers * relay.user_per_worker:
                notes.append(f"the limit of open files allows about {possible} sessions")
        return notes


def _places(addresses: Sequence[ListenAddress]) -> str:
    return ", ".join(str(address) for address in addresses)
