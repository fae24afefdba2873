"""`rmb twin`: print the public data of a twin."""

from __future__ import annotations

import argparse
from typing import Final

from peer.arguments import UsageError
from peer.cli import output
from peer.cli.session import IDENTITY, TWINS, NoTwinError, Session
from peer.twins import Twin
from proto.identity import ss58
from proto.identity.bounds import ACCOUNT_BYTES, MAX_TWIN
from proto.identity.errors import AddressError

READS: Final = (IDENTITY, TWINS)
EPILOG: Final = """\
examples:
  rmb twin 7
  rmb twin 5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY
  rmb twin                           # your own twin, found by the account of your secret
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument(
        "who", nargs="?", metavar="TWIN|ACCOUNT", help="id, ss58 address, or 0x and 64 digits"
    )


async def run(options: argparse.Namespace, session: Session) -> int:
    """Print a twin."""
    twin = await session.own_twin() if options.who is None else await _look_up(options.who, session)
    output.show(
        {
            "id": twin.id,
            "account": ss58.encode(twin.account),
            "pk": f"0x{twin.pk.hex()}" if twin.pk else None,
            "relays": list(twin.relays),
        },
        session.json,
    )
    return 0


async def _look_up(who: str, session: Session) -> Twin:
    number, account = 0, b""
    if who.isascii() and who.isdigit():
        number = int(who[: len(str(MAX_TWIN)) + 1])
        if not 1 <= number <= MAX_TWIN:
            raise UsageError(f"invalid twin id {who:.20}: must be from 1 to {MAX_TWIN}")
    else:
        account = _account(who)
    source = session.open_twins()
    try:
        twin = await (source.by_id(number) if number else source.by_account(account))
    finally:
        await source.aclose()
    if twin is None:
        raise NoTwinError(f"there is no twin {who}")
    return twin


def _account(text: str) -> bytes:
    # The text is not repeated: it may be a word of a secret that was not quoted.
    try:
        account = bytes.fromhex(text[2:]) if text.startswith("0x") else ss58.decode(text)
    except (AddressError, ValueError) as error:
        raise UsageError(f"not a twin id, and not a valid account: {error}") from None
    if len(account) != ACCOUNT_BYTES:
        raise UsageError(f"an account must be 0x and {2 * ACCOUNT_BYTES} hexadecimal digits")
    return account
