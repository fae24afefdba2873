"""Backups on both databases: a restore returns exactly what was backed up, or changes nothing."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sqlite3
import tomllib
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db.models.signals import post_save

from relay.access.actor import SYSTEM, Actor, Face
from relay.access.errors import Denied
from relay.audit import services as audit
from relay.audit.models import AuditEntry
from relay.federation.models import RelayNode
from relay.history.models import Point
from relay.limits.models import TwinLimit
from relay.ops import backup, backup_file, settings_api
from relay.ops.backup_file import BackupError, Digest
from relay.sessions.models import Session
from relay.twins.models import Twin
from tests.support.postgres_server import PostgresServer
from tests.support.relay_process import migrated_folder, run_command

NOBODY = {"redis.url": "redis://127.0.0.1:1"}


def fill(django_user_model: Any) -> None:
    """Fill every kind of table, with values that are easily lost: microseconds, bytes, groups."""
    Twin.objects.create(id=7, account=bytes(range(32)), encryption_key=b"\x02" * 33, relays="a_b")
    Twin.objects.create(id=2**32 - 1, account=b"\xff" * 32)
    TwinLimit.objects.create(twin=7, banned=True, ban_reason="späm", note="line\nline")
    RelayNode.objects.create(domain="b.example", paused=True)
    Session.objects.create(
        twin=7, sid="\u2028x", sid_present=True, epoch=2**60, worker="w",
        opened_at=datetime(2026, 1, 2, 3, 4, 5, 123456, UTC),
    )  # fmt: skip
    Point.objects.create(resolution_s=60, at=1_800_000_000, figures=bytes(range(250)))
    user = django_user_model.objects.create_superuser("one", "one@example.com", "password-of-test")
    user.groups.create(name="night shift")


@pytest.fixture
def made(tmp_path: Path, db: None, django_user_model: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a backup of a filled database.

    No audit entry is written: it could not be deleted, and these tests restore into the database
    that the backup comes from.
    """
    monkeypatch.setattr(backup, "_note", lambda *arguments, **more: None)
    fill(django_user_model)
    backup.make(tmp_path / "relay.zip", actor=SYSTEM, secrets=True)
    return tmp_path / "relay.zip"


def everything() -> dict[str, Any]:
    return {label: backup._digest(label) for label in backup._labels()}


def clear(django_user_model: Any) -> None:
    for model in (Twin, TwinLimit, RelayNode, Session, Point, django_user_model):
        model.objects.all().delete()


def secret_key_of(path: Path) -> str | None:
    with backup_file.opened(path) as archive:
        return backup_file.keys_of(archive)[0]


def test_private_and_whole(made: Path) -> None:
    assert made.stat().st_mode & 0o777 == 0o600
    assert list(made.parent.glob(".relay*")) == []
    manifest = backup_file.verify(made)
    rows = {table.label: table.rows for table in manifest.tables}
    assert rows["relay_twins.twin"] == 2 and rows["auth.user"] == 1
    assert "contenttypes.contenttype" not in rows and "relay_ops.worker" not in rows
    assert secret_key_of(made)


def test_restored_as_it_was(made: Path, django_user_model: Any) -> None:
    before = everything()
    clear(django_user_model)
    backup.restore(made, actor=SYSTEM)
    assert everything() == before
    user = django_user_model.objects.get(username="one")
    assert user.check_password("password-of-test")
    assert [group.name for group in user.groups.all()] == ["night shift"]
    assert Session.objects.get().opened_at.microsecond == 123456
    assert Session.objects.create(twin=7, epoch=1, worker="w", opened_at=datetime.now(UTC)).pk


