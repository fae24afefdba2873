"""The sections of the configuration: every setting with its default, meaning and bounds.

:mod:`rmbsite.config` reads them; the reference in `docs/operate/settings.md` is made of them.
"""

from __future__ import annotations

import dataclasses

from rmbsite.options import option

MIB = 1024 * 1024
SCHEMES = ("http", "https")


@dataclasses.dataclass(frozen=True, slots=True)
class RelayConfig:
    """The public listener and what one session may use."""

    domains: tuple[str, ...] = option(
        (),
        "Names of this relay: host or host:port. A twin that lists one of them, in any spelling, "
        "belongs here. Required to start.",
    )
    listen: str = option("[::]:8080", "Address of the relay: host:port or unix:/path.")
    server: str = option("uvicorn", "Web server; daphne is slower.", choices=("uvicorn", "daphne"))
    processes: int = option(1, "Number of relay worker processes.", minimum=1, maximum=256)
    workers: int = option(
        500, "With user_per_worker only their product counts: the capacity.", minimum=1
    )
    user_per_worker: int = option(1000, "See workers.", minimum=1)
    handshake_timeout_s: float = option(
        10.0,
        "Time a client has to sign in, to end a request that was answered before its body came, or "
        "to read some of an answer.",
        minimum=0.1,
    )
    idle_timeout_s: float = option(
        120.0, "A session that sent nothing for so long is closed; 0 is never.", minimum=0
    )
    max_message_bytes: int = option(16 * MIB, "Largest message.", minimum=1024, maximum=256 * MIB)
    partial_bytes: int = option(
        64 * MIB, "Memory for incomplete frames of all clients of one worker.", minimum=MIB
    )
    session_messages: int = option(
        256, "Messages a session may have in memory; the rest waits in its queue.", minimum=1
    )
    session_bytes: int = option(
        MIB, "Bytes a session may have in memory; the rest waits in its queue.", minimum=1024
    )
    back_pressure_s: float = option(
        60.0, "A session that takes nothing for so long is closed.", minimum=1
    )
    max_token_lifetime_s: int = option(
        0,
        "Seconds a session token may be good for from now; 0 is any, and a token that was seen by "
        "others then signs in until its own end.",
        minimum=0,
    )
    max_sid_bytes: int = option(128, "Longest session id.", minimum=1, maximum=1024)
    max_tags_bytes: int = option(1024, "Longest tags of an envelope.", minimum=16)
    max_uid_bytes: int = option(256, "Longest uid of an envelope.", minimum=36)
    trusted_proxies: tuple[str, ...] = option(
        (), "Networks whose X-Forwarded-For is believed, such as 10.0.0.0/8."
    )
    handshakes_per_ip_per_s: int = option(
        200,
        "New connections each second from one address, or one /64 of IPv6; 0 is any.",
        minimum=0,
    )
    tls_cert: str = option("", "Certificate file: the relay then speaks TLS itself.")
    tls_key: str = option("", "Key file of tls_cert.")
    sessions_per_twin: int = option(
        2_000, "Sessions one twin may have at one worker; 0 is any.", minimum=0
    )
    drain_s: float = option(
        5.0, "On a graceful stop sessions are closed spread over so long.", minimum=0
    )
    backlog: int = option(4096, "Connections waiting to be accepted.", minimum=1)


@dataclasses.dataclass(frozen=True, slots=True)
class AdminConfig:
    """The operator site."""

    listen: str = option("127.0.0.1:8081", "Address of the operator site; empty is none.")
    hosts: tuple[str, ...] = option(
        (), "Host names the operator site answers to, beside those of the loopback interface."
    )


