"""Tests of `rmbsite.database`: URLs of databases, and the options of SQLite."""

from __future__ import annotations

import os
import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from django.db import connection
from django.db.backends.sqlite3.base import DatabaseWrapper

from relay.twins.models import Twin
from rmbsite.config import ConfigError
from rmbsite.database import settings_of
from tests.support.relay_process import run_command

NOBODY = {"redis.url": "redis://127.0.0.1:1"}


def test_postgresql() -> None:
    found = settings_of("postgres://us%40er:p%2Fw@db.example:5433/relay?sslmode=require", Path())
    wanted = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "relay",
        "USER": "us@er",
        "PASSWORD": "p/w",
        "HOST": "db.example",
        "PORT": "5433",
    }
    assert {name: found[name] for name in wanted} == wanted
    assert found["OPTIONS"]["sslmode"] == "require"


def test_a_postgresql_that_is_silent_is_given_up() -> None:
    waits = {"connect_timeout", "keepalives_idle", "keepalives_interval", "tcp_user_timeout"}
    assert waits <= settings_of("postgres://h/relay", Path())["OPTIONS"].keys()
    own = settings_of("postgres://h/relay?connect_timeout=60", Path())["OPTIONS"]
    assert own["connect_timeout"] == "60"


@pytest.mark.parametrize(
    "url",
    [
        "postgres://host",
        "postgres://h:port/x",
        "postgres://a..b/x",
        "postgres://me:12/word@host/relay",
        "sqlite:///",
        "sqlite://var/lib/relay.db",
        "sqlite://relay.db",
    ],
)
def test_refusals(url: str) -> None:
    with pytest.raises(ConfigError, match=r"database\.url"):
        settings_of(url, Path())


def test_the_file_is_for_its_owner(tmp_path: Path) -> None:
    """The database file is private, even if an earlier release made it readable for all users."""
    before = os.umask(0o022)
    try:
        run_command(tmp_path, "migrate", "-v", "0", "--skip-checks", settings=NOBODY)
        file = tmp_path / "data" / "relay.sqlite3"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        file.chmod(0o644)
        run_command(tmp_path, "rmb_twin", "list", settings=NOBODY)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    finally:
        os.umask(before)


@pytest.mark.django_db(transaction=True)
def test_a_writer_is_not_in_the_way_of_a_reader() -> None:
    Twin.objects.bulk_create(Twin(id=number, account=bytes(32)) for number in (7, 8))

    def write() -> None:
        try:
            Twin.objects.filter(id=7).update(relays="new.example")
        finally:
            connection.close()

    reading = Twin.objects.order_by("id").iterator(chunk_size=1)
    assert next(reading).id == 7
    with ThreadPoolExecutor(1) as thread:
        thread.submit(write).result()
    assert [each.relays for each in reading] == [""], "what was there when it began"
    assert Twin.objects.get(id=7).relays == "new.example"


def test_sqlite_paths(tmp_path: Path) -> None:
    assert settings_of("", tmp_path)["NAME"] == str(tmp_path / "relay.sqlite3")
    assert settings_of("sqlite:////var/x.db", tmp_path)["NAME"] == "/var/x.db"
    assert settings_of("sqlite:///x.db", tmp_path)["NAME"] == str(Path("x.db").absolute())


@pytest.mark.django_db
def test_sqlite_is_opened_for_many_writers(tmp_path: Path) -> None:
    base = {
        "TIME_ZONE": None,
        "AUTOCOMMIT": True,
        "CONN_HEALTH_CHECKS": False,
        "ATOMIC_REQUESTS": False,
    }
    wrapper = DatabaseWrapper({**base, **settings_of("", tmp_path)})
    try:
        with wrapper.cursor() as cursor:
            assert cursor.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            assert cursor.execute("PRAGMA synchronous").fetchone() == (1,)
            assert cursor.execute("PRAGMA busy_timeout").fetchone() == (20_000,)
        # A transaction holds the write lock from its start.
        wrapper.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
        other = sqlite3.connect(wrapper.settings_dict["NAME"], timeout=0)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        other.close()
        wrapper.rollback()
    finally:
        wrapper.close()
