"""The sections of the configuration: every setting with its default, meaning and bounds.

:mod:`rmbsite.config` reads them; the reference in `docs/operate/settings.md` is generated from
them.
"""

from __future__ import annotations

import dataclasses

from rmbsite.options import option

MIB = 1024 * 1024
SCHEMES = ("http", "https")


@dataclasses.dataclass(frozen=True, slots=True)
class RelayConfig:
    """The public listener, and limits for each session."""

    domains: tuple[str, ...] = option(
        (),
        "Names of this relay: host or host:port. The relay serves the twins whose list of relays "
        "contains one of them. Required to start.",
    )
    listen: str = option("[::]:8080", "Address of the relay: host:port or unix:/path.")
    server: str = option("uvicorn", "Web server; daphne is slower.", choices=("uvicorn", "daphne"))
    processes: int = option(1, "Number of relay worker processes.", minimum=1, maximum=256)
    workers: int = option(
        500,
        "Factor of the capacity: the relay accepts at most workers x user_per_worker sessions. To "
        "set the number of worker processes, use relay.processes.",
        minimum=1,
    )
    user_per_worker: int = option(1000, "Factor of the capacity; see relay.workers.", minimum=1)
    handshake_timeout_s: float = option(
        10.0,
        "Seconds a client may take to sign in, to finish sending a request that was answered "
        "early, or to read the next part of an answer.",
        minimum=0.1,
    )
    idle_timeout_s: float = option(
        120.0,
        "Seconds after which the relay closes a session that sends nothing; 0: never.",
        minimum=0,
    )
    max_message_bytes: int = option(
        16 * MIB, "Maximum size of a message in bytes.", minimum=1024, maximum=256 * MIB
    )
    partial_bytes: int = option(
        64 * MIB, "Bytes that incomplete frames may take in the memory of a worker.", minimum=MIB
    )
    session_messages: int = option(
        256, "Messages a session may have in memory; the rest waits in its queue.", minimum=1
    )
    session_bytes: int = option(
        MIB, "Bytes a session may have in memory; the rest waits in its queue.", minimum=1024
    )
    back_pressure_s: float = option(
        60.0,
        "Seconds after which the relay closes a session that does not read the messages sent to "
        "it.",
        minimum=1,
    )
    max_token_lifetime_s: int = option(
        0,
        "Longest lifetime of a session token, in seconds from the sign-in; 0: no limit. Without a "
        "limit, anyone who sees a token can sign in with it until it expires.",
        minimum=0,
    )
    max_sid_bytes: int = option(
        128, "Maximum length of a session id in bytes.", minimum=1, maximum=1024
    )
    max_tags_bytes: int = option(
        1024, "Maximum length of the tags of an envelope in bytes.", minimum=16
    )
    max_uid_bytes: int = option(256, "Maximum length of an envelope's uid in bytes.", minimum=36)
    trusted_proxies: tuple[str, ...] = option(
        (), "Networks of proxies whose X-Forwarded-For is trusted, such as 10.0.0.0/8."
    )
    handshakes_per_ip_per_s: int = option(
        200,
        "New connections per second from one address (IPv6: one /64 network); 0: no limit.",
        minimum=0,
    )
    tls_cert: str = option("", "Certificate file; if set, the relay itself serves TLS.")
    tls_key: str = option("", "Unencrypted key file of tls_cert.")
    sessions_per_twin: int = option(
        2_000, "Sessions one twin may have at one worker; 0: no limit.", minimum=0
    )
    drain_s: float = option(
        5.0, "Seconds over which a graceful stop spreads the closing of sessions.", minimum=0
    )
    backlog: int = option(4096, "Connections that may wait to be accepted.", minimum=1)


@dataclasses.dataclass(frozen=True, slots=True)
class AdminConfig:
    """The operator site."""

    listen: str = option("127.0.0.1:8081", "Address of the operator site; empty: no operator site.")
    hosts: tuple[str, ...] = option(
        (), "Host names that the operator site accepts, besides those of the loopback interface."
    )


