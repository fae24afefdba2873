"""Profiles of the demo twins for `rmb`: their contents, and when none are written."""

from __future__ import annotations

import stat
import tomllib
from pathlib import Path

import pytest

from relay.demo import identities, profiles

RUNTIME = {"relay_url": "ws://127.0.0.1:8080", "admin_url": "http://127.0.0.1:8081"}


def test_each_demo_twin_has_a_private_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twins = identities.load_or_make(tmp_path)
    written = profiles.write(tmp_path, RUNTIME)
    assert [path.name for path in written] == ["alice.toml", "bob.toml", "carol.toml"]
    for path, twin in zip(written, twins, strict=True):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert tomllib.loads(path.read_text()) == {
            "secret": twin.secret,
            "relays": ["ws://127.0.0.1:8080"],
            "twins": "http://127.0.0.1:8081",
        }
    monkeypatch.chdir(tmp_path.parent)
    assert profiles.command(written[0]).endswith(f"rmb ping -p {tmp_path.name}/alice.toml")


def test_a_profile_is_written_anew_when_ports_change(tmp_path: Path) -> None:
    identities.load_or_make(tmp_path)
    profiles.write(tmp_path, RUNTIME)
    (path, *_) = profiles.write(tmp_path, {**RUNTIME, "relay_url": "ws://127.0.0.1:9"})
    assert tomllib.loads(path.read_text())["relays"] == ["ws://127.0.0.1:9"]


@pytest.mark.parametrize(
    "missing", [{"admin_url": None}, {"relay_url": "unix:/run/rmb.sock"}, {"admin_url": "unix:/x"}]
)
def test_a_peer_needs_both_addresses(tmp_path: Path, missing: dict[str, str | None]) -> None:
    identities.load_or_make(tmp_path)
    assert profiles.write(tmp_path, {**RUNTIME, **missing}) == []