def test_verified_by_a_restore_elsewhere(
    made: Path, django_user_model: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything()
    call_command("rmb_backup", str(made), "--verify")
    assert everything() == before, "the site's database stays as it is"
    told = capsys.readouterr()
    assert "rows in" in told.out and told.err == ""

    def written(sender: Any, instance: Twin, **_: Any) -> None:
        RelayNode.objects.create(domain=f"{instance.pk}.example")

    post_save.connect(written, Twin)
    try:
        with pytest.raises(BackupError, match=r"relay_federation\.relaynode .* \(3 rows, 1 in"):
            backup.verify(made)
        clear(django_user_model)
        with pytest.raises(BackupError, match=r"relay_federation\.relaynode"):
            backup.restore(made, actor=SYSTEM)
    finally:
        post_save.disconnect(written, Twin)
    assert not RelayNode.objects.exists()


def test_verified_where_a_restore_needs_another_key(
    tmp_path: Path, db: None, settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    audit.record(SYSTEM, "account.sign_in")
    backup.make(tmp_path / "b.zip", actor=SYSTEM)
    settings.SECRET_KEY = "of-another-site"
    call_command("rmb_backup", str(tmp_path / "b.zip"), "--verify")
    assert "rmb_restore would refuse it on this site" in capsys.readouterr().err


def test_not_into_a_database_that_has_something(made: Path, django_user_model: Any) -> None:
    clear(django_user_model)
    Twin.objects.create(id=1, account=bytes(32))
    with pytest.raises(BackupError, match=r"not empty \(table relay_twins.twin\)"):
        backup.restore(made, actor=SYSTEM)
    assert Twin.objects.count() == 1 and not TwinLimit.objects.exists()


def test_without_history_or_secrets(tmp_path: Path, db: None, django_user_model: Any) -> None:
    fill(django_user_model)
    manifest = backup.make(tmp_path / "b.zip", actor=SYSTEM, history=False)
    assert "relay_sessions.session" not in {table.label for table in manifest.tables}
    assert secret_key_of(tmp_path / "b.zip") is None
    names = zipfile.ZipFile(tmp_path / "b.zip").namelist()
    values = json.loads(zipfile.ZipFile(tmp_path / "b.zip").read("settings/values.json"))
    assert "secrets/secret_key" not in names
    assert "relay.listen" in values and "redis.url" not in values, "secrets are no values"


FILE = r"""
# url = "postgres://relay:hunter2@db/relay" was the old one
[relay]
domains = ["relay.example"]  # hunter2
[site]
secret_key = "of-the-\u0073ite, hunter2"
[redis]
url_file = "/run/secrets/redis"
[log]
level = "debug"
[substrate]
urls = ["wss://me:hunter2@node.example"]
[analytics]
record = true
keep_days = 7
spark = ["spark.executor.memory=4g", "spark.authenticate.secret=hunter2"]
"""


def test_secrets_of_the_configuration_file(
    tmp_path: Path, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The saved file contains no secrets, not even in comments, and is still valid TOML."""
    file = tmp_path / "rmb.toml"
    file.write_text(FILE)
    monkeypatch.setenv("RMB_CONFIG", str(file))
    backup.make(tmp_path / "b.zip", actor=SYSTEM)
    backup.make(tmp_path / "all.zip", actor=SYSTEM, secrets=True)
    with zipfile.ZipFile(tmp_path / "b.zip") as archive:
        text = archive.read("settings/rmb.toml").decode()
    assert "hunter2" not in text and "# secret_key is not shown" in text
    assert tomllib.loads(text) == {
        "relay": {"domains": ["relay.example"]},
        "site": {},
        "redis": {"url_file": "/run/secrets/redis"},
        "log": {"level": "debug"},
        "substrate": {},
        "analytics": {"record": True, "keep_days": 7},
    }
    with zipfile.ZipFile(tmp_path / "all.zip") as archive:
        assert archive.read("settings/rmb.toml").decode() == file.read_text()


def test_a_configuration_file_that_is_none_any_more(
    tmp_path: Path, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rmb.toml").write_text("[relay")
    monkeypatch.setenv("RMB_CONFIG", str(tmp_path / "rmb.toml"))
    backup.make(tmp_path / "b.zip", actor=SYSTEM)
    assert "settings/rmb.toml" not in zipfile.ZipFile(tmp_path / "b.zip").namelist()


def test_secrets_in_settings_of_other_programs(tmp_path: Path, db: None, settings: Any) -> None:
    spark = ("spark.executor.memory=4g", "spark.authenticate.secret=hunter2")
    analytics = dataclasses.replace(settings.RMB.analytics, spark=spark)
    settings.RMB = dataclasses.replace(settings.RMB, analytics=analytics)
    backup.make(tmp_path / "b.zip", actor=SYSTEM)
    values = zipfile.ZipFile(tmp_path / "b.zip").read("settings/values.json").decode()
    assert "spark.executor.memory=4g" in values and "hunter2" not in values
    shown = {each.key: each.value for each in settings_api.every()}["analytics.spark"]
    assert shown == ["spark.executor.memory=4g", "spark.authenticate.secret=(set, not shown)"]


def test_never_over_another_file(made: Path) -> None:
    before = made.read_bytes()
    with pytest.raises(BackupError, match="exists already"):
        backup.make(made, actor=SYSTEM)
    assert made.read_bytes() == before


def test_written_down(tmp_path: Path, db: None) -> None:
    backup.make(tmp_path / "b.zip", actor=SYSTEM)
    entry = AuditEntry.objects.latest("number")
    assert (entry.action, entry.target) == ("backup.make", "b.zip")


def test_nobody_else(tmp_path: Path, db: None) -> None:
    with pytest.raises(Denied):
        backup.make(tmp_path / "b.zip", actor=Actor("one", Face.CLI, "", frozenset()))
    with pytest.raises(Denied):
        backup.restore(tmp_path / "b.zip", actor=Actor("one", Face.CLI, "", frozenset()))
    assert not (tmp_path / "b.zip").exists()


def test_nowhere_to_write(tmp_path: Path, db: None) -> None:
    with pytest.raises(BackupError, match="cannot write"):
        backup.make(tmp_path / "missing" / "b.zip", actor=SYSTEM)


def rewrite(path: Path, name: str, change: Any) -> None:
    """Change one member of a backup."""
    with zipfile.ZipFile(path) as archive:
        members = {each: archive.read(each) for each in archive.namelist()}
    members[name] = change(members[name])
    with zipfile.ZipFile(path, "w") as archive:
        for each, content in members.items():
            if content is not None:
                archive.writestr(each, content)


TWINS = "database/relay_twins.twin.jsonl"


@pytest.mark.parametrize(
    ("name", "change", "error"),
    [
        (TWINS, lambda data: data.replace(b"a_b", b"a_c"), "relay_twins.twin is damaged"),
        (TWINS, lambda data: data.split(b"\n", 1)[1], "relay_twins.twin is damaged"),
        (TWINS, lambda data: data + data, "relay_twins.twin is damaged"),
        (TWINS, lambda data: data[:-1], "a row is cut"),
        (TWINS, lambda data: b"\xff\n", "relay_twins.twin is damaged"),
        (TWINS, lambda data: None, "relay_twins.twin is missing"),
        ("manifest.json", lambda data: None, "not a backup of a relay"),
        ("manifest.json", lambda data: b"[]", "is damaged"),
        ("manifest.json", lambda data: b"{", "is damaged"),
        ("manifest.json", lambda data: b"{}", "it has no 'format'"),
        ("manifest.json", lambda data: data.replace(b'"format": 1', b'"format": 9'), "format 9"),
    ],
)
def test_damaged(made: Path, django_user_model: Any, name: str, change: Any, error: str) -> None:
    clear(django_user_model)
    rewrite(made, name, change)
    with pytest.raises(BackupError, match=error):
        backup.restore(made, actor=SYSTEM)
    assert not Twin.objects.exists() and not RelayNode.objects.exists()


@pytest.mark.parametrize("name", ["secrets/secret_key", "settings/values.json", TWINS])
def test_a_flipped_byte_of_any_member(made: Path, name: str) -> None:
    data = bytearray(made.read_bytes())
    with zipfile.ZipFile(made) as archive:
        info = archive.getinfo(name)
    data[info.header_offset + 30 + len(name) + info.compress_size // 2] ^= 0x55
    made.write_bytes(data)
    with pytest.raises(BackupError):
        backup_file.verify(made)
    with pytest.raises(CommandError, match="damaged"):
        call_command("rmb_backup", str(made), "--verify")


def test_flipped_bytes_never_end_in_another_error(made: Path, tmp_path: Path) -> None:
    """A flipped byte anywhere in the file is a `BackupError` or harmless, never another error."""
    whole = made.read_bytes()
    bad = tmp_path / "bad.zip"
    found = 0
    for place in range(0, len(whole), 31):
        bad.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            backup_file.verify(bad)
        except BackupError as error:
            assert str(error) and "\n" not in str(error)
            found += 1
    assert found > len(whole) // 31 // 2


def test_without_the_key_it_says_to_have(made: Path) -> None:
    rewrite(made, "secrets/secret_key", lambda data: None)
    with pytest.raises(BackupError, match="secrets/secret_key is missing"):
        backup_file.verify(made)


def test_a_table_of_another_program(made: Path, django_user_model: Any) -> None:
    clear(django_user_model)

    def renamed(data: bytes) -> bytes:
        return data.replace(b"relay_twins.twin", b"relay_twins.twig")

    rewrite(made, "manifest.json", renamed)
    with zipfile.ZipFile(made, "a") as archive:
        archive.writestr(TWINS.replace("twin.", "twig."), archive.read(TWINS))
    with pytest.raises(BackupError, match=r"no table relay_twins\.twig"):
        backup.restore(made, actor=SYSTEM)


def test_rows_the_database_does_not_take(made: Path, django_user_model: Any) -> None:
    """The database refuses the rows of a forged file with valid digests, and nothing remains."""
    clear(django_user_model)
    with zipfile.ZipFile(made) as archive:
        lines = archive.read(TWINS).decode().replace('"a_b"', f'"{"a" * 9}"').splitlines()
    lines[0] = lines[0].replace('"relay_twins.twin"', '"relay_limits.twinlimit"')
    digest = Digest()
    for line in lines:
        digest.add(line)
    table = digest.table("relay_twins.twin")

    def announce(data: bytes) -> bytes:
        document = json.loads(data)
        document["tables"]["relay_twins.twin"] = [table.rows, table.digest]
        return json.dumps(document).encode()

    rewrite(made, TWINS, lambda data: "".join(f"{line}\n" for line in lines).encode())
    rewrite(made, "manifest.json", announce)
    with pytest.raises(BackupError):
        backup.restore(made, actor=SYSTEM)
    assert not Twin.objects.exists() and not TwinLimit.objects.exists()


def test_of_a_newer_release(made: Path, django_user_model: Any) -> None:
    clear(django_user_model)

    def newer(data: bytes) -> bytes:
        document = json.loads(data)
        document["migrations"].append(["relay_twins", "0999_later"])
        return json.dumps(document).encode()

    rewrite(made, "manifest.json", newer)
    with pytest.raises(BackupError, match=r"lacks its migration relay_twins\.0999_later"):
        backup.restore(made, actor=SYSTEM)


def test_something_that_is_no_file_of_ours(tmp_path: Path, db: None) -> None:
    (tmp_path / "text").write_text("hello")
    for path in (tmp_path / "text", tmp_path / "missing", tmp_path):
        with pytest.raises(CommandError, match="cannot be read as a backup"):
            call_command("rmb_backup", str(path), "--verify")


def test_from_sqlite_to_postgresql_and_back(tmp_path: Path, postgres: PostgresServer) -> None:
    """The commands, each in its own process, restore both ways, and numbers of entries continue."""
    source = {**NOBODY, "site.secret_key": "k" * 50}
    target = {**source, "database.url": postgres.make_migrated_database("restored")}
    twin = ("rmb_twin", "add", "7", f"0x{'01' * 32}", "--relays", "a.example")
    shutil.copytree(migrated_folder(), tmp_path / "data")
    shutil.copy(tmp_path / "data" / "relay.sqlite3", tmp_path / "back.sqlite3")
    for arguments in (twin, ("rmb_backup", "first.zip", "--secrets")):
        done = run_command(tmp_path, *arguments, settings=source)
        assert done.returncode == 0, done.stderr
    with sqlite3.connect(tmp_path / "data" / "relay.sqlite3") as database:
        assert database.execute("SELECT count(*) FROM relay_twins_twin").fetchone() == (1,)
    for arguments in (
        ("rmb_restore", "first.zip", "--json"),
        ("rmb_twin", "add", "8", f"0x{'02' * 32}"),
        ("rmb_backup", "second.zip"),
    ):
        done = run_command(tmp_path, *arguments, settings=target)
        assert done.returncode == 0, done.stderr
        if arguments[0] == "rmb_restore":
            assert json.loads(done.stdout)["secrets"] is True
    assert "restored and verified" not in done.stdout and "rows in" in done.stdout
    back = {**NOBODY, "database.url": f"sqlite:///{tmp_path}/back.sqlite3"}
    back["site.secret_key"] = source["site.secret_key"]
    done = run_command(tmp_path, "rmb_restore", "second.zip", settings=back)
    assert done.returncode == 0 and "when Redis is back" in done.stderr, done.stderr
    done = run_command(tmp_path, "rmb_audit", "list", "--json", settings=target)
    actions = [entry["action"] for entry in json.loads(done.stdout)]
    assert actions == ["backup.make", "twin.put", "backup.restore", "twin.put"]
    done = run_command(tmp_path, "rmb_audit", "verify", settings=target)
    assert done.returncode == 0, done.stdout
    with sqlite3.connect(tmp_path / "back.sqlite3") as database:
        assert database.execute("SELECT count(*) FROM relay_twins_twin").fetchone() == (2,)
    assert os.listdir(tmp_path).count("first.zip") == 1
