"""Tests of `rmb_checkconfig` and `rmb_configdoc`, and of a bad setting in any command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import version
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command

from relay.server import cli, embedded, running
from rmbsite.config import Config, all_options, load

ROOT = Path(__file__).parent.parent.parent


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )


def output(command: str, *arguments: str) -> str:
    stdout = StringIO()
    call_command(command, *arguments, stdout=stdout, stderr=StringIO())
    return stdout.getvalue()


INTERRUPTED = """
import signal, sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == {at!r}:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
from {entry} import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("entry", "at"),
    [
        ("rmbsite.command_line", "django.core.management"),
        ("rmbsite.command_line", "rmbsite.settings"),
        ("relay.server.cli", "relay.server.start"),
    ],
)
def test_an_interrupt_while_it_starts_is_no_traceback(tmp_path: Path, entry: str, at: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED.format(entry=entry, at=at), "check"],
        cwd=ROOT,
        env={**os.environ, "RMB_DATA__DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_a_fresh_clone_needs_nothing(tmp_path: Path) -> None:
    ended = run("check", RMB_DATA__DIR=str(tmp_path / "data"))
    assert ended.returncode == 0, ended.stderr


def test_the_version_is_the_platforms(tmp_path: Path) -> None:
    ended = run("--version", RMB_DATA__DIR=str(tmp_path))
    assert ended.stdout == f"rmb-manage {version('rmb-relay-platform')}\n"


def test_a_bad_setting_is_one_line_and_code_2(tmp_path: Path) -> None:
    ended = run("check", RMB_RELAY__LISTN="x", RMB_DATA__DIR=str(tmp_path))
    assert ended.returncode == 2
    complaint = "unknown setting relay.listn (RMB_RELAY__LISTN), did you mean relay.listen?"
    assert ended.stderr == f"configuration: {complaint}\n"
    assert ended.stdout == ""


def test_a_database_without_tables_is_one_line_and_code_1(tmp_path: Path) -> None:
    ended = run("rmb_twin", "list", RMB_DATA__DIR=str(tmp_path))
    assert ended.returncode == 1
    assert ended.stderr.startswith("database: no such table: relay_twins_twin (data folder")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_what_nobody_reads_to_its_end_is_not_done(tmp_path: Path, closed: str) -> None:
    """A command whose output pipe is closed, as by `| head`, ends with code 1 and prints nothing.

    The backup's progress goes to standard error, so that pipe is closed for it.
    """
    variables = {**os.environ, "RMB_DATA__DIR": str(tmp_path)}
    assert run("migrate", "-v0", "--skip-checks", RMB_DATA__DIR=str(tmp_path)).returncode == 0
    arguments = ("rmb_configdoc",) if closed == "stdout" else ("rmb_backup", f"{tmp_path}/b.zip")
    reading, writing = os.pipe()
    os.close(reading)
    others = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, closed: writing}
    with subprocess.Popen(
        [sys.executable, "manage.py", *arguments], cwd=ROOT, env=variables, **others
    ) as command:
        os.close(writing)
        told = command.communicate()
    assert command.returncode == 1
    assert not any(told)


def test_a_command_finds_the_redis_of_its_data_folder(tmp_path: Path) -> None:
    """A command uses the Redis of its data folder, unless another Redis is configured.

    The relay need not be running.
    """
    show = ("shell", "-v0", "-c", "from django.conf import settings; print(settings.RMB.redis.url)")
    folder = {"RMB_DATA__DIR": str(tmp_path)}

    def used(**variables: str) -> str:
        ended = run(*show, **folder, **variables)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.strip()

    assert used() == Config().redis.url
    (tmp_path / "valkey").mkdir()
    assert used() == embedded.redis_url(embedded.socket_path(tmp_path)), "of an earlier release"
    embedded.note_url(tmp_path, "rediss://me:hunter2@cache.example/3?ssl_ca_certs=ca.pem")
    assert used() == "rediss://cache.example:6379/3?ssl_ca_certs=ca.pem"
    assert used(RMB_REDIS__URL="redis://named.example") == "redis://named.example:6379"


