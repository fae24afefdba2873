"""Sections of the configuration for the protocols beside RMB, in the form of
:mod:`rmbsite.sections`.
"""

from __future__ import annotations

import dataclasses

from rmbsite.options import option
from rmbsite.sections import MIB


@dataclasses.dataclass(frozen=True, slots=True)
class SbdConfig:
    """The SBD server beside the relay: clients connect under a public key."""

    enabled: bool = option(
        False,
        "Serve SBD: on the public listener for paths that are a public key, and on sbd.listen.",
    )
    listen: tuple[str, ...] = option(
        (), "Additional addresses that serve only SBD: host:port or unix:/path."
    )
    max_clients: int = option(32_768, "Maximum number of SBD connections of one worker.", minimum=1)
    limit_kbit_per_s: int = option(
        1_000,
        "Kilobits per second an address may send, over all its SBD connections; 0: no limit.",
        minimum=0,
    )
    limit_burst_bytes: int = option(
        262_144, "Bytes an address may send at once after a pause.", minimum=20_000
    )
    idle_ms: int = option(
        10_000,
        "Milliseconds after which the relay drops an SBD connection that sends nothing, or that "
        "has not finished its handshake.",
        minimum=500,
    )
    receiver_bytes: int = option(
        4 * MIB,
        "Bytes that may wait for an SBD client that does not read; above this limit the relay "
        "drops the client.",
        minimum=20_032,
    )
    ipv6_prefix: int = option(
        128,
        "Leading bits of an IPv6 address to which SBD limits apply; 64: all addresses of a /64 "
        "network share one limit.",
        minimum=32,
        maximum=128,
    )
    hook_url: str = option(
        "",
        "URL of a server that decides which clients may connect: the relay sends it the body of "
        "PUT /authenticate, and the server answers with a token. Empty: all clients may connect.",
    )


@dataclasses.dataclass(frozen=True, slots=True)
class MuxConfig:
    """Streams over one websocket, each of which carries a session."""

    enabled: bool = option(
        True,
        "Serve streams: on the public listener for mux.path and for websockets that offer the "
        "subprotocol rmb-streams.v1, and on mux.listen.",
    )
    path: str = option("/streams", "Path on the public listener that serves streams.")
    listen: tuple[str, ...] = option(
        (), "Additional addresses that serve only streams: host:port or unix:/path."
    )
    max_connections: int = option(
        4_096, "Maximum number of connections with streams of one worker.", minimum=1
    )
    max_streams: int = option(
        10_000, "Maximum number of streams, and so of sessions, of one connection.", minimum=1
    )
    stream_bytes: int = option(
        64 * 1024,
        "Bytes a client may send on a stream before the relay has processed them.",
        minimum=4_096,
    )
    connection_bytes: int = option(
        16 * MIB,
        "Bytes that may wait for the sessions of one connection; the rest waits in their queues.",
        minimum=MIB,
    )
    buffered_bytes: int = option(
        256 * MIB,
        "Bytes that may wait for all sessions on streams of one worker; the rest waits in their "
        "queues.",
        minimum=MIB,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class LatticeConfig:
    """The bridge between twins and a wasmCloud lattice, and the monitor of the lattice."""

    enabled: bool = option(False, "Run the bridge, and the monitor if lattice.monitor is set.")
    servers: tuple[str, ...] = option(
        (),
        "NATS servers of the lattice: nats://host:port or tls://host:port. Empty with --embedded: "
        "the relay starts a NATS server at lattice.embedded_listen.",
    )
    embedded_listen: str = option(
        "127.0.0.1:4222", "Loopback address of the NATS server that --embedded starts."
    )
    name: str = option("default", "Id of the lattice.")
    credentials_file: str = option("", "NATS credentials file (user JWT and seed); empty: none.")
    ca_file: str = option(
        "", "File with the CA certificates for the NATS servers; empty: those of the system."
    )
    cert_file: str = option("", "Client certificate for the NATS servers; empty: none.")
    key_file: str = option("", "Key of lattice.cert_file.")
    cluster_seed_file: str = option(
        "",
        "File with the cluster seed (SC...) that signs the bridge's invocations. Empty with "
        "--embedded: the relay generates one in the data folder.",
    )
    issuers: tuple[str, ...] = option(
        (),
        "Public cluster keys (C...) whose invocations the bridge and the monitor trust, besides "
        "the key of lattice.cluster_seed_file.",
    )
    provider_seed_file: str = option(
        "",
        "File with the provider seed (SV...) of the bridge. Empty with --embedded: the relay "
        "generates one in the data folder.",
    )
    link_name: str = option("default", "Link name under which the bridge is a provider.")
    twin_secret_file: str = option(
        "",
        "File with the mnemonic or 0x seed of the bridge's own twin. Empty with --embedded: the "
        "relay generates one in the data folder, and adds the twin to the registry.",
    )
    processes: int = option(1, "Number of bridge processes.", minimum=1, maximum=64)
    outstanding: int = option(
        1_000, "Maximum number of calls in progress in one bridge process.", minimum=1
    )
    object_ttl_s: int = option(
        3_600,
        "Seconds after which the bridge deletes unread payloads from the lattice's object store.",
        minimum=900,
        maximum=30 * 86_400,
    )
    object_quota_bytes: int = option(
        1_024 * MIB,
        "Maximum size of the lattice's object store in bytes. The bridge refuses to store more.",
        minimum=64 * MIB,
    )
    monitor: bool = option(
        False,
        "Run the monitor, which checks the invocations that arrive on lattice.monitor_subject.",
    )
    monitor_subject: str = option(
        "",
        "Subject prefix under which the monitor receives the invocations (wasmbus.rpc.>) that an "
        "account exports or mirrors. Empty: see lattice.monitor_direct.",
    )
    monitor_direct: bool = option(
        False,
        "Subscribe the monitor to the subjects of the lattice itself. A call to an actor or "
        "provider that does not run then fails only after its time-out.",
    )
    monitor_hosts: tuple[str, ...] = option(
        (),
        "Host ids (N...) of programs that take part without a host, which the monitor would "
        "otherwise report as host_unknown. It knows the bridges of this relay.",
    )
    window_s: int = option(
        300,
        "Seconds by which the time of an invocation may differ from the clock; 0: no check.",
        minimum=0,
        maximum=86_400,
    )
