"""Parsing of the text forms of a twin's values, as a relay's registry writes them."""

from __future__ import annotations

from collections.abc import Iterable

from peer.twins import Twin
from proto.identity import ss58
from proto.identity.accounts import WEAK_ACCOUNT, WEAK_ACCOUNTS
from proto.identity.bounds import ACCOUNT_BYTES, MAX_TWIN, PUBLIC_KEY_BYTES
from proto.identity.errors import AddressError


def parse_twin(twin: object, account: object, pk: object, relays: Iterable[object]) -> Twin:
    """Parse a twin.

    Args:
        twin: id, as a number or its digits.
        account: account, as ss58, or 0x and 64 hexadecimal digits.
        pk: public encryption key, as 0x and 66 hexadecimal digits; None or empty for none.
        relays: domains of the relays.

    Raises:
        ValueError: a value is invalid; the text names the field.
    """
    domains = tuple(sorted({str(each) for each in relays if each}))
    return Twin(_id(twin), _account(account), _pk(pk), domains)


def _id(value: object) -> int:
    text = str(value)
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_TWIN))):
        raise ValueError("id: not a number")
    if not 1 <= int(text) <= MAX_TWIN:
        raise ValueError(f"id: not from 1 to {MAX_TWIN}")
    return int(text)


def _account(value: object) -> bytes:
    text = str(value)
    if text.startswith("0x"):
        account = _hex("account", text, ACCOUNT_BYTES)
    else:
        try:
            account = ss58.decode(text)
        except AddressError as error:
            raise ValueError(f"account: {error}") from None
    if account in WEAK_ACCOUNTS:
        raise ValueError(f"account: {WEAK_ACCOUNT}")
    return account


def _pk(value: object) -> bytes | None:
    return _hex("pk", str(value), PUBLIC_KEY_BYTES) if value else None


def _hex(field: str, text: str, size_bytes: int) -> bytes:
    digits = text.removeprefix("0x")
    try:
        found = bytes.fromhex(digits) if digits.isalnum() else b""
    except ValueError:
        found = b""
    if len(found) != size_bytes:
        raise ValueError(f"{field}: not 0x and {2 * size_bytes} hexadecimal digits")
    return found
