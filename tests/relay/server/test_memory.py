"""`relay.server.memory`: the memory of the machine or the container."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from relay.server.memory import V1_LIMIT, machine_bytes

WHOLE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "groups" / "system.slice" / "relay.service").mkdir(parents=True)
    path = tmp_path / "own"
    path.write_text("3:cpu:/\n0::/system.slice/relay.service\n")
    return path


def test_a_machine_without_limits(tmp_path: Path, own: Path) -> None:
    groups = tmp_path / "groups"
    (groups / "system.slice" / "memory.max").write_text("max\n")
    assert machine_bytes(groups, own) == WHOLE
    assert machine_bytes(tmp_path / "none", tmp_path / "none") == WHOLE


@pytest.mark.parametrize("place", ["memory.max", "system.slice/relay.service/memory.max", V1_LIMIT])
def test_the_least_limit_around_a_process(tmp_path: Path, own: Path, place: str) -> None:
    groups = tmp_path / "groups"
    (groups / "memory").mkdir()
    (groups / "system.slice" / "memory.max").write_text("300000000\n")
    (groups / place).write_text("200000000\n")
    assert machine_bytes(groups, own) == 200_000_000


def test_a_limit_above_the_memory_is_none(tmp_path: Path, own: Path) -> None:
    (tmp_path / "groups" / "memory.max").write_text("9223372036854771712\n")
    assert machine_bytes(tmp_path / "groups", own) == WHOLE
