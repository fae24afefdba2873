"""Tests of the initial state of a new chain."""

from __future__ import annotations

from pathlib import Path

import pytest

from chain.devchain import genesis
from chain.devchain.errors import GenesisError
from proto.chain import storage, twin
from proto.chain.twin import Twin
from proto.identity import ss58
from proto.identity.agreement import EncryptionKey
from proto.identity.signing import SigningKey

HEADER = "id,account,pk,relays\n"
ACCOUNT = b"\7" * 32
ADDRESS = ss58.encode(ACCOUNT)


def _csv(folder: Path, text: str) -> Path:
    path = folder / "twins.csv"
    path.write_text(text)
    return path


def test_development_accounts_are_those_everybody_knows() -> None:
    alice = genesis.development_key("Alice")
    assert ss58.encode(alice.account) == "5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY"
    assert storage.account_key(alice.account) in genesis.state(())


def test_made_up_twins_have_keys_that_follow_from_their_number() -> None:
    first, second = genesis.made_up_twins(2, b"a.example.com_b.example.com")
    assert (first.id, second.id) == (1, 2)
    secret = genesis.twin_secret(2)
    assert second.account == SigningKey.from_mini_secret(secret).account
    assert second.pk == EncryptionKey(secret).public
    assert second.relay == b"a.example.com_b.example.com"


def test_twins_are_found_both_ways() -> None:
    state = genesis.state([Twin(5, ACCOUNT, b"x")])
    assert state[storage.twin_key(5)] == twin.encode(Twin(5, ACCOUNT, b"x"))
    assert state[storage.twin_id_key(ACCOUNT)] == b"\5\0\0\0"
    assert state[storage.LAST_TWIN_ID] == b"\5\0\0\0"
    assert storage.account_key(ACCOUNT) in state


def test_two_of_one_kind_are_refused() -> None:
    for second in (Twin(5, b"\1" * 32), Twin(6, ACCOUNT)):
        with pytest.raises(GenesisError, match=f"twin {second.id}: "):
            genesis.state([Twin(5, ACCOUNT), second])


def test_too_many_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(genesis, "MAX_GENESIS_TWINS", 1)
    with pytest.raises(GenesisError, match="more than 1"):
        genesis.state([Twin(5, ACCOUNT), Twin(6, b"\1" * 32)])


def test_other_beginnings_are_other_chains() -> None:
    empty = genesis.block(genesis.state(()))
    assert empty.hash == genesis.block(genesis.state(())).hash
    assert empty.hash != genesis.block(genesis.state([Twin(5, ACCOUNT)])).hash


def test_a_file_is_read(tmp_path: Path) -> None:
    text = f"{HEADER}3,{ADDRESS},0x{'02' * 33},b_a\n\n9,0x{'01' * 32},,\n"
    assert genesis.read_csv(_csv(tmp_path, text)) == [
        Twin(3, ACCOUNT, b"b_a", (), b"\2" * 33),
        Twin(9, b"\1" * 32),
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the first line must be id,account,pk,relays"),
        (f"{HEADER}1,2\n", "line 2: 2 fields instead of 4"),
        (f"{HEADER}0,{ADDRESS},,\n", "line 2: id must be a number from 1"),
        (f"{HEADER}{'9' * 5000},{ADDRESS},,\n", "line 2: id must be"),
        (f"{HEADER}٣,{ADDRESS},,\n", "line 2: id must be"),
        (f"{HEADER}1,nobody,,\n", "line 2: account: "),
        (f"{HEADER}1,0x12,,\n", "line 2: account: has 1 bytes instead of 32"),
        (f"{HEADER}1,{ADDRESS},0xzz,\n", "line 2: pk: "),
        (f"{HEADER}1,{ADDRESS},0x{'00' * 129},\n", "line 2: pk has 129 bytes, at most 128"),
        (f"{HEADER}1,{ADDRESS},,{'a' * 1025}\n", "line 2: relays has more than 1024"),
        (f'{HEADER}1,{ADDRESS},,"{"a" * 200_000}"\n', "field larger"),
    ],
)
def test_wrong_files_are_named(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(GenesisError, match=problem):
        genesis.read_csv(_csv(tmp_path, text))


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(GenesisError, match=r"none\.csv: "):
        genesis.read_csv(tmp_path / "none.csv")
    (tmp_path / "bad.csv").write_bytes(b"\xff\xfe\xfd")
    with pytest.raises(GenesisError, match=r"bad\.csv: "):
        genesis.read_csv(tmp_path / "bad.csv")
