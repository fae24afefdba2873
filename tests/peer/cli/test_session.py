"""Sources of the values that `rmb` uses, and the errors for wrong ones."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from peer.arguments import UsageError
from peer.cli.session import Session
from peer.twin_sources.file import FileTwins
from peer.twin_sources.rest import RestTwins
from proto.identity.signing import KeyType
from tests.support.identities import twin, twins_csv

SEED = f"0x{twin(7).mini_secret.hex()}"  # TEST KEY
OTHER = f"0x{twin(8).mini_secret.hex()}"  # TEST KEY


@pytest.fixture(autouse=True)
def _nothing_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SECRET", "SECRET_FILE", "RELAY", "TWINS", "SUBSTRATE", "KEY_TYPE", "PROFILE"):
        monkeypatch.delenv(f"RMB_{name}", raising=False)
    monkeypatch.chdir(tmp_path)


def session(**options: Any) -> Session:
    return Session(argparse.Namespace(**options))


def profile(tmp_path: Path, text: str) -> str:
    folder = tmp_path / "profiles"
    folder.mkdir(exist_ok=True)
    path = folder / "me.toml"
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


def test_options_come_before_the_environment_before_the_profile_before_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert session().relays == ("wss://relay.grid.tf",)
    path = profile(
        tmp_path, f'secret = "{SEED}"\nrelays = ["wss://r1.example"]\nkey_type = "ed25519"\n'
    )
    given = session(profile=path)
    assert given.relays == ("wss://r1.example",)
    assert given.identity.key.key_type is KeyType.ED25519
    monkeypatch.setenv("RMB_RELAY", "wss://r2.example wss://r3.example")
    monkeypatch.setenv("RMB_KEY_TYPE", "sr25519")
    monkeypatch.setenv("RMB_SECRET", OTHER)
    monkeypatch.setenv("RMB_PROFILE", path)
    assert session().relays == ("wss://r2.example", "wss://r3.example")
    assert session().identity.account == twin(8).account
    assert session(relay=["ws://127.0.0.1:1"], mnemonic=SEED).relays == ("ws://127.0.0.1:1",)
    assert session(mnemonic=SEED).identity.account == twin(7).account


def test_files_a_profile_names_are_beside_it(tmp_path: Path) -> None:
    path = profile(tmp_path, 'secret_file = "secret"\ntwins = "twins.csv"\n')
    (tmp_path / "profiles/secret").write_text(SEED)
    (tmp_path / "profiles/twins.csv").write_text(twins_csv([twin(7)]))
    found = session(profile=path)
    assert found.identity.account == twin(7).account
    assert isinstance(found.open_twins(), FileTwins)


async def test_twins_of_a_relay_need_no_chain(tmp_path: Path) -> None:
    source = session(twins="http://127.0.0.1:1").open_twins()
    assert isinstance(source, RestTwins)
    await source.aclose()


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("secret = ", "not valid TOML"),
        ('relay = "wss://r1.example"', "unknown key 'relay'; known keys: secret, "),
        ("relays = [1]", "relays must be a list of strings"),
        ("twins = 3", "twins must be a string"),
        (f'secret = "{SEED}"\nsecret_file = "x"', "set secret or secret_file, not both"),
        ("#" * 70_000, "more than 65536 bytes"),
    ],
)
def test_a_wrong_profile_is_named(tmp_path: Path, text: str, wrong: str) -> None:
    path = profile(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        session(profile=path)
    assert str(caught.value).startswith(f"profile {path}: ")
    assert wrong in str(caught.value)


def test_errors_of_a_profile_do_not_repeat_its_secret(tmp_path: Path) -> None:
    path = profile(tmp_path, f"secret = {SEED}00")
    with pytest.raises(UsageError) as caught:
        session(profile=path)
    assert SEED[2:20] not in str(caught.value)


def test_a_profile_others_can_read_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = profile(tmp_path, f'secret = "{SEED}"')
    session(profile=path)
    assert not capsys.readouterr().err
    Path(path).chmod(0o644)
    session(profile=path)
    assert "other users can read its secret; run chmod 600" in capsys.readouterr().err
