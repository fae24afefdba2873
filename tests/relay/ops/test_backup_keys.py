"""Restoring on another host, with a verifiable audit log or, on request, without one."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sqlite3
import zipfile
from pathlib import Path

import pytest

from relay.audit import triggers
from tests.relay.ops.test_backup import NOBODY, secret_key_of
from tests.support.relay_process import migrated_folder, run_command


def site(folder: Path) -> Path:
    """Make a folder with a new, migrated database and no secret key yet."""
    (folder / "data").mkdir(parents=True)
    shutil.copy(migrated_folder() / "relay.sqlite3", folder / "data")
    return folder


def succeed(folder: Path, *arguments: str, **settings: str) -> str:
    done = run_command(folder, *arguments, settings={**NOBODY, **settings})
    assert done.returncode == 0, done.stderr
    return done.stdout


def refuse(folder: Path, *arguments: str, **settings: str) -> str:
    done = run_command(folder, *arguments, settings={**NOBODY, **settings})
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    return done.stderr


def twins(folder: Path) -> int:
    with contextlib.closing(sqlite3.connect(folder / "data" / "relay.sqlite3")) as database:
        return int(database.execute("SELECT count(*) FROM relay_twins_twin").fetchone()[0])


@pytest.fixture(scope="module")
def backups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make backups with and without secrets of a site that generated its secret key."""
    folder = site(tmp_path_factory.mktemp("old"))
    succeed(folder, "rmb_twin", "add", "7", f"0x{'01' * 32}")
    succeed(folder, "rmb_backup", "with.zip", "--secrets")
    succeed(folder, "rmb_backup", "without.zip")
    return folder


def test_a_new_host_is_told_how_to_get_the_key(backups: Path, tmp_path: Path) -> None:
    """The printed instructions lead to a restore with a log that can be verified."""
    new, file = site(tmp_path), backups / "with.zip"
    told = refuse(new, "rmb_restore", str(file))
    assert twins(new) == 0 and "nothing is restored" in told
    member, target = re.search(rf"^  unzip -p {file} (\S+) > (\S+)$", told, re.M).groups()  # type: ignore[union-attr]
    with zipfile.ZipFile(file) as archive:
        Path(target).write_bytes(archive.read(member))
    succeed(new, "rmb_restore", str(file))
    assert succeed(new, "rmb_audit", "verify").startswith("2 entries, nothing was changed")
    entry = json.loads(succeed(new, "rmb_audit", "list", "--limit", "1", "--json"))[0]
    assert entry["action"] == "backup.restore" and entry["after"]["log_verified"] is True


def test_a_site_with_a_key_of_its_own(backups: Path, tmp_path: Path) -> None:
    """A site may adopt the backup's key, or keep its own key and add that one as a fallback."""
    new, file = site(tmp_path), backups / "with.zip"
    own = {"site.secret_key": "n" * 50}
    told = refuse(new, "rmb_restore", str(file), **own)
    assert "Set site.secret_key (now from RMB_SITE__SECRET_KEY) to what this prints:" in told
    assert f"  unzip -p {file} secrets/secret_key\n" in told and not twins(new)
    both = {**own, "site.secret_key_fallbacks": secret_key_of(file) or ""}
    succeed(new, "rmb_restore", str(file), **both)
    assert succeed(new, "rmb_audit", "verify", **both).startswith("2 entries")
    succeed(new, "rmb_backup", "again.zip", "--secrets", **both)
    next_host = site(tmp_path / "next")
    told = refuse(next_host, "rmb_restore", str(new / "again.zip"), **own)
    assert "Set site.secret_key_fallbacks" in told and "Set site.secret_key " not in told
    with zipfile.ZipFile(new / "again.zip") as archive:
        fallbacks = archive.read("secrets/secret_key_fallbacks").decode()
    assert fallbacks == both["site.secret_key_fallbacks"]


def test_a_key_that_is_lost(backups: Path, tmp_path: Path) -> None:
    """Data is restored on request; if the key is found later, the whole log can be verified."""
    new, file = site(tmp_path), backups / "without.zip"
    told = refuse(new, "rmb_restore", str(file))
    assert "not in the file" in told and "--unverified-log" in told and not twins(new)
    done = run_command(new, "rmb_restore", str(file), "--unverified-log", settings=NOBODY)
    assert done.returncode == 0 and "site.secret_key_fallbacks" in done.stderr, done.stderr
    assert twins(new) == 1
    assert "entry 1" in refuse(new, "rmb_audit", "verify")
    found = {"site.secret_key_fallbacks": secret_key_of(backups / "with.zip") or ""}
    assert succeed(new, "rmb_audit", "verify", **found).startswith("3 entries")


def test_a_log_that_was_changed_before_the_backup(backups: Path, tmp_path: Path) -> None:
    old, new = tmp_path / "copy", site(tmp_path / "new")
    shutil.copytree(backups, old)
    with contextlib.closing(sqlite3.connect(old / "data" / "relay.sqlite3")) as database, database:
        for statement in triggers.REMOVE["sqlite"]:
            database.execute(statement)
        database.execute(f"UPDATE {triggers.TABLE} SET actor = 'eve' WHERE number = 2")
    succeed(old, "rmb_backup", "changed.zip", "--secrets")
    shutil.copy(old / "data" / "secret_key", new / "data")
    told = refuse(new, "rmb_restore", str(old / "changed.zip"))
    assert "was changed" in told and "entry 2" in told and "unzip" not in told
    succeed(new, "rmb_restore", str(old / "changed.zip"), "--unverified-log")
    assert "entry 2" in refuse(new, "rmb_audit", "verify")
