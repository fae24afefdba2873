"""Accounts in the state: their nonces and balances.

AccountInfo in SCALE: nonce, consumers, providers, sufficients (u32 each), then free, reserved,
frozen and flags (u128 each).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from proto.chain import scale, storage
from proto.chain.scale import Reader

_U128_BYTES: Final = 16
_FLAGS: Final = 2**127
"""Flag of every account since Balances keeps flags: "written by the new logic"."""

TOTAL_ISSUANCE: Final = storage.item_key("Balances", "TotalIssuance")


class ReadWrite(Protocol):
    """A state that can be changed."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key."""

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set a value; None removes it."""


@dataclass(frozen=True, slots=True)
class Account:
    """An account; one that does not exist has zeros."""

    nonce: int = 0
    free: int = 0


def read(state: ReadWrite, account: bytes) -> Account:
    """Return an account from the state."""
    return decode(state.get(storage.account_key(account)))


def decode(value: bytes | None) -> Account:
    """Decode the account in a storage value; None stands for an account that does not exist."""
    if value is None:
        return Account()
    reader = Reader(value)
    nonce = reader.u32("account.nonce")
    reader.fixed("account.references", 3 * 4)
    return Account(nonce, int.from_bytes(reader.fixed("account.free", _U128_BYTES), "little"))


def write(state: ReadWrite, account: bytes, new: Account) -> None:
    """Set an account, and adjust the total issuance."""
    old = read(state, account)
    state.put(storage.account_key(account), encode(new))
    if new.free != old.free:
        issued = int.from_bytes(state.get(TOTAL_ISSUANCE) or b"", "little")
        state.put(TOTAL_ISSUANCE, u128(issued + new.free - old.free))


def encode(account: Account) -> bytes:
    """Encode an AccountInfo with one provider (the balance) and nothing reserved."""
    return b"".join(
        (
            scale.u32("account.nonce", account.nonce),
            scale.u32("account.consumers", 0),
            scale.u32("account.providers", 1),
            scale.u32("account.sufficients", 0),
            u128(account.free),
            u128(0),
            u128(0),
            u128(_FLAGS),
        )
    )


def u128(value: int) -> bytes:
    """Encode a 128-bit number."""
    return value.to_bytes(_U128_BYTES, "little")
