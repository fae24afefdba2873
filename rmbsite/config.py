"""Every setting of the platform: its default, its meaning, its bounds.

Precedence: defaults < ``rmb.toml`` (the path in ``RMB_CONFIG``, else ``./rmb.toml``) < environment
``RMB_SECTION__KEY`` < command line. Unknown keys are refused. Nothing here imports Django: command
line programs, relay workers and tests read the same declarations.
"""

from __future__ import annotations

import dataclasses
import functools
import ipaddress
import os
import secrets
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from rmbsite.options import (
    ConfigError,
    Option,
    RawValue,
    option,
    options_of,
    read,
    read_secret_file,
    unknown_key,
)

__all__ = ["Config", "ConfigError", "Resolved", "all_options", "load", "resolve", "secret_key"]

MIB = 1024 * 1024
FILE_VARIABLE = "RMB_CONFIG"
DEFAULT_FILE = "rmb.toml"
PREFIX = "RMB_"
SECRET_KEY_FILE = "secret_key"
SCHEMES = ("http", "https")


@dataclasses.dataclass(frozen=True, slots=True)
class RelayConfig:
    """The public listener and what one session may use."""

    domains: tuple[str, ...] = option(
        (), "Names of this relay. A twin that lists one of them belongs here. Required to start."
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
        "Time a client has to sign in, or to end a request that was answered before its body came.",
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
        0, "Longest life of a session token (exp - iat) accepted; 0 is any.", minimum=0
    )
    max_sid_bytes: int = option(128, "Longest session id.", minimum=1, maximum=1024)
    max_tags_bytes: int = option(1024, "Longest tags of an envelope.", minimum=16)
    max_uid_bytes: int = option(256, "Longest uid of an envelope.", minimum=36)
    trusted_proxies: tuple[str, ...] = option(
        (), "Networks whose X-Forwarded-For is believed, such as 10.0.0.0/8."
    )
    handshakes_per_ip_per_s: int = option(
        200, "New connections each second from one address; 0 is any.", minimum=0
    )
    tls_cert: str = option("", "Certificate file: the relay then speaks TLS itself.")
    tls_key: str = option("", "Key file of tls_cert.")
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
        "redis://, rediss:// or unix:// address; with user, password and database if needed.",
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
        20_000, "Messages each second from one address of another relay; 0 is any.", minimum=0
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
class DataConfig:
    """Files of this installation."""

    dir: str = option("./data", "Folder of the database, keys and embedded servers.")


@dataclasses.dataclass(frozen=True, slots=True)
class LogConfig:
    """What is logged."""

    level: str = option(
        "info", "Least severe line to log.", choices=("debug", "info", "warning", "error")
    )


@dataclasses.dataclass(frozen=True, slots=True)
class SiteConfig:
    """Secrets of the operator site."""

    secret_key: str = option(
        "",
        "Signs cookies; the same on all hosts. Empty: made once and kept in the data folder.",
        secret=True,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Config:
    """All sections. Made by :func:`load`, never changed afterwards."""

    relay: RelayConfig = dataclasses.field(default_factory=RelayConfig)
    admin: AdminConfig = dataclasses.field(default_factory=AdminConfig)
    redis: RedisConfig = dataclasses.field(default_factory=RedisConfig)
    database: DatabaseConfig = dataclasses.field(default_factory=DatabaseConfig)
    twins: TwinsConfig = dataclasses.field(default_factory=TwinsConfig)
    substrate: SubstrateConfig = dataclasses.field(default_factory=SubstrateConfig)
    federation: FederationConfig = dataclasses.field(default_factory=FederationConfig)
    celery: CeleryConfig = dataclasses.field(default_factory=CeleryConfig)
    queue: QueueConfig = dataclasses.field(default_factory=QueueConfig)
    limits: LimitsConfig = dataclasses.field(default_factory=LimitsConfig)
    metrics: MetricsConfig = dataclasses.field(default_factory=MetricsConfig)
    sessions: SessionsConfig = dataclasses.field(default_factory=SessionsConfig)
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    log: LogConfig = dataclasses.field(default_factory=LogConfig)
    site: SiteConfig = dataclasses.field(default_factory=SiteConfig)

    @property
    def data_dir(self) -> Path:
        """The data folder as an absolute path. It may not exist yet: see :meth:`make_data_dir`."""
        return Path(self.data.dir).expanduser().absolute()

    def make_data_dir(self) -> Path:
        """The data folder, made if missing and readable by its owner only."""
        folder = self.data_dir
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"data.dir: cannot make {folder}: {error.strerror}") from None
        return folder


SECTIONS: Mapping[str, type[Any]] = {
    "relay": RelayConfig,
    "admin": AdminConfig,
    "redis": RedisConfig,
    "database": DatabaseConfig,
    "twins": TwinsConfig,
    "substrate": SubstrateConfig,
    "federation": FederationConfig,
    "celery": CeleryConfig,
    "queue": QueueConfig,
    "limits": LimitsConfig,
    "metrics": MetricsConfig,
    "sessions": SessionsConfig,
    "data": DataConfig,
    "log": LogConfig,
    "site": SiteConfig,
}


