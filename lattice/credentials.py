"""Credentials of a NATS user: JWT and seed, from the options or from a file as `nsc` writes it."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lattice.errors import ConnectError
from lattice.options import LatticeOptions
from proto.lattice.errors import LatticeError
from proto.lattice.nkeys import KeyKind, KeyPair

MAX_FILE_BYTES: Final = 65_536

_BLOCK: Final = re.compile(
    r"-+BEGIN (NATS USER JWT|USER NKEY SEED)-+\s+(\S+)\s+-+END (?:NATS USER JWT|USER NKEY SEED)-+"
)


@dataclass(frozen=True, slots=True)
class UserCredentials:
    """A NATS user's JWT, and the seed of the key that proves it.

    Attributes:
        jwt: JWT of the user.
        seed: seed of the user (`SU...`).
    """

    jwt: str = field(repr=False)
    seed: str = field(repr=False)

    def signer(self) -> Callable[[str], bytes]:
        """Return a function that signs a server's nonce.

        Raises:
            ConnectError: the seed is malformed, or not that of a user.
        """
        try:
            key = KeyPair.of_seed(self.seed)
        except LatticeError as error:
            raise ConnectError(f"invalid seed of the NATS user: {error}") from None
        if key.kind is not KeyKind.USER:
            raise ConnectError("invalid seed of the NATS user: it must begin with SU")
        return lambda nonce: base64.b64encode(key.sign(nonce.encode()))


def read(options: LatticeOptions) -> UserCredentials | None:
    """Return the JWT and seed that the options name, or None if they name none.

    Raises:
        ConnectError: the file cannot be read or lacks a part, or only one of both is given.
    """
    if options.credentials_file:
        return _of_file(options.credentials_file)
    if bool(options.user_jwt) != bool(options.user_seed):
        raise ConnectError("a NATS user needs both its JWT and its seed")
    return UserCredentials(options.user_jwt, options.user_seed) if options.user_jwt else None


def _of_file(name: str) -> UserCredentials:
    try:
        with Path(name).open("rb") as file:
            text = file.read(MAX_FILE_BYTES).decode("ascii", "replace")
    except OSError as error:
        raise ConnectError(f"cannot read the credentials file {name}: {error.strerror}") from None
    found = dict(_BLOCK.findall(text))
    try:
        return UserCredentials(found["NATS USER JWT"], found["USER NKEY SEED"])
    except KeyError as missing:
        raise ConnectError(f"credentials file {name} has no {missing.args[0]}") from None