@dataclasses.dataclass(frozen=True, slots=True)
class RedisConfig:
    """The Redis server that stores queues, the session directory and the shared caches."""

    url: str = option(
        "redis://localhost:6379",
        "redis://, rediss:// or unix:// address, with user, password and database if needed. In a "
        "password, write / ? # @ as %2F %3F %23 %40.",
        secret=True,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class DatabaseConfig:
    """The database of twins, limits and the session history."""

    url: str = option(
        "", "postgres://… or sqlite:///path; empty: SQLite in the data folder.", secret=True
    )


@dataclasses.dataclass(frozen=True, slots=True)
class TwinsConfig:
    """The source of twins, and how long workers cache them."""

    source: str = option(
        "registry",
        "Where twins are looked up. registry: the table of this site; tfchain: the chain.",
        choices=("registry", "tfchain"),
    )
    cache_s: float = option(60.0, "Seconds a worker caches a twin.", minimum=0.1)
    unknown_s: float = option(
        5.0, "Seconds a worker caches that a twin does not exist.", minimum=0.1
    )


@dataclasses.dataclass(frozen=True, slots=True)
class SubstrateConfig:
    """The chain that stores twins; used with twins.source = tfchain."""

    urls: tuple[str, ...] = option(
        ("wss://tfchain.grid.tf:443",), "Addresses of chain nodes, tried in turn."
    )
    catchup_threshold: int = option(
        600,
        "Maximum number of blocks that the follower of the chain replays after an outage. If more "
        "are missing, it marks all twins as stale, and the relay looks each of them up again.",
        minimum=0,
        maximum=100_000,
    )
    look_ups_per_ip_per_s: int = option(
        500,
        "Look-ups of twins at chain nodes per second that sign-ins and messages from one address "
        "(IPv6: one /64 network) may cause; 0: no limit.",
        minimum=0,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class FederationConfig:
    """Messages to and from other relays."""

    scheme: str = option(
        "https",
        "Scheme of requests to partner relays; http is for test networks.",
        choices=SCHEMES,
    )
    allow_private: bool = option(
        False, "Send to relays on loopback and private addresses as well; for test networks."
    )
    ca_file: str = option(
        "", "CA certificates that verify partner relays; empty: those of the system."
    )
    ranker_period_s: int = option(
        3600,
        "Seconds a failed delivery counts against a partner relay when the relays of a twin are "
        "ranked.",
        minimum=1,
    )
    max_messages: int = option(
        100_000,
        "Messages that may wait for one partner relay, at most a quarter of them from one twin.",
        minimum=4,
    )
    max_bytes: int = option(
        256 * MIB,
        "Bytes that may wait for one partner relay, at most a quarter of them from one twin.",
        minimum=4096,
    )
    timeout_s: float = option(
        3.0, "Time-out of one delivery to a partner relay, in seconds.", minimum=0.1, maximum=60
    )
    connect_timeout_s: float = option(
        2.0, "Time-out of a connection to a partner relay, in seconds.", minimum=0.1, maximum=60
    )
    batch: bool = option(
        True,
        "Exchange several messages in one request with partner relays that support it.",
    )
    requests_per_ip_per_s: int = option(
        20_000,
        "Messages per second from one address of a partner relay (IPv6: one /64 network); 0: no "
        "limit.",
        minimum=0,
    )
    verify_processes: int = option(
        1,
        "Processes of each worker that verify the signatures of messages from partner relays; 0: "
        "the worker itself verifies them.",
        minimum=0,
        maximum=64,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class CeleryConfig:
    """Background work: federation and the chain."""

    embedded: bool = option(
        True,
        "Start the Celery workers together with the relay. Set it to no if a service manager "
        "starts them.",
    )
    federation_threads: int = option(
        8,
        "Threads that deliver to partner relays; each of the 8 shards of the outbox needs one.",
        minimum=8,
        maximum=64,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class QueueConfig:
    """Messages that wait for a session."""

    max_messages: int = option(10_000, "Messages one queue may hold.", minimum=1)
    max_bytes: int = option(64 * MIB, "Bytes one queue may hold.", minimum=1024)
    twin_messages: int = option(
        100_000,
        "Messages that may wait for one twin, in the queues of all its sessions. The same limit "
        "applies to the waiting messages that one twin has sent.",
        minimum=1,
    )
    twin_bytes: int = option(
        128 * MIB,
        "Bytes of Redis memory for the messages that twin_messages limits.",
        minimum=1024,
    )
    twin_queues: int = option(
        10_000,
        "Queues with waiting messages that one twin may have. The same limit applies to the queues "
        "in which messages from one twin wait.",
        minimum=1,
    )
    unknown_queues: int = option(
        1_000,
        "Queues with waiting messages that one twin may have for session ids that never signed in.",
        minimum=1,
    )
    retention_s: int = option(3600, "Seconds after which a waiting message expires.", minimum=1)
    overflow: str = option(
        "refuse",
        "What happens to a message for a full queue. refuse: the relay refuses the message; "
        "drop_oldest: the relay discards the oldest message of the queue.",
        choices=("refuse", "drop_oldest"),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class LimitsConfig:
    """What one twin may send per minute, over all its sessions; both 0: no limit."""

    count: int = option(0, "Messages a twin may send in a window of 60 s.", minimum=0)
    size: int = option(
        0, "Bytes a twin may send in a window of 60 s; also the largest single message.", minimum=0
    )


@dataclasses.dataclass(frozen=True, slots=True)
class MetricsConfig:
    """Access to the metrics on the public listener."""

    allow: tuple[str, ...] = option(
        ("127.0.0.1/32", "::1/128"), "Networks that may read /metrics of the relay's listener."
    )


@dataclasses.dataclass(frozen=True, slots=True)
class SessionsConfig:
    """The history of sessions in the database."""

    keep_closed_days: int = option(30, "Days closed sessions are kept.", minimum=1)


@dataclasses.dataclass(frozen=True, slots=True)
class AlarmsConfig:
    """Alarms, and the webhooks that the relay sends for them."""

    allow_private: bool = option(
        False,
        "Send webhooks to loopback and private addresses as well, and without TLS; for receivers "
        "in your own network.",
    )
    ca_file: str = option(
        "", "CA certificates that verify receivers of webhooks; empty: those of the system."
    )


@dataclasses.dataclass(frozen=True, slots=True)
class EmailConfig:
    """The SMTP server that the relay uses to send alarms."""

    host: str = option("", "Host name of the SMTP server; empty: the relay sends no e-mail.")
    port: int = option(25, "Port of the SMTP server.", minimum=1, maximum=65535)
    tls: str = option(
        "none",
        "none: no TLS; starttls: switch to TLS after connecting, usually on port 587; tls: TLS "
        "from the start, usually on port 465.",
        choices=("none", "starttls", "tls"),
    )
    user: str = option("", "User name at the SMTP server; empty: no authentication.")
    password: str = option("", "Password at the SMTP server.", secret=True)
    sender: str = option("", "Sender address of e-mails, such as relay@example.org.")


@dataclasses.dataclass(frozen=True, slots=True)
class AnalyticsConfig:
    """The recording of events, and the jobs that compute results from them."""

    record: bool = option(
        False,
        "Record what happens to each message, session and call of the lattice, but never the "
        "contents.",
    )
    dir: str = option("", "Folder of events and results; empty: `analytics` in the data folder.")
    flush_ms: int = option(
        1000,
        "Milliseconds between two writes of events to their file. A process that is killed loses "
        "at most the events of this time.",
        minimum=20,
        maximum=60_000,
    )
    fsync: str = option(
        "segment",
        "When events are synced to disk; synced events survive a power failure. flush: with each "
        "write; segment: when a file is closed; off: when the operating system decides.",
        choices=("flush", "segment", "off"),
    )
    segment_s: float = option(
        10.0,
        "Seconds after which a file of events is closed and moved to the lake.",
        minimum=0.1,
        maximum=3600,
    )
    segment_bytes: int = option(
        64 * MIB,
        "Bytes at which a file of events is closed before segment_s.",
        minimum=64 * 1024,
        maximum=1024 * MIB,
    )
    segments_max_bytes: int = option(
        4096 * MIB,
        "Bytes of closed files that may wait for the lake, for example while the disk is full. "
        "Beyond this limit the oldest files are deleted.",
        minimum=MIB,
    )
    keep_days: int = option(
        400, "Days events are kept. The bill of a month needs 65 days.", minimum=1
    )
    master: str = option(
        "local[*]",
        "Where Spark runs: local[4] (this machine, 4 cores), spark://host:7077, yarn, or "
        "k8s://https://host:6443.",
    )
    driver_memory: str = option(
        "4g", "Memory of the Spark driver, which does all the work if master is local."
    )
    cores: int = option(
        0, "Cores of all Spark executors together; 0: as many as this machine has.", minimum=0
    )
    spark: tuple[str, ...] = option(
        (),
        "Further Spark settings, such as spark.executor.memory=4g, separated by commas. The relay "
        "hides the value of a setting whose name contains secret, password, token or key.",
    )
    daily_at: str = option(
        "02:00", "Time of day (UTC) at which the jobs compute the previous days; empty: never."
    )
    objective_percent: float = option(
        99.5,
        "Objective: percentage of delivery attempts to partner relays that succeed. The rest is "
        "the error budget.",
        minimum=1,
        maximum=100,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class DataConfig:
    """Files of this installation."""

    dir: str = option("./data", "Folder of the database, keys and embedded servers.")


@dataclasses.dataclass(frozen=True, slots=True)
class LogConfig:
    """Log lines of all processes."""

    level: str = option(
        "info", "Lowest level that is logged.", choices=("debug", "info", "warning", "error")
    )
    format: str = option(
        "text", "text: lines for people; json: one JSON object per line.", choices=("text", "json")
    )


@dataclasses.dataclass(frozen=True, slots=True)
class OtelConfig:
    """Traces of the operator site and of background work, for OpenTelemetry."""

    endpoint: str = option(
        "", "Collector for OTLP over HTTP, such as http://127.0.0.1:4318; empty: no traces."
    )
    service: str = option("rmb", "Name of this installation at the collector.")
    share: float = option(1.0, "Fraction of traces that is recorded.", minimum=0, maximum=1)


@dataclasses.dataclass(frozen=True, slots=True)
class RestConfig:
    """The REST API of the operator site."""

    requests_per_minute: int = option(
        1200, "Requests per minute with one token or session; 0: no limit.", minimum=0
    )
    failures_per_minute: int = option(
        30, "Wrong tokens per minute from one address; 0: no limit.", minimum=0
    )


@dataclasses.dataclass(frozen=True, slots=True)
class AccessConfig:
    """Sign-in of operators to the operator site."""

    require_totp: tuple[str, ...] = option(
        (), "Roles that must have a second factor: viewer, operator, owner."
    )
    session_hours: int = option(
        12,
        "Hours after a sign-in to the operator site until the account must sign in again.",
        minimum=1,
        maximum=720,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class OidcConfig:
    """Sign-in to the operator site with OpenID Connect, in addition to passwords."""

    issuer: str = option("", "https:// address of the provider; empty: passwords only.")
    client_id: str = option("", "Client id of this site at the provider.")
    client_secret: str = option("", "Client secret of this site at the provider.", secret=True)
    name: str = option("single sign-on", "Text of the sign-in button.")
    group_claim: str = option("groups", "Claim that lists the groups of an account.")
    viewer_groups: tuple[str, ...] = option((), "Groups whose members are viewers.")
    operator_groups: tuple[str, ...] = option((), "Groups whose members are operators.")
    owner_groups: tuple[str, ...] = option((), "Groups whose members are owners.")
    role_hours: int = option(
        720,
        "Hours a role is valid after a sign-in at the provider, also for API tokens; 0: no limit.",
        minimum=0,
        maximum=24 * 366,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class SiteConfig:
    """Secrets of the operator site."""

    secret_key: str = option(
        "",
        "Key that signs cookies and the audit log; all hosts need the same one. Empty: the relay "
        "generates one and keeps it in the data folder.",
        secret=True,
    )
    secret_key_fallbacks: tuple[str, ...] = option(
        (),
        "Former secret keys. Data that they signed or encrypted, such as the audit log and second "
        "factors, stays valid.",
        secret=True,
    )
