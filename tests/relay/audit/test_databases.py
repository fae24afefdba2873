"""The audit log in SQLite and PostgreSQL: many concurrent writers, and an append-only table."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from relay.audit import triggers
from tests.relay.audit import write_entries
from tests.support.postgres_server import PostgresServer
from tests.support.relay_process import command_environment, migrated_folder, run_command

PROCESSES = 3
COUNT = 12
DAYS_AGO = 100
KEPT = PROCESSES * write_entries.THREADS * COUNT * 2 // 3
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def database(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """Return the URL of a database that three processes filled at once, and their data folder."""
    folder = tmp_path_factory.mktemp("audit")
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.make_migrated_database("audit")
    else:
        url = f"sqlite:///{folder}/audit.sqlite3"
        shutil.copy(migrated_folder() / "relay.sqlite3", folder / "audit.sqlite3")
    environment = command_environment(folder, {"data.dir": str(folder), "database.url": url})
    environment["DJANGO_SETTINGS_MODULE"] = "rmbsite.settings"
    command = [sys.executable, "-m", write_entries.__name__, str(COUNT), str(DAYS_AGO)]
    writers = [
        subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE)
        for _ in range(PROCESSES)
    ]
    for writer in writers:
        _, errors = writer.communicate(timeout=60)
        assert writer.returncode == 0 and b"Traceback" not in errors, errors.decode()
    return url, folder


def manage(
    url: str, folder: Path, *arguments: str, **site: str
) -> subprocess.CompletedProcess[str]:
    settings = {"database.url": url, "data.dir": str(folder), "redis.url": "redis://127.0.0.1:1"}
    settings |= {f"site.{name}": value for name, value in site.items()}
    return run_command(folder, *arguments, settings=settings)


def execute(url: str, *statements: str) -> None:
    if urlsplit(url).scheme == "sqlite":
        with sqlite3.connect(urlsplit(url).path.removeprefix("/")) as connection:
            for statement in statements:
                connection.execute(statement)
        connection.close()
    else:
        with psycopg.connect(url) as server:
            for statement in statements:
                server.execute(statement.encode())


def test_writers_do_not_break_the_chain(database: tuple[str, Path]) -> None:
    url, folder = database
    done = manage(url, folder, "rmb_audit", "verify")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{KEPT} entries, nothing was changed\nhead {KEPT}:")


@pytest.mark.parametrize("verb", ["UPDATE", "DELETE", "TRUNCATE"])
def test_the_database_refuses_changes(database: tuple[str, Path], verb: str) -> None:
    url, _ = database
    statement = {
        "UPDATE": f"UPDATE {triggers.TABLE} SET actor = 'eve' WHERE number = 2",
        "DELETE": f"DELETE FROM {triggers.TABLE}",
        "TRUNCATE": f"TRUNCATE {triggers.TABLE}",
    }[verb]
    if verb == "TRUNCATE" and url.startswith("sqlite"):
        statement = f"REPLACE INTO {triggers.TABLE} SELECT * FROM {triggers.TABLE} LIMIT 1"
    with pytest.raises((sqlite3.DatabaseError, psycopg.DatabaseError), match=triggers.REFUSED):
        execute(url, statement)


def test_the_oldest_entries_are_deleted(database: tuple[str, Path]) -> None:
    """Pruning deletes all entries but the last; the triggers protect the table again after it."""
    url, folder = database
    head = manage(url, folder, "rmb_audit", "verify").stdout.splitlines()[-1].removeprefix("head ")
    copy = folder / "old.jsonl"
    done = manage(url, folder, "rmb_audit", "prune", "--before", "60d", "--copy", str(copy))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"all entries up to {KEPT - 1} are deleted\n")
    assert len(copy.read_text().splitlines()) == KEPT - 1
    done = manage(url, folder, "rmb_audit", "verify", "--head", head)
    assert (done.returncode, done.stdout[:9]) == (0, "2 entries"), done.stderr
    for statement in (f"DELETE FROM {triggers.TABLE}", f"UPDATE {triggers.TABLE} SET actor = 'x'"):
        with pytest.raises((sqlite3.DatabaseError, psycopg.DatabaseError), match=triggers.REFUSED):
            execute(url, statement)


def test_who_goes_around_the_triggers_is_found(database: tuple[str, Path]) -> None:
    url, folder = database
    vendor = "sqlite" if url.startswith("sqlite") else "postgresql"
    execute(
        url,
        *triggers.REMOVE[vendor],
        f"UPDATE {triggers.TABLE} SET target = 'other' WHERE number = {KEPT}",
    )
    done = manage(url, folder, "rmb_audit", "verify")
    assert (done.returncode, f"entry {KEPT}: it was changed" in done.stderr) == (1, True)
    assert "Exception ignored" not in done.stderr


def test_a_new_secret_key(tmp_path: Path) -> None:
    """Entries signed with the old key verify while it is configured beside the new one."""
    url = f"sqlite:///{tmp_path}/audit.sqlite3"
    shutil.copy(migrated_folder() / "relay.sqlite3", tmp_path / "audit.sqlite3")
    old, new = "o" * 50, "n" * 50
    both = {"secret_key": new, "secret_key_fallbacks": f"{'x' * 50},{old}"}
    for number, keys in enumerate(({"secret_key": old}, both), 1):
        done = manage(url, tmp_path, "rmb_twin", "add", str(number), f"0x{'01' * 32}", **keys)
        assert done.returncode == 0, done.stderr
    done = manage(url, tmp_path, "rmb_audit", "verify", **both)
    assert (done.returncode, done.stdout[:9]) == (0, "2 entries"), done.stderr
    for key, broken in ((new, 1), (old, 2)):
        done = manage(url, tmp_path, "rmb_audit", "verify", secret_key=key)
        assert (done.returncode, f"entry {broken}: it was changed, or" in done.stderr) == (1, True)
