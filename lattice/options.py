"""Options of a program that takes part in a lattice: servers, credentials, keys, limits."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field, replace
from typing import Final

from proto.lattice.host_data import HostData

DEFAULT_SERVER: Final = "nats://127.0.0.1:4222"


@dataclass(frozen=True, slots=True)
class LatticeOptions:
    """The options of a connection and of what runs on it.

    Attributes:
        servers: NATS URLs (`nats://` or `tls://`), tried in any order.
        lattice: id of the lattice.
        name: name of the connection, as NATS shows it.
        credentials_file: file with a user's JWT and seed, as `nsc` writes it.
        user_jwt: JWT of the NATS user, instead of a file.
        user_seed: seed (`SU...`) of the NATS user.
        user: name of the NATS user, with `password`.
        password: password of the NATS user.
        token: NATS token.
        tls_ca_file: certificates that servers' certificates must chain to; empty: the system's.
        tls_certificate_file: client certificate, for servers that require one.
        tls_key_file: key of the client certificate.
        inbox_prefix: prefix of subjects for answers.
        cluster_seed: seed (`SC...`) that signs this program's invocations.
        issuers: public keys (`C...`) of clusters whose invocations are accepted.
        host_id: public key (`N...`) of the host that runs this program; empty: a new key.
        js_domain: JetStream domain of the object store and the registry.
        control_prefix: first part of the control interface's subjects.
        connect_timeout_s: seconds to wait for one server to accept a connection.
        call_timeout_s: seconds to wait for an answer, unless a call gives its own time-out.
        object_timeout_s: further seconds for a payload or a result in the object store.
        handler_timeout_s: seconds a handler may take; then the caller gets an error.
        drain_timeout_s: seconds to wait for work in progress when the program stops.
        ping_interval_s: seconds between two checks that the server still answers.
        max_running: maximum number of running handlers; further calls get an error at once.
        max_outstanding: maximum number of calls that wait for an answer at once.
        max_payload_bytes: maximum size of a payload or a result.
        quota_bytes: quota of the object store's bucket.
        object_ttl_s: age in seconds at which the janitor deletes a payload.
        iat_window_s: seconds by which a token's time may differ from now; 0: unchecked.
    """

    servers: tuple[str, ...] = (DEFAULT_SERVER,)
    lattice: str = "default"
    name: str = "lattice"
    credentials_file: str = ""
    user_jwt: str = field(default="", repr=False)
    user_seed: str = field(default="", repr=False)
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    tls_ca_file: str = ""
    tls_certificate_file: str = ""
    tls_key_file: str = ""
    inbox_prefix: str = "_INBOX"
    cluster_seed: str = field(default="", repr=False)
    issuers: tuple[str, ...] = ()
    host_id: str = ""
    js_domain: str = ""
    control_prefix: str = "wasmbus.ctl"
    connect_timeout_s: float = 5.0
    call_timeout_s: float = 2.0
    object_timeout_s: float = 13.0
    handler_timeout_s: float = 30.0
    drain_timeout_s: float = 10.0
    ping_interval_s: float = 10.0
    max_running: int = 1_000
    max_outstanding: int = 10_000
    max_payload_bytes: int = 64 * 2**20
    quota_bytes: int = 2**30
    object_ttl_s: float = 3_600.0
    iat_window_s: float = 300.0

    @property
    def uses_tls(self) -> bool:
        """Whether connections must be encrypted."""
        files = self.tls_ca_file or self.tls_certificate_file
        return bool(files) or any(url.startswith("tls://") for url in self.servers)

    def tls_context(self) -> ssl.SSLContext | None:
        """Return a new TLS context for connections, or None without TLS.

        Raises:
            OSError: a file cannot be read or contains no certificate; also ssl.SSLError.
        """
        if not self.uses_tls:
            return None
        context = ssl.create_default_context(cafile=self.tls_ca_file or None)
        if self.tls_certificate_file:
            context.load_cert_chain(self.tls_certificate_file, self.tls_key_file or None)
        return context


def options_of(data: HostData) -> LatticeOptions:
    """Return the options for a provider from the data that its host wrote to it."""
    options = LatticeOptions(
        servers=(data.rpc_url,),
        lattice=data.lattice,
        user_jwt=data.rpc_user_jwt,
        user_seed=data.rpc_user_seed,
        cluster_seed=data.invocation_seed,
        issuers=data.cluster_issuers,
        host_id=data.host_id,
    )
    if data.rpc_timeout_ms is None:
        return options
    return replace(options, call_timeout_s=data.rpc_timeout_ms / 1000)
