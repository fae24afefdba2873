"""The keys of a secret, and the rule that a secret is given in only one place."""

from __future__ import annotations

from pathlib import Path

import pytest

from peer.identity import Identity, read_secret
from proto.identity import ss58
from proto.identity.bounds import MAX_SECRET_CHARS
from proto.identity.errors import SecretError
from proto.identity.signing import KeyType

WORDS = "bottom drive obey lake curtain smoke basket hold race lonely fit walk"  # TEST KEY
ACCOUNTS = {
    KeyType.SR25519: "5DfhGyQdFobKM8NsWvEeAKk5EQQgYe9AydgJ7rMB6E1EqRzV",
    KeyType.ED25519: "5DFJF7tY4bpbpcKPJcBTQaKuCDEPCpiz8TRjpmLeTtweqmXL",
}
PK = "035b26108e8b97479c547da4860d862dc08ab2c29ada449c74d5a9a58a6c46a8c4"
VARIABLE = "RMB_TEST_SECRET"


@pytest.mark.parametrize("key_type", KeyType)
def test_both_keys_are_those_of_other_clients(key_type: KeyType) -> None:
    identity = Identity.from_secret(WORDS, key_type)
    assert ss58.encode(identity.account) == ACCOUNTS[key_type]
    assert identity.pk.hex() == PK
    assert identity.key.key_type is key_type
    assert "bottom" not in repr(identity)


def test_a_path_changes_the_account_and_not_the_encryption_key() -> None:
    identity = Identity.from_secret(f"{WORDS}//second")
    assert ss58.encode(identity.account) != ACCOUNTS[KeyType.SR25519]
    assert identity.pk.hex() == PK


def test_a_secret_comes_from_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret"
    file.write_text(f"  {WORDS}\n\n")
    assert read_secret(WORDS, None, VARIABLE) == WORDS
    assert read_secret(None, file, VARIABLE) == WORDS
    with pytest.raises(SecretError, match=f"or set {VARIABLE}"):
        read_secret(None, None, VARIABLE)
    monkeypatch.setenv(VARIABLE, "0x1")
    assert read_secret(None, None, VARIABLE) == "0x1"
    assert read_secret(None, file, VARIABLE) == WORDS
    with pytest.raises(SecretError, match="not both"):
        read_secret(WORDS, file, VARIABLE)


@pytest.mark.parametrize(
    ("content", "wrong"),
    [(None, "No such file"), (b" \n", "empty"), (b"\xff\xfe", "not text")],
)
def test_a_file_that_holds_none_is_named(tmp_path: Path, content: bytes | None, wrong: str) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SecretError) as caught:
        read_secret(None, file, VARIABLE)
    assert str(caught.value).startswith(f"secret file {file}: ")
    assert wrong in str(caught.value)


def test_a_file_that_is_something_else_is_not_read_whole(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("x" * 10 * MAX_SECRET_CHARS)
    secret = read_secret(None, file, VARIABLE)
    assert len(secret) == MAX_SECRET_CHARS + 1
    with pytest.raises(SecretError, match=f"at most {MAX_SECRET_CHARS} characters"):
        Identity.from_secret(secret)