class Resolved(NamedTuple):
    """A configuration and, for each key that is not a default, where its value came from."""

    config: Config
    origins: dict[str, str]


def load(
    overrides: Mapping[str, str] | None = None, environ: Mapping[str, str] | None = None
) -> Config:
    """Read the configuration.

    Args:
        overrides: values of the command line by dotted key, such as ``{"relay.listen": ":80"}``.
        environ: the environment; the process's own unless given.

    Raises:
        ConfigError: with a text for the operator.
    """
    return resolve(overrides, environ).config


def resolve(
    overrides: Mapping[str, str] | None = None, environ: Mapping[str, str] | None = None
) -> Resolved:
    """As :func:`load`, and tells where each value came from."""
    environ = os.environ if environ is None else environ
    raw: dict[str, dict[str, RawValue]] = {name: {} for name in SECTIONS}
    for layer in (_file_layer(environ), _environment_layer(environ), _argument_layer(overrides)):
        for key, found in layer:
            section, _, name = key.partition(".")
            if section not in SECTIONS:
                raise unknown_key(key, (each.key for each in all_options()), found.origin)
            raw[section][name] = found
    sections = {name: read(name, kind, raw[name]) for name, kind in SECTIONS.items()}
    origins = {
        f"{section}.{name}": found.origin
        for section, values in raw.items()
        for name, found in values.items()
    }
    config = Config(**sections)
    _validate(config)
    return Resolved(config, origins)


@functools.cache
def all_options() -> tuple[Option, ...]:
    """Every declared setting, in the order of the documentation."""
    return tuple(each for name, kind in SECTIONS.items() for each in options_of(name, kind))


def secret_key(config: Config) -> str:
    """The key that signs cookies: configured, else made once and kept in the data folder.

    Several processes may start at once on an empty folder: the key is written to a file of its own
    and linked into place, so that the first one wins and nobody reads half a key.
    """
    if config.site.secret_key:
        return config.site.secret_key
    path = config.make_data_dir() / SECRET_KEY_FILE
    if not path.exists():
        draft = path.with_name(f"{SECRET_KEY_FILE}.{os.getpid()}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(64) + "\n")
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return read_secret_file("site.secret_key", path)


def _file_layer(environ: Mapping[str, str]) -> Iterator[tuple[str, RawValue]]:
    named = environ.get(FILE_VARIABLE)
    path = Path(named or DEFAULT_FILE)
    if not named and not path.exists():
        return
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"{FILE_VARIABLE}: cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    for section, values in document.items():
        if not isinstance(values, dict):
            raise unknown_key(section, SECTIONS, str(path))
        for name, value in values.items():
            yield _from_file(f"{section}.{name}", RawValue(value, str(path)))


def _environment_layer(environ: Mapping[str, str]) -> Iterator[tuple[str, RawValue]]:
    for variable, value in sorted(environ.items()):
        if variable.startswith(PREFIX) and "__" in variable:
            section, _, name = variable.removeprefix(PREFIX).lower().partition("__")
            yield _from_file(f"{section}.{name}", RawValue(value, variable))


def _argument_layer(overrides: Mapping[str, str] | None) -> Iterator[tuple[str, RawValue]]:
    for key, value in (overrides or {}).items():
        yield key, RawValue(value, "command line")


def _from_file(key: str, found: RawValue) -> tuple[str, RawValue]:
    """``<secret>_file`` stands for the content of that file."""
    wanted = key.removesuffix("_file")
    if wanted != key and any(each.secret and each.key == wanted for each in all_options()):
        return wanted, RawValue(read_secret_file(key, Path(str(found.value))), found.origin)
    return key, found


def _validate(config: Config) -> None:
    """What one field's bounds cannot say."""
    for key, networks in (
        ("metrics.allow", config.metrics.allow),
        ("relay.trusted_proxies", config.relay.trusted_proxies),
    ):
        for network in networks:
            try:
                ipaddress.ip_network(network)
            except ValueError as error:
                raise ConfigError(f"{key}: {error}") from None
    if bool(config.relay.tls_cert) != bool(config.relay.tls_key):
        raise ConfigError("relay.tls_cert and relay.tls_key: both or neither must be set")
    if bool(config.limits.count) != bool(config.limits.size):
        raise ConfigError("limits.count and limits.size: both or neither must be set")
    if urlsplit(config.redis.url).scheme not in ("redis", "rediss", "unix"):
        raise ConfigError("redis.url: must begin with redis://, rediss:// or unix://")
    if not config.substrate.urls or any(
        urlsplit(url).scheme not in ("ws", "wss") or not urlsplit(url).hostname
        for url in config.substrate.urls
    ):
        raise ConfigError("substrate.urls: each must be ws://host or wss://host")
    schemes = ("", "sqlite", "postgres", "postgresql")
    if urlsplit(config.database.url).scheme not in schemes:
        raise ConfigError("database.url: must begin with sqlite:// or postgres://")
