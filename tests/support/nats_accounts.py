"""A NATS server in operator mode: users are JWTs signed by an account of an operator."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lattice.credentials import UserCredentials
from proto.lattice.nkeys import KeyKind, KeyPair
from tests.support.nats_server import nats_server

UNLIMITED = {name: -1 for name in ("subs", "data", "payload")}
ISSUED_AT = 1_700_000_000


class Accounts:
    """A server with one account.

    Attributes:
        url: URL of the server.
        account: key pair that signs users.
    """

    def __init__(self, url: str, account: KeyPair) -> None:
        self.url = url
        self.account = account

    def user(
        self,
        publish: Sequence[str] = (">",),
        subscribe: Sequence[str] = (">",),
        *,
        number: int = 1,
        **claims: Any,
    ) -> UserCredentials:
        """Make a user.

        Args:
            publish: subjects that it may publish to.
            subscribe: subjects that it may subscribe to.
            number: number of the user, from which its key is derived.
            claims: further claims, such as `exp`.
        """
        key = KeyPair(KeyKind.USER, bytes([number]) * 32)  # TEST KEY
        about = {"pub": {"allow": list(publish)}, "sub": {"allow": list(subscribe)}, **UNLIMITED}
        return UserCredentials(_jwt(self.account, key, "user", about, **claims), key.seed)


@contextmanager
def operated_server(folder: Path) -> Iterator[Accounts]:
    """Run a server whose account is preloaded."""
    operator = KeyPair(KeyKind.OPERATOR, b"o" * 32)  # TEST KEYS
    account = KeyPair(KeyKind.ACCOUNT, b"a" * 32)
    limits = {**UNLIMITED, "imports": -1, "exports": -1, "conn": -1, "leaf": -1, "wildcards": True}
    preloaded = _jwt(operator, account, "account", {"limits": limits})
    config = (
        f"operator: {_jwt(operator, operator, 'operator', {})}\n"
        f"resolver: MEMORY\nresolver_preload: {{ {account.public}: {preloaded} }}\n"
    )
    with nats_server(folder, jetstream=False, config=config) as server:
        yield Accounts(server.url, account)


def credentials_file(user: UserCredentials) -> str:
    """Return the text of a file as `nsc` writes it."""
    return (
        f"-----BEGIN NATS USER JWT-----\n{user.jwt}\n------END NATS USER JWT------\n\n"
        "************************* IMPORTANT *************************\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
    )


def _jwt(issuer: KeyPair, subject: KeyPair, kind: str, about: dict[str, Any], **more: Any) -> str:
    claims = {
        "jti": subject.public,
        "iat": ISSUED_AT,
        "iss": issuer.public,
        "name": kind,
        "sub": subject.public,
        "nats": {**about, "type": kind, "version": 2},
        **more,
    }
    signed = f"{_part({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_part(claims)}"
    return f"{signed}.{_base64(issuer.sign(signed.encode()))}"


def _part(value: dict[str, Any]) -> str:
    return _base64(json.dumps(value, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
