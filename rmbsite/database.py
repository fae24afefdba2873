"""Django's database settings, made from a URL."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from chain.urls import ENCODE_PASSWORD, at_behind_slash
from rmbsite.options import ConfigError

SQLITE_FILE = "relay.sqlite3"

# Writers wait for each other instead of failing half-way: a transaction takes the write lock when
# it begins and waits for it. Readers never block writers (write-ahead log).
SQLITE_OPTIONS = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
}

# Options of libpq, which by default waits for minutes for a host that vanished, and for ever for
# one that accepts connections and does not answer. In seconds; the last one is in milliseconds.
POSTGRESQL_OPTIONS = {
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}

# Connections are kept between requests; those of PostgreSQL are checked before they are used.
CONNECTION_AGE_S = 600


def settings_of(url: str, data_dir: Path) -> dict[str, Any]:
    """Return the entry of ``DATABASES`` for a URL.

    Args:
        url: ``postgres://user:password@host:port/name?option=value``, ``sqlite:///path`` or empty
            for SQLite in the data folder.
        data_dir: the data folder; relative SQLite paths do not depend on it.

    Raises:
        ConfigError: the URL lacks a database name, its port is not a number, or an SQLite path is
            in the place of a host.
    """
    parts = urlsplit(url)
    if parts.scheme in ("postgres", "postgresql"):
        return _postgresql(url)
    if parts.netloc:
        raise ConfigError(
            "database.url: sqlite:// takes a third slash before the path, and a fourth if it is "
            "absolute: sqlite:////var/lib/relay.db"
        )
    path = Path(unquote(parts.path.removeprefix("/"))) if url else data_dir / SQLITE_FILE
    if not path.name:
        raise ConfigError("database.url: sqlite:///path needs a path")
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(Path(os.path.expanduser(path)).absolute()),
        "CONN_MAX_AGE": CONNECTION_AGE_S,
        "OPTIONS": dict(SQLITE_OPTIONS),
    }


def _postgresql(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    if "@" not in parts.netloc and at_behind_slash(url):
        raise ConfigError(f"database.url: {ENCODE_PASSWORD}")
    name = unquote(parts.path.lstrip("/"))
    if not name:
        raise ConfigError("database.url: postgres://… needs a database name")
    try:
        port = parts.port
    except ValueError:
        raise ConfigError("database.url: the port must be a number up to 65535") from None
    host = unquote(parts.hostname or "")
    try:
        host.encode("idna")  # as its look-up does
    except ValueError:
        raise ConfigError("database.url: invalid host name") from None
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name,
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": host,
        "PORT": str(port or ""),
        "CONN_MAX_AGE": CONNECTION_AGE_S,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {**POSTGRESQL_OPTIONS, **dict(parse_qsl(parts.query))},
    }
