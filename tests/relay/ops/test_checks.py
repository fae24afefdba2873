"""`relay.ops.checks` and the metrics table: what is declared is what is."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks

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


def test_tls_files_that_are_not_there(settings: Any) -> None:
    configured(settings, "relay", tls_cert="/no/cert", tls_key="/no/key")
    assert found() == ["relay.E001", "relay.E001"]


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