@dataclasses.dataclass(frozen=True, slots=True)
class RedisConfig:
    """Where queues, the session directory and the shared caches live."""

    url: str = option(
        "redis://localhost:6379",
        "redis://, rediss:// or unix:// address; with user, password (/ ? # @ as %2F %3F %23 %40) "
        "and database if needed.",
        secret=True,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class DatabaseConfig:
    """Where twins, limits and the session history live."""

    url: str = option(
        "", "postgres://… or sqlite:///path; empty is SQLite in the data folder.", secret=True
    )


@dataclasses.dataclass(frozen=True, slots=True)
class TwinsConfig:
    """Where twins come from and how long they are believed."""

    source: str = option(
        "registry",
        "registry: the table of this site; tfchain: the chain.",
        choices=("registry", "tfchain"),
    )
    cache_s: float = option(60.0, "A worker believes a twin for so long.", minimum=0.1)
    unknown_s: float = option(5.0, "A twin that does not exist is believed so long.", minimum=0.1)


@dataclasses.dataclass(frozen=True, slots=True)
class SubstrateConfig:
    """The chain."""

    urls: tuple[str, ...] = option(("wss://tfchain.grid.tf:443",), "Nodes, tried in turn.")
    catchup_threshold: int = option(
        600,
        "Blocks the follower replays after it was away; behind by more, it calls all twins stale.",
        minimum=0,
        maximum=100_000,
    )
    look_ups_per_ip_per_s: int = option(
        500,
        "Look-ups of twins at chain nodes each second that sign-ins and messages from one address, "
        "or one /64 of IPv6, may cause; 0 is any.",
        minimum=0,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class FederationConfig:
    """Messages to and from other relays."""

    scheme: str = option(
        "https", "How other relays are reached; http is for test networks.", choices=SCHEMES
    )
    allow_private: bool = option(
        False, "Send to relays on loopback and private addresses as well: for test networks."
    )
    ca_file: str = option("", "Certificates relays are verified by; empty is those of the system.")
    ranker_period_s: int = option(
        3600, "A relay's failures count so long when relays of a twin are put in order.", minimum=1
    )
    max_messages: int = option(
        100_000, "Messages that may wait for one domain; a quarter of it from one twin.", minimum=4
    )
    max_bytes: int = option(
        256 * MIB,
        "Bytes that may wait for one domain; a quarter of it from one twin.",
        minimum=4096,
    )
    timeout_s: float = option(
        3.0, "Time one delivery to a relay may take.", minimum=0.1, maximum=60
    )
    connect_timeout_s: float = option(
        2.0, "Time connecting to a relay may take.", minimum=0.1, maximum=60
    )
    batch: bool = option(
        True, "Offer relays of this kind to send many messages at once, and do so where offered."
    )
    requests_per_ip_per_s: int = option(
        20_000,
        "Messages each second from one address of another relay, or one /64 of IPv6; 0 is any.",
        minimum=0,
    )
    verify_processes: int = option(
        1,
        "Processes of a worker that check signatures of what comes in; 0 checks in the worker.",
        minimum=0,
        maximum=64,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class CeleryConfig:
    """Background work: federation and the chain."""

    embedded: bool = option(
        True, "runrelay keeps Celery workers as children; off where they are started beside it."
    )
    federation_threads: int = option(
        8,
        "Threads of the child that delivers to other relays; with fewer than one for each of the 8 "
        "shards of the outbox some would wait for others to end.",
        minimum=8,
        maximum=64,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class QueueConfig:
    """Mail of a session that is away."""

    max_messages: int = option(10_000, "Messages one queue may hold.", minimum=1)
    max_bytes: int = option(64 * MIB, "Bytes one queue may hold.", minimum=1024)
    twin_messages: int = option(
        100_000,
        "Messages that may wait for one twin in the queues of all its sessions; as many of one "
        "source twin may wait in all queues.",
        minimum=1,
    )
    twin_bytes: int = option(
        128 * MIB, "Bytes of the same, by what they take in Redis.", minimum=1024
    )
    twin_queues: int = option(
        10_000,
        "Queues with messages one twin may have; one source twin may have messages in as many.",
        minimum=1,
    )
    unknown_queues: int = option(
        1_000,
        "Queues with messages one twin may have of session ids that have never signed in.",
        minimum=1,
    )
    retention_s: int = option(3600, "Mail older than this is removed.", minimum=1)
    overflow: str = option(
        "refuse",
        "A full queue refuses the new message or drops the oldest one.",
        choices=("refuse", "drop_oldest"),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class LimitsConfig:
    """What one twin may send in a minute, over all its sessions; 0 and 0 is no limit."""

    count: int = option(0, "Messages in a window of 60 s.", minimum=0)
    size: int = option(0, "Bytes in a window of 60 s, and of one message.", minimum=0)


@dataclasses.dataclass(frozen=True, slots=True)
class MetricsConfig:
    """Who may read the figures on the public listener."""

    allow: tuple[str, ...] = option(
        ("127.0.0.1/32", "::1/128"), "Networks that may read /metrics of the relay's listener."
    )


@dataclasses.dataclass(frozen=True, slots=True)
class SessionsConfig:
    """The history of sessions in the database."""

    keep_closed_days: int = option(30, "Closed sessions are kept so long.", minimum=1)


@dataclasses.dataclass(frozen=True, slots=True)
class AlarmsConfig:
    """Alarms and how webhooks for them are sent."""

    allow_private: bool = option(
        False,
        "Send webhooks to loopback and private addresses as well, and without TLS: for receivers "
        "in the own network.",
    )
    ca_file: str = option("", "Certificates webhooks are verified by; empty: the system's.")


@dataclasses.dataclass(frozen=True, slots=True)
class EmailConfig:
    """The mail server alarms are sent through."""

    host: str = option("", "Name of the SMTP server; empty: no e-mail is sent.")
    port: int = option(25, "Port of the SMTP server.", minimum=1, maximum=65535)
    tls: str = option(
        "none",
        "starttls: TLS on the same connection, usually port 587; tls: from the beginning, 465.",
        choices=("none", "starttls", "tls"),
    )
    user: str = option("", "User name at the SMTP server; empty: none is given.")
    password: str = option("", "Password at the SMTP server.", secret=True)
    sender: str = option("", "Address e-mail comes from, such as relay@example.org.")


@dataclasses.dataclass(frozen=True, slots=True)
class AnalyticsConfig:
    """Events over months, and the jobs that make results of them."""

    record: bool = option(
        False, "Record what happens to each message and session, without what is in them."
    )
    dir: str = option("", "Folder of events and results; empty: analytics in the data folder.")
    flush_ms: int = option(
        1000,
        "Events are written to their file this often; a process that is killed loses no more.",
        minimum=20,
        maximum=60_000,
    )
    fsync: str = option(
        "segment",
        "When events are safe from a loss of power: each flush, each closed file, or as the "
        "system likes.",
        choices=("flush", "segment", "off"),
    )
    segment_s: float = option(
        10.0,
        "A file of events is closed after so long: then they are on their way into the lake.",
        minimum=0.1,
        maximum=3600,
    )
    segment_bytes: int = option(
        64 * MIB, "... or at this size.", minimum=64 * 1024, maximum=1024 * MIB
    )
    segments_max_bytes: int = option(
        4096 * MIB,
        "Files that could not be brought into the lake, for a full disk or without the packages "
        "for it, wait up to this; then the oldest are dropped.",
        minimum=MIB,
    )
    keep_days: int = option(
        400, "Events are kept so long; the bill of a month needs 65 days.", minimum=1
    )
    master: str = option(
        "local[*]",
        "Where Spark runs: local[4] (cores), spark://host:7077, yarn, k8s://https://host:6443.",
    )
    driver_memory: str = option(
        "4g", "Memory of Spark's driver, which with master=local does all the work."
    )
    cores: int = option(0, "Cores of all executors together; 0: those of this machine.", minimum=0)
    spark: tuple[str, ...] = option(
        (),
        "More settings of Spark, such as spark.executor.memory=4g, separated by commas. Where one "
        "speaks of a secret, password, token or key, its value is hidden.",
    )
    daily_at: str = option("02:00", "UTC time the jobs of the days before run; empty is never.")
    objective_percent: float = option(
        99.5,
        "Tries to hand a message to another relay that are to succeed; the rest is the error "
        "budget.",
        minimum=1,
        maximum=100,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class DataConfig:
    """Files of this installation."""

    dir: str = option("./data", "Folder of the database, keys and embedded servers.")


@dataclasses.dataclass(frozen=True, slots=True)
class LogConfig:
    """What is logged."""

    level: str = option(
        "info", "Least severe line to log.", choices=("debug", "info", "warning", "error")
    )
    format: str = option(
        "text", "Lines for people, or one JSON object a line.", choices=("text", "json")
    )


@dataclasses.dataclass(frozen=True, slots=True)
class OtelConfig:
    """Traces of the operator site and of background work, for OpenTelemetry."""

    endpoint: str = option(
        "", "Collector for OTLP over HTTP, such as http://127.0.0.1:4318; empty is none."
    )
    service: str = option("rmb", "Name of this installation there.")
    share: float = option(1.0, "Part of the traces that is recorded.", minimum=0, maximum=1)


@dataclasses.dataclass(frozen=True, slots=True)
class RestConfig:
    """The REST API of the operator site."""

    requests_per_minute: int = option(
        1200, "Requests of one token or session in a minute; 0 is any.", minimum=0
    )
    failures_per_minute: int = option(
        30, "Wrong tokens from one address in a minute; 0 is any.", minimum=0
    )


@dataclasses.dataclass(frozen=True, slots=True)
class AccessConfig:
    """Who may sign in to the operator site, and how."""

    require_totp: tuple[str, ...] = option(
        (), "Roles that must have a second factor: viewer, operator, owner."
    )
    session_hours: int = option(
        12,
        "Whoever signed in to the operator site has to do it again after this.",
        minimum=1,
        maximum=720,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class OidcConfig:
    """Signing in to the operator site with OpenID Connect, beside passwords."""

    issuer: str = option("", "https:// address of the provider; empty is none.")
    client_id: str = option("", "This site's name at the provider.")
    client_secret: str = option("", "This site's secret at the provider.", secret=True)
    name: str = option("single sign-on", "What the button is called.")
    group_claim: str = option("groups", "Claim that names the groups of an account.")
    viewer_groups: tuple[str, ...] = option((), "Groups whose members are viewers.")
    operator_groups: tuple[str, ...] = option((), "Groups whose members are operators.")
    owner_groups: tuple[str, ...] = option((), "Groups whose members are owners.")
    role_hours: int = option(
        720,
        "Hours a role holds after a sign-in at the provider, also for API tokens; 0 is for ever.",
        minimum=0,
        maximum=24 * 366,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class SiteConfig:
    """Secrets of the operator site."""

    secret_key: str = option(
        "",
        "Signs cookies and the audit log; the same on all hosts. Empty: made once and kept in the "
        "data folder.",
        secret=True,
    )
    secret_key_fallbacks: tuple[str, ...] = option(
        (),
        "Secret keys of before: what they signed or encrypted, such as the audit log and second "
        "factors, stays valid.",
        secret=True,
    )
