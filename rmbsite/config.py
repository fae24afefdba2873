"""The configuration of the platform, read from several layers; `rmbsite.sections` declares it.

Precedence: defaults < ``rmb.toml`` (the path in ``RMB_CONFIG``, else ``./rmb.toml``) < environment
``RMB_SECTION__KEY`` < command line. Unknown keys are refused. This module does not import Django:
command line programs, relay workers and tests read the same declarations.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import ipaddress
import os
import re
import secrets
import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from chain.urls import at_behind_slash, host_and_port
from redispipe.address import RedisAddress, RedisAddressError
from rmbsite.database import SQLITE_FILE
from rmbsite.options import (
    ConfigError,
    Option,
    RawValue,
    options_of,
    read,
    read_secret_file,
    unknown_key,
)
from rmbsite.protocol_sections import LatticeConfig, MuxConfig, SbdConfig
from rmbsite.sections import (
    AccessConfig,
    AdminConfig,
    AlarmsConfig,
    AnalyticsConfig,
    CeleryConfig,
    DatabaseConfig,
    DataConfig,
    EmailConfig,
    FederationConfig,
    LimitsConfig,
    LogConfig,
    MetricsConfig,
    OidcConfig,
    OtelConfig,
    QueueConfig,
    RedisConfig,
    RelayConfig,
    RestConfig,
    SessionsConfig,
    SiteConfig,
    SubstrateConfig,
    TwinsConfig,
)

__all__ = ["Config", "ConfigError", "Resolved", "all_options", "load", "resolve", "secret_key"]

FILE_VARIABLE = "RMB_CONFIG"
DEFAULT_FILE = "rmb.toml"
PREFIX = "RMB_"
COMMAND_LINE = "command line"
ROLES = ("viewer", "operator", "owner")
SECRET_KEY_FILE = "secret_key"
OTHERS = stat.S_IRWXG | stat.S_IRWXO
DAILY_AT = re.compile(r"(([01][0-9]|2[0-3]):[0-5][0-9])?")


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
    sbd: SbdConfig = dataclasses.field(default_factory=SbdConfig)
    mux: MuxConfig = dataclasses.field(default_factory=MuxConfig)
    lattice: LatticeConfig = dataclasses.field(default_factory=LatticeConfig)
    limits: LimitsConfig = dataclasses.field(default_factory=LimitsConfig)
    metrics: MetricsConfig = dataclasses.field(default_factory=MetricsConfig)
    sessions: SessionsConfig = dataclasses.field(default_factory=SessionsConfig)
    alarms: AlarmsConfig = dataclasses.field(default_factory=AlarmsConfig)
    analytics: AnalyticsConfig = dataclasses.field(default_factory=AnalyticsConfig)
    email: EmailConfig = dataclasses.field(default_factory=EmailConfig)
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    log: LogConfig = dataclasses.field(default_factory=LogConfig)
    otel: OtelConfig = dataclasses.field(default_factory=OtelConfig)
    rest: RestConfig = dataclasses.field(default_factory=RestConfig)
    access: AccessConfig = dataclasses.field(default_factory=AccessConfig)
    oidc: OidcConfig = dataclasses.field(default_factory=OidcConfig)
    site: SiteConfig = dataclasses.field(default_factory=SiteConfig)

    @property
    def data_dir(self) -> Path:
        """Absolute path of the data folder. It may not exist yet: see :meth:`make_data_dir`."""
        return Path(os.path.expanduser(self.data.dir)).absolute()

    def make_data_dir(self) -> Path:
        """Return the data folder; create it if it is missing, readable by its owner only.

        Raises:
            ConfigError: it cannot be created, or other users may read it and it does not look like
                a data folder.
        """
        folder = self.data_dir
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"data.dir: cannot make {folder}: {error.strerror}") from None
        _make_private(folder)
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
    "sbd": SbdConfig,
    "mux": MuxConfig,
    "lattice": LatticeConfig,
    "limits": LimitsConfig,
    "metrics": MetricsConfig,
    "sessions": SessionsConfig,
    "alarms": AlarmsConfig,
    "analytics": AnalyticsConfig,
    "email": EmailConfig,
    "data": DataConfig,
    "log": LogConfig,
    "otel": OtelConfig,
    "rest": RestConfig,
    "access": AccessConfig,
    "oidc": OidcConfig,
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
        environ: the environment; by default that of the process.

    Raises:
        ConfigError: a setting is invalid; the message is for the operator.
    """
    return resolve(overrides, environ).config


def resolve(
    overrides: Mapping[str, str] | None = None, environ: Mapping[str, str] | None = None
) -> Resolved:
    """Read the configuration as :func:`load` does, and record the origin of each value."""
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
    redis = RedisConfig(_redis_url(config.redis.url, origins.get("redis.url", "default")))
    config = dataclasses.replace(config, redis=redis)
    return Resolved(config, origins)


def describe(resolved: Resolved, *, defaults: bool = True) -> dict[str, dict[str, Any]]:
    """Return the displayable value of each setting and its origin, by key.

    Args:
        resolved: configuration and origins.
        defaults: whether to include settings that have their default.
    """
    shown = {}
    for each in all_options():
        origin = resolved.origins.get(each.key)
        if origin is not None or defaults:
            value = getattr(getattr(resolved.config, each.section), each.name)
            shown[each.key] = {"value": each.shown(value), "origin": origin or "default"}
    return shown


@functools.cache
def all_options() -> tuple[Option, ...]:
    """Return every declared setting, in the order of the documentation."""
    return tuple(each for name, kind in SECTIONS.items() for each in options_of(name, kind))