def test_settings_import_nothing_heavy(tmp_path: Path) -> None:
    """A relay worker sets Django up without loading Spark, the chain client or the site."""
    script = (
        "import django, sys; django.setup(); import relay.sessions.app;"
        "print(sorted({'pyspark', 'substrateinterface', 'scalecodec', 'twisted', 'daphne', 'ninja',"
        " 'celery', 'kombu', 'aiohttp', 'chain.client', 'pydantic', 'allauth', 'unfold', 'jwt',"
        " 'relay.audit.services', 'relay.access.services', 'relay.access.tokens', 'relay.history',"
        " 'relay.dashboard'}"
        " & set(sys.modules)))"
    )
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "rmbsite.settings",
        "RMB_DATA__DIR": str(tmp_path),
        "RMB_ROLE": "worker",
    }
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert ended.stdout == "[]\n", ended.stderr


def test_checkconfig_hides_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMB_REDIS__URL", "redis://:hunter2@host")
    monkeypatch.setenv("RMB_QUEUE__RETENTION_S", "60")
    text = output("rmb_checkconfig")
    assert "hunter2" not in text
    assert "queue.retention_s = 60  (RMB_QUEUE__RETENTION_S)\n" in text
    shown = json.loads(output("rmb_checkconfig", "--json", "--all"))
    assert set(shown) == {each.key for each in all_options()}
    assert shown["queue.retention_s"] == {"value": 60, "origin": "RMB_QUEUE__RETENTION_S"}
    assert shown["relay.server"] == {"value": "uvicorn", "origin": "default"}


def test_checkconfig_hides_secrets_within_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value passed on to other programs is hidden if its name or a URL in it shows a secret."""
    spark = {
        "spark.executor.memory": "4g",
        "spark.authenticate.secret": "hunter2",
        "spark.hadoop.fs.s3a.access.key": "hunter2",
        "spark.executor.extraJavaOptions": "-Djavax.net.ssl.trustStorePassword=hunter2",
        "spark.hive.url": "thrift://me:hunter2@host",
    }
    words = ",".join(f"{name}={value}" for name, value in spark.items())
    monkeypatch.setenv("RMB_ANALYTICS__SPARK", words)
    monkeypatch.setenv("RMB_SUBSTRATE__URLS", "wss://me:hunter2@node.example,wss://b.example")
    monkeypatch.setenv("RMB_ANALYTICS__MASTER", "spark://me:/hunter2@host:7077")
    text = output("rmb_checkconfig")
    assert "hunter2" not in text
    assert "spark.executor.memory=4g, spark.authenticate.secret=(set, not shown)" in text
    assert "wss://***@node.example, wss://b.example" in text and "spark://***@host:7077" in text
    assert "thrift://***@host" in text


def test_checkconfig_shows_what_the_running_relay_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RMB_DATA__DIR", str(tmp_path))
    options = ("--domain", "a.example", "--redis", "redis://:hunter2@host", "--data", str(tmp_path))
    settled = cli.settle(cli.parse_options(options, "rmb-relay"), {"RMB_QUEUE__RETENTION_S": "60"})
    note = running.Note(tmp_path, settled.described)
    text = output("rmb_checkconfig").partition("The relay that runs")[2]
    assert text.startswith(f" (pid {os.getpid()}) uses these values instead:\n")
    assert "relay.domains = a.example  (--domain)\n" in text and "hunter2" not in text
    assert "queue.retention_s = 60  (RMB_QUEUE__RETENTION_S)\n" in text
    assert "twins.source = tfchain  (rmb-relay)\n" in text
    assert "data.dir" not in text and "relay.listen" not in text
    shown = json.loads(output("rmb_checkconfig", "--json"))
    assert shown["relay.domains"]["running"] == {"value": ["a.example"], "origin": "--domain"}
    note.close()
    assert "The relay that runs" not in output("rmb_checkconfig"), "it has ended"


def test_configdoc_names_everything() -> None:
    page, variables = output("rmb_configdoc"), output("rmb_configdoc", "--format", "env")
    for each in all_options():
        assert f"| `{each.key}` |" in page
        assert f"# {each.variable}=" in variables


def test_the_documented_file_is_the_defaults(tmp_path: Path) -> None:
    lines = output("rmb_configdoc", "--format", "toml").splitlines()
    settings = [
        line.removeprefix("# ") if " = " in line and line.startswith("# ") else line
        for line in lines
    ]
    file = tmp_path / "rmb.toml"
    file.write_text("\n".join(settings))
    assert set(tomllib.loads(file.read_text())) == {each.section for each in all_options()}
    assert load(environ={"RMB_CONFIG": str(file)}) == Config()
