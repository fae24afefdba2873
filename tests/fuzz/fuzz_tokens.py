"""Fuzz the reading of session tokens: random bytes, damaged tokens, odd JSON in a valid envelope.

Only TokenError may be raised, and a damaged token whose signature still fits must be one that was
issued.
"""

from __future__ import annotations

import json
import random
from base64 import urlsafe_b64encode
from collections.abc import Callable

from proto.identity import tokens
from proto.identity.errors import TokenError
from proto.identity.signing import KeyType, SigningKey

NOW = 1_795_218_450
# Test keys.
_KEYS = [SigningKey.from_mini_secret(b"\x07" * 32, key_type) for key_type in KeyType]
_SIDS = [None, "", "cli", "é:ü 1", "x" * 128]
_VALID = [
    tokens.issue(key, twin, sid, NOW).encode() for key in _KEYS for twin in (0, 7) for sid in _SIDS
]
_ISSUED = frozenset(token.rpartition(b".")[0] for token in _VALID)
_SIGNATURE = _VALID[0].rpartition(b".")[2]
_TOKEN_BYTES = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=.+/%&\n\x00\xff"
_HEADERS = ['{"alg":"RS512"}', '{"alg":"RS512","typ":"JWT"}', '{"typ":"JWT"}']
_CLAIMS = [
    '{"sub":7,"sid":"cli","iat":1795218450,"exp":4102444800}',
    '{"exp":4095216843,"iat":1795216843,"sub":20}',
    '{"sub":7,"sid":null,"iat":1795218450,"exp":4102444800,"aud":["a",{"b":1.5e3}]}',
]
_JSON_SCRAPS = [
    '"', "\\", "\\u", "\\ud800", "\\udc00", "{", "}", "[", "]", ",", ":", "0", "-", "-0", "1e999",
    ".5", "9" * 30, "9" * 5000, "NaN", "Infinity", "true", "null", '"sub":7,', '"sid":"",', '"exp"',
    " ", "\n", "\x00", "\ufeff", "é", "[" * 70, '{"x":' * 70, "1.0", "4294967296", "e5",
]  # fmt: skip


def targets() -> list[tuple[str, Callable[[random.Random], None]]]:
    """Return the name and the function of each target."""
    return [
        ("tokens: random bytes", _random_bytes),
        ("tokens: damaged", _damaged),
        ("tokens: odd JSON", _odd_json),
    ]


def _parse(token: bytes) -> tokens.Token | None:
    try:
        parsed = tokens.parse(token, NOW)
    except TokenError as error:
        assert 0 < len(str(error)) < 200, "an error needs a short text"
        return None
    assert 0 <= parsed.twin < 2**32
    assert parsed.expires_at >= NOW
    assert parsed.sid is None or parsed.sid.encode("utf-8") is not None
    assert len(parsed.signature) == 65
    assert token.startswith(parsed.signed + b".")
    return parsed


def _random_bytes(rng: random.Random) -> None:
    size = rng.choice((rng.randrange(20), rng.randrange(300), rng.randrange(10_000)))
    if rng.random() < 0.5:
        _parse(rng.randbytes(size))
    else:
        _parse(bytes(rng.choices(_TOKEN_BYTES, k=size)))


def _damaged(rng: random.Random) -> None:
    token = bytearray(rng.choice(_VALID))
    for _ in range(rng.randint(1, 3)):
        _damage(rng, token)
    parsed = _parse(bytes(token))
    if parsed is None:
        return
    key = _KEYS[0] if parsed.signature[0] == KeyType.SR25519.value else _KEYS[1]
    try:
        tokens.check_signature(parsed, key.account)
    except TokenError:
        return
    assert parsed.signed in _ISSUED, "a forged token"


def _damage(rng: random.Random, token: bytearray) -> None:
    at = rng.randrange(len(token) + 1)
    match rng.randrange(6):
        case 0 if at < len(token):
            token[at] ^= 1 << rng.randrange(8)
        case 1 if at < len(token):
            token[at] = rng.choice(_TOKEN_BYTES)
        case 2:
            token[at:at] = bytes(rng.choices(_TOKEN_BYTES, k=rng.randint(1, 5)))
        case 3:
            del token[at : at + rng.randint(1, 5)]
        case 4:
            del token[at:]
        case _:
            end = min(len(token), at + rng.randrange(100))
            token[at:at] = token[at:end]


def _odd_json(rng: random.Random) -> None:
    header, claims = rng.choice(_HEADERS), rng.choice(_CLAIMS)
    if rng.random() < 0.3:
        header = _odd(rng, header)
    if rng.random() < 0.9:
        claims = _odd(rng, claims)
    raw = claims.encode("utf-8")
    if rng.random() < 0.1:
        at = rng.randrange(len(raw) + 1)
        raw = raw[:at] + rng.randbytes(2) + raw[at:]
    parts = (urlsafe_b64encode(header.encode()), urlsafe_b64encode(raw), _SIGNATURE)
    parsed = _parse(b".".join(parts))
    if parsed is not None:
        lenient = json.loads(raw)
        assert lenient["sub"] == parsed.twin
        assert lenient["exp"] == parsed.expires_at
        assert lenient.get("sid") == parsed.sid


def _odd(rng: random.Random, text: str) -> str:
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(text) + 1)
        end = at + rng.choice((0, 0, 1, rng.randrange(12)))
        text = text[:at] + rng.choice(_JSON_SCRAPS) + text[end:]
    return text
