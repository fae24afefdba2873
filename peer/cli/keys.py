"""`rmb keys`: print the public keys of a secret, or generate a new secret."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any, Final

import bip39

from peer import arguments
from peer.arguments import UsageError, at_home
from peer.cli import output
from peer.cli.session import IDENTITY, Session
from peer.identity import Identity
from proto.identity import ss58

WORDS: Final = (12, 24)

READS: Final = (IDENTITY,)
EPILOG: Final = """\
examples:
  rmb keys --secret-file secret
  rmb keys --new                     # generate 12 words and print them, once
  rmb keys --new --out secret        # write them to a file that only you can read

Register your twin with `account` (its signing key) and `pk` (the key with which others encrypt for
it). Anyone who has the secret can act as the twin, so the command prints only a new secret.
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("--new", action="store_true", help="generate a new secret")
    parser.add_argument(
        "--words", type=int, choices=WORDS, default=WORDS[0], help="number of words of a new secret"
    )
    parser.add_argument(
        "--out", metavar="FILE", help="write the new secret to this file, which must not exist"
    )


async def run(options: argparse.Namespace, session: Session) -> int:
    """Print the keys."""
    if options.out and not options.new:
        raise UsageError("--out needs --new")
    if not options.new:
        output.show(_fields(session.identity), session.json)
        return 0
    words: str = bip39.bip39_generate(options.words, "en")
    fields = _fields(arguments.identity(words, session.key_type))
    if options.out:
        _write(at_home(options.out), words)
        fields["secret_file"] = options.out
    else:
        fields["secret"] = words
    output.show(fields, session.json)
    return 0


def _fields(identity: Identity) -> dict[str, Any]:
    return {
        "key_type": identity.key.key_type.name.lower(),
        "account": ss58.encode(identity.account),
        "account_hex": f"0x{identity.account.hex()}",
        "pk": f"0x{identity.pk.hex()}",
    }


def _write(path: Path, words: str) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise UsageError(f"--out {path}: {error.strerror}") from None
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{words}\n")