def secret_key(config: Config) -> str:
    """Return the key that signs cookies: the configured one, or one that is kept in the data
    folder.

    Several processes may start at once with an empty folder. So the key is written to a separate
    file and linked into place: the first process wins, and no process reads half a key.
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
        yield key, RawValue(value, COMMAND_LINE)


def _from_file(key: str, found: RawValue) -> tuple[str, RawValue]:
    """Replace ``<secret>_file`` by the content of that file."""
    wanted = key.removesuffix("_file")
    if wanted != key and any(each.secret and each.key == wanted for each in all_options()):
        return wanted, RawValue(read_secret_file(key, Path(str(found.value))), found.origin)
    return key, found


def _make_private(folder: Path) -> None:
    """Remove other users' permissions from the folder, unless it may belong to something else.

    Raises:
        ConfigError: it may belong to something else, and others may use it.
    """
    found = folder.stat()
    if not found.st_mode & OTHERS:
        return
    names = set(os.listdir(folder)) if os.geteuid() in (0, found.st_uid) else {""}
    if not names or names & {SECRET_KEY_FILE, SQLITE_FILE}:
        folder.chmod(stat.S_IMODE(found.st_mode) & ~OTHERS)
    elif found.st_mode & stat.S_IRWXO:
        mode = stat.S_IMODE(found.st_mode)
        raise ConfigError(
            f"data.dir: other users may use {folder} (mode {mode:04o}); chmod 700 {folder}, or "
            "name a folder of its own"
        )


def _redis_url(url: str, origin: str) -> str:
    """Return the URL in the form that every library reads alike."""
    try:
        return RedisAddress.parse(url).url
    except RedisAddressError as error:
        raise ConfigError(f"redis.url ({origin}): {error}") from None


def _scheme(key: str, url: str) -> str:
    try:
        return urlsplit(url).scheme
    except ValueError:
        raise ConfigError(f"{key}: invalid host name") from None


def _is_websocket(url: str) -> bool:
    try:
        host, _ = host_and_port(url)
    except ValueError:
        return False
    return urlsplit(url).scheme in ("ws", "wss") and host != "" and not at_behind_slash(url)


def _validate(config: Config) -> None:
    """Check what the bounds of single fields cannot express."""
    for key, networks in (
        ("metrics.allow", config.metrics.allow),
        ("relay.trusted_proxies", config.relay.trusted_proxies),
    ):
        for network in networks:
            try:
                ipaddress.ip_network(network)
            except ValueError as error:
                raise ConfigError(f"{key}: {error}") from None
    _validate_sign_in(config)
    if bool(config.relay.tls_cert) != bool(config.relay.tls_key):
        raise ConfigError("relay.tls_cert and relay.tls_key: both or neither must be set")
    if bool(config.limits.count) != bool(config.limits.size):
        raise ConfigError("limits.count and limits.size: both or neither must be set")
    if not DAILY_AT.fullmatch(config.analytics.daily_at):
        raise ConfigError("analytics.daily_at: must be a time as 02:00, or empty")
    if any("=" not in each for each in config.analytics.spark):
        raise ConfigError("analytics.spark: each must be key=value")
    if config.email.host and "@" not in config.email.sender:
        raise ConfigError("email.sender: an address is needed with email.host")
    if not config.substrate.urls or not all(map(_is_websocket, config.substrate.urls)):
        raise ConfigError("substrate.urls: each must be ws://host or wss://host")
    if config.otel.endpoint:
        if _scheme("otel.endpoint", config.otel.endpoint) not in ("http", "https"):
            raise ConfigError("otel.endpoint: must begin with http:// or https://")
        if importlib.util.find_spec("opentelemetry") is None:
            raise ConfigError(
                "otel.endpoint needs OpenTelemetry: pip install 'rmb-relay-platform[otel]'"
            )
    if config.sbd.hook_url and _scheme("sbd.hook_url", config.sbd.hook_url) not in (
        "http",
        "https",
    ):
        raise ConfigError("sbd.hook_url: must begin with http:// or https://")
    if not config.mux.path.startswith("/") or set("?#") & set(config.mux.path):
        raise ConfigError("mux.path: must begin with / and have no ? or #")
    schemes = ("sqlite", "postgres", "postgresql")
    if config.database.url and _scheme("database.url", config.database.url) not in schemes:
        raise ConfigError("database.url: must begin with sqlite:// or postgres://")


def _validate_sign_in(config: Config) -> None:
    unknown = set(config.access.require_totp) - set(ROLES)
    if unknown:
        raise ConfigError(f"access.require_totp: {min(unknown)} is not one of {', '.join(ROLES)}")
    oidc = config.oidc
    if not oidc.issuer:
        return
    _scheme("oidc.issuer", oidc.issuer)
    issuer = urlsplit(oidc.issuer)
    loopback = issuer.hostname in ("localhost", "127.0.0.1", "::1")
    if not issuer.hostname or (
        issuer.scheme != "https" and not (loopback and issuer.scheme == "http")
    ):
        raise ConfigError("oidc.issuer: must be https:// (http:// only for the loopback interface)")
    if not (oidc.client_id and oidc.client_secret):
        raise ConfigError("oidc.client_id and oidc.client_secret: must be set with oidc.issuer")
    if not (oidc.viewer_groups or oidc.operator_groups or oidc.owner_groups):
        raise ConfigError("oidc.*_groups: no group may sign in; name some")
