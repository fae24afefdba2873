"""`rmb twin`: what others can know of a twin."""

from __future__ import annotations

import argparse
from typing import Any, Final

from peer.arguments import FAILED, UsageError
from peer.cli import output
from peer.cli.session import Session
from peer.errors import PeerError
from peer.twins import Twin, TwinSource
from proto.identity import ss58
from proto.identity.bounds import ACCOUNT_BYTES, MAX_TWIN
from proto.identity.errors import AddressError

HELP: Final = "show a twin: its account, its encryption key, its relays"
EPILOG: Final = """\
examples:
  rmb twin 7
  rmb twin 5GrwvaEF5zXb26Fz9rcQpDWS57CtERHpNehXCPcNoHGKutQY
  rmb twin                           # your own, by the account of your secret
"""


def add(verbs: Any) -> None:
    """Add the verb to the command line."""
    parser: argparse.ArgumentParser = verbs.add_parser("twin", help=HELP, epilog=EPILOG)
    parser.add_argument(
        "who", nargs="?", metavar="TWIN|ACCOUNT", help="id, ss58 address, or 0x and 64 digits"
    )


async def run(options: argparse.Namespace, session: Session) -> int:
    """Show a twin."""
    look_up = _by(options.who, session)
    source = session.open_twins()
    try:
        twin = await look_up(source)
    finally:
        await source.aclose()
    if twin is None:
        raise PeerError(f"there is no twin {options.who or 'of your account'}")
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
