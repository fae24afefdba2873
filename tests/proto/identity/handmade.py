"""Hand-made tokens, valid and invalid, signed by a test key."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import Any

from proto.identity import tokens
from proto.identity.signing import SigningKey

KEY = SigningKey.from_mini_secret(b"test key".ljust(32, b"."))
NOW = 1_795_218_450
HEADER = '{"alg":"RS512"}'
CLAIMS: dict[str, Any] = {"sub": 3, "sid": "v", "iat": NOW, "exp": NOW + 300}


def part(text: str | bytes) -> bytes:
    """Encode one part of a token: base64url without padding."""
    raw = text if isinstance(text, bytes) else text.encode()
    return urlsafe_b64encode(raw).rstrip(b"=")


def token_of(header: str | bytes = HEADER, claims: str | bytes | dict[str, Any] = CLAIMS) -> bytes:
    """Return a token with this header, these claims and a valid signature."""
    if isinstance(claims, dict):
        claims = json.dumps(claims)
    signed = part(header) + b"." + part(claims)
    return signed + b"." + part(KEY.sign(signed))


def parse_and_check(token: bytes) -> tokens.Token:
    """Parse a token and check its signature."""
    parsed = tokens.parse(token, NOW)
    tokens.check_signature(parsed, KEY.account)
    return parsed
