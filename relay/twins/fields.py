"""Text forms of a twin's values, for the CSV file, the command line and forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from django.conf import settings

from proto.federation import domains
from proto.identity import ss58
from proto.identity.accounts import WEAK_ACCOUNT, WEAK_ACCOUNTS
from proto.identity.bounds import ACCOUNT_BYTES, MAX_TWIN, PUBLIC_KEY_BYTES
from proto.identity.errors import AddressError
from relay.twins.bounds import MAX_RELAYS, MAX_RELAYS_BYTES
from relay.twins.source import RELAY_SEPARATOR, split_relays

NO_RELAYS: Final = "it lists no relay, so no message reaches it"
"""Warning about a twin without relays, shown after a change that results in one."""


class FieldError(ValueError):
    """A value is invalid. The text names the field."""


class TwinValues(NamedTuple):
    """Values of a twin, parsed and within bounds."""

    id: int
    account: bytes
    pk: bytes | None
    relays: tuple[str, ...]


def parse_values(twin: str, account: str, pk: str, relays: str) -> TwinValues:
    """Parse all fields of a twin.

    Raises:
        FieldError: a field is invalid; the error is about the first one.
    """
    return TwinValues(parse_id(twin), parse_signer(account), parse_pk(pk), parse_relays(relays))


def parse_id(text: str) -> int:
    """Parse a twin id, in decimal."""
    text = text.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise FieldError(f"id: must be a number, not {_shown(text)}")
    twin = int(text)
    if not 1 <= twin <= MAX_TWIN:
        raise FieldError(f"id: must be between 1 and {MAX_TWIN}, not {twin}")
    return twin


def parse_account(text: str) -> bytes:
    """Parse an account: an ss58 address, or 0x and 64 hexadecimal digits."""
    text = text.strip()
    if text.startswith("0x"):
        return _hex("account", text, ACCOUNT_BYTES)
    try:
        return ss58.decode(text)
    except AddressError as error:
        raise FieldError(f"account: {error}") from None


def parse_signer(text: str) -> bytes:
    """Parse an account and refuse weak ones, whose signatures do not prove who signed."""
    account = parse_account(text)
    if account in WEAK_ACCOUNTS:
        raise FieldError(f"account: {WEAK_ACCOUNT}")
    return account


def parse_pk(text: str) -> bytes | None:
    """Parse an encryption key: 0x and 66 hexadecimal digits, or empty for none."""
    text = text.strip()
    return _hex("pk", text, PUBLIC_KEY_BYTES) if text else None


def parse_relays(text: str) -> tuple[str, ...]:
    """Parse relays joined by an underscore: host names, or names of this relay; may be empty."""
    text = text.strip()
    if len(text.encode("utf-8", "replace")) > MAX_RELAYS_BYTES:
        raise FieldError(f"relays: must be at most {MAX_RELAYS_BYTES} bytes")
    if not text.isprintable():
        raise FieldError("relays: must not contain control characters")
    relays = split_relays(text)
    if len(relays) > MAX_RELAYS:
        raise FieldError(f"relays: must be at most {MAX_RELAYS}, not {len(relays)}")
    for relay in relays:
        _check_relay(relay)
    return relays


def own_relay() -> tuple[str, ...]:
    """Return the name that twins of this relay list by default; empty if no name is configured."""
    return tuple(settings.RMB.relay.domains[:1])


def to_texts(values: TwinValues) -> tuple[str, str, str, str]:
    """Return the texts that `parse_values` reads, with the account as ss58."""
    return (
        str(values.id),
        ss58.encode(values.account),
        f"0x{values.pk.hex()}" if values.pk else "",
        join_relays(values.relays),
    )


def join_relays(relays: Sequence[str]) -> str:
    """Return the joined form that `parse_relays` reads."""
    return RELAY_SEPARATOR.join(relays)


def _check_relay(text: str) -> None:
    if domains.is_name(text) or text in settings.RMB.relay.domains:
        return
    meant = domains.nearest(text)
    hint = f"; did you mean {join_relays(meant)}?" if meant else ""
    raise FieldError(
        f"relays: {_shown(text)} is neither a host name nor host:port with a port up to 65535{hint}"
    )


def _hex(field: str, text: str, size_bytes: int) -> bytes:
    digits = text.removeprefix("0x")
    try:
        # bytes.fromhex skips white space between bytes, so refuse everything but digits.
        value = bytes.fromhex(digits) if digits.isalnum() else b""
    except ValueError:
        value = b""
    if len(value) != size_bytes or not text.startswith("0x"):
        raise FieldError(f"{field}: must be 0x and {2 * size_bytes} hexadecimal digits")
    return value


def _shown(text: str) -> str:
    return repr(text[:40] + "…" if len(text) > 40 else text)
