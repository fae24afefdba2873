"""`relay.ops.checks` and the table of metrics: declarations match the code."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.management import call_command, get_commands, load_command_class

from relay.ops.metric_names import BY_NAME, family
from relay.sessions.counters import Counters


def configured(settings: Any, section: str, **values: Any) -> None:
    changed = dataclasses.replace(getattr(settings.RMB, section), **values)
    settings.RMB = dataclasses.replace(settings.RMB, **{section: changed})


def found() -> list[str | None]:
    return [message.id for message in run_checks(tags=["relay"])]


@pytest.fixture(autouse=True)
def data_dir(settings: Any, tmp_path: Path) -> Path:
    configured(settings, "data", dir=str(tmp_path / "data"))
    (tmp_path / "data").mkdir(mode=0o700)
    return tmp_path / "data"


def test_nothing_to_complain_about() -> None:
    assert found() == []


def test_files_others_can_read(data_dir: Path) -> None:
    (data_dir / "secret_key").touch(mode=0o644)
    assert found() == ["relay.W001"]
    (data_dir / "secret_key").chmod(0o600)
    data_dir.chmod(0o750)
    assert found() == ["relay.W001"]


def test_seeds_of_the_lattice_others_can_read(settings: Any, tmp_path: Path) -> None:
    seed = tmp_path / "seed"
    seed.touch(mode=0o640)
    for name in ("cluster_seed_file", "provider_seed_file", "twin_secret_file"):
        configured(settings, "lattice", **{name: str(seed)})
        assert found() == ["relay.W001"]
        configured(settings, "lattice", **{name: str(tmp_path / "missing")})
        assert found() == []


def test_tls_files_that_are_not_there(settings: Any) -> None:
    configured(settings, "relay", tls_cert="/no/cert", tls_key="/no/key")
    assert found() == ["relay.E001", "relay.E001"]


@pytest.mark.parametrize(
    ("days", "says"),
    [(400, ""), (65, ""), (64, "lacks sessions"), (34, "lacks sessions"), (33, "the first days")],
)
def test_events_that_go_before_the_bill_is_made(settings: Any, days: int, says: str) -> None:
    configured(settings, "analytics", keep_days=days)
    assert found() == []
    configured(settings, "analytics", record=True)
    told = run_checks(tags=["relay"])
    assert [message.id for message in told] == (["relay.W003"] if says else [])
    assert all(says in message.msg for message in told)


@pytest.mark.parametrize(
    ("section", "values", "code"),
    [
        ("queue", {"max_bytes": 1024}, "relay.E002"),
        ("relay", {"partial_bytes": 2**20}, "relay.E003"),
        ("limits", {"count": 10, "size": 1000}, "relay.W002"),
    ],
)
def test_bounds_that_contradict(
    settings: Any, section: str, values: dict[str, int], code: str
) -> None:
    configured(settings, section, **values)
    assert found() == [code]


def test_what_workers_count_is_declared() -> None:
    counters = Counters()
    for counts in (counters.drops, counters.evictions, counters.refused_handshakes):
        counts["idle"] += 1
    names = {family(series.partition("{")[0]) for series in counters.series()}
    assert names <= set(BY_NAME)


def test_no_command_imports_the_pages_of_the_site() -> None:
    """Commands avoid Django's own checks, whose imports take more than a second."""
    commands = {name: app for name, app in get_commands().items() if name.startswith("rmb_")}
    assert len(commands) > 20
    for name, app in commands.items():
        asked = load_command_class(str(app), name).requires_system_checks
        assert asked == ("relay",) or not asked, name


def test_a_command_tells_of_what_is_not_wise(settings: Any, capsys: Any) -> None:
    configured(settings, "limits", count=1, size=100)
    call_command("rmb_alarms", "runbook", skip_checks=False)
    assert "relay.W002" in capsys.readouterr().err
