"""What a new chain begins with: funded accounts, and twins.

TEST KEYS: the development accounts have the keys that every Substrate tool knows, and the twins
made up here have keys that follow from their number. None may ever be used on a real network.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final

from chain.devchain import accounts, calls
from chain.devchain.accounts import Account
from chain.devchain.bounds import MAX_GENESIS_TWINS
from chain.devchain.errors import GenesisError
from chain.devchain.ledger import Block, Changes, extrinsics_root, state_root
from proto.chain import storage
from proto.chain.bounds import ACCOUNT_BYTES, MAX_PK_BYTES, MAX_RELAY_BYTES, MAX_U32
from proto.chain.errors import ChainFormatError
from proto.chain.headers import Header, from_hex
from proto.chain.twin import Twin
from proto.identity import ss58
from proto.identity.agreement import EncryptionKey
from proto.identity.errors import AddressError
from proto.identity.signing import SigningKey

UNITS_PER_TOKEN: Final = 10_000_000
DEVELOPMENT_BALANCE: Final = 1_000_000_000 * UNITS_PER_TOKEN
TWIN_BALANCE: Final = 100 * UNITS_PER_TOKEN

_PHRASE: Final = "bottom drive obey lake curtain smoke basket hold race lonely fit walk"
_NAMES: Final = ("Alice", "Bob", "Charlie", "Dave", "Eve", "Ferdie")
_COLUMNS: Final = ("id", "account", "pk", "relays")
_NUMBER: Final = re.compile(r"[0-9]{1,10}")
_NO_BLOCK: Final = bytes(32)


def development_key(name: str) -> SigningKey:
    """TEST KEY of a development account, sr25519: `Alice` to `Ferdie`."""
    return SigningKey.from_secret(f"{_PHRASE}//{name}")


def twin_secret(number: int) -> bytes:
    """TEST KEY: mini secret of a twin made up by `made_up_twins`; anybody can compute it."""
    return sha256(f"devchain test key of twin {number}".encode()).digest()


def made_up_twins(count: int, relay: bytes) -> Iterator[Twin]:
    """Twins 1 to `count`, with keys of `twin_secret` and all at one relay."""
    for number in range(1, count + 1):
        secret = twin_secret(number)
        account = SigningKey.from_mini_secret(secret).account
        yield Twin(number, account, relay, (), EncryptionKey(secret).public)


def read_csv(path: Path) -> list[Twin]:
    """The twins of a file with the header `id,account,pk,relays`, as `rmb_twin export` writes it.

    Raises:
        GenesisError: it cannot be read; names the line and the field.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file)
            if tuple(next(rows, ())) != _COLUMNS:
                raise GenesisError(f"{path}: the first line must be {','.join(_COLUMNS)}")
            return [_from_row(row, f"{path}, line {rows.line_num}") for row in rows if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise GenesisError(f"{path}: {error}") from None


def parse_account(text: str) -> bytes:
    """An account, as address or as 0x hex.

    Raises:
        GenesisError: neither.
    """
    try:
        if not text.startswith("0x"):
            return ss58.decode(text)
        account = from_hex("account", text, ACCOUNT_BYTES)
    except (AddressError, ChainFormatError) as error:
        raise GenesisError(f"account: {error}") from None
    if len(account) != ACCOUNT_BYTES:
        raise GenesisError(f"account: has {len(account)} bytes instead of {ACCOUNT_BYTES}")
    return account


class _Memory:
    """A state that nothing was before."""

    def __init__(self) -> None:
        self.changes: dict[bytes, bytes | None] = {}

    def get(self, key: bytes) -> bytes | None:
        return self.changes.get(key)

    def put(self, key: bytes, value: bytes | None) -> None:
        self.changes[key] = value


def state(twins: Iterable[Twin]) -> Changes:
    """The state before the first block: development accounts and some twins, all funded.

    Raises:
        GenesisError: two twins with one id or account, or too many.
    """
    memory = _Memory()
    for name in _NAMES:
        accounts.write(memory, development_key(name).account, Account(0, DEVELOPMENT_BALANCE))
    for count, twin in enumerate(twins, 1):
        if count > MAX_GENESIS_TWINS:
            raise GenesisError(f"more than {MAX_GENESIS_TWINS} twins")
        if memory.get(storage.twin_key(twin.id)) or memory.get(storage.twin_id_key(twin.account)):
            raise GenesisError(f"twin {twin.id}: its id or its account is there twice")
        calls.put_twin(memory, twin)
        accounts.write(memory, twin.account, Account(0, TWIN_BALANCE))
    return memory.changes


def block(changes: Changes) -> Block:
    """Block 0 with this state."""
    header = Header(_NO_BLOCK, 0, state_root(_NO_BLOCK, changes), extrinsics_root(()))
    return Block(header, header.hash(), (), changes)


def _from_row(row: list[str], where: str) -> Twin:
    if len(row) != len(_COLUMNS):
        raise GenesisError(f"{where}: {len(row)} fields instead of {len(_COLUMNS)}")
    number, account, pk, relays = row
    if not _NUMBER.fullmatch(number) or not 0 < int(number) <= MAX_U32:
        raise GenesisError(f"{where}: id must be a number from 1 to {MAX_U32}")
    if len(relays.encode()) > MAX_RELAY_BYTES:
        raise GenesisError(f"{where}: relays has more than {MAX_RELAY_BYTES} bytes")
    try:
        key = from_hex("pk", pk, MAX_PK_BYTES) if pk else None
        return Twin(int(number), parse_account(account), relays.encode() or None, (), key)
    except (GenesisError, ChainFormatError) as error:
        raise GenesisError(f"{where}: {error}") from None
