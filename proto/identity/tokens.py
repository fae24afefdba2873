"""Session tokens: the JWT a client opens its websocket with.

The whole query string is the token: `header.claims.signature`, each base64url. The header says
`RS512`, a fixed label that released clients write and the reference relay insists on; the
signature is a 65-byte `signing` signature over the text `header.claims` itself. The claims:

    sub   twin id, uint32
    sid   session id: text, null or absent; "" is a session of its own, null and absent are one
    iat   issued at, unix seconds; must be there and is compared with nothing, because clients
          round it up into the future
    exp   expires at, unix seconds; the token is good while now <= exp

Entries and claims beyond these are ignored. What the reference leaves to its JSON reader is
spelled out here: no duplicate keys, no lone surrogates, no booleans or fractions for integers.

A relay takes three steps: `parse` (cheap, refuses most nonsense), then looks up the account of
`Token.twin`, then `check_signature` (an elliptic curve operation).
"""

from __future__ import annotations

import json
import re
from binascii import a2b_base64, b2a_base64
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from proto.identity.bounds import (
    MAX_JSON_BRACKETS,
    MAX_TIME_S,
    MAX_TOKEN_BYTES,
    MAX_TWIN,
    SIGNATURE_BYTES,
    TOKEN_TTL_S,
)
from proto.identity.errors import ExpiredTokenError, SignatureError, TokenError
from proto.identity.signing import SigningKey, verify

ALGORITHM: Final = "RS512"
"""The only label the reference relay takes, whatever the signature really is."""

# Base64url with or without padding; the last character must not carry bits that decode to nothing.
_PART: Final = (
    rb"((?:[A-Za-z0-9_-]{4})*"
    rb"(?:[A-Za-z0-9_-][AQgw](?:==)?|[A-Za-z0-9_-]{2}[AEIMQUYcgkosw048]=?)?)"
)
_TOKEN: Final = re.compile(rb"%b\.%b\.%b" % (_PART, _PART, _PART))
_PARTS: Final = ("header", "claims", "signature")
_TO_STANDARD: Final = bytes.maketrans(b"-_", b"+/")
_TO_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")


@dataclass(frozen=True, slots=True)
class Token:
    """A token that parsed and has not expired. Its signature is not checked yet.

    The repr leaves out what would let a reader of a log open the session.
    """

    twin: int
    """The twin it claims to be of."""

    sid: str | None
    """The session id; None and "" are different sessions."""

    issued_at: int
    """Unix seconds by the client's clock; may be in the future."""

    expires_at: int
    """Unix seconds."""

    signed: bytes = field(repr=False)
    """The text that is signed."""

    signature: bytes = field(repr=False)
    """65 bytes: key type and signature."""


def issue(
    key: SigningKey,
    twin: int,
    sid: str | None,
    now: int,
    ttl_s: int = TOKEN_TTL_S,
    omit_sid: bool = False,
) -> str:
    """Make a token. Clients make a new one for every connection attempt.

    Args:
        key: signs it; its account must be the twin's.
        twin: the twin's id.
        sid: the session id, None for the session without one.
        now: unix seconds.
        ttl_s: how long it can be used to connect; the connection itself outlives it.
        omit_sid: leave `sid` out instead of writing null, as the Go client does.

    Raises:
        TokenError: a relay would refuse the token.
    """
    claims: dict[str, Any] = {"sub": twin, "sid": sid, "iat": now, "exp": now + ttl_s}
    if omit_sid:
        if sid is not None:
            raise TokenError("omit_sid needs sid None")
        del claims["sid"]
    _check_claims(claims)
    try:
        text = json.dumps(claims, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise TokenError("claims: text with half a surrogate pair") from None
    signed = _PLAIN_HEADER + b"." + _encode(text)
    token = signed + b"." + _encode(key.sign(signed))
    if len(token) > MAX_TOKEN_BYTES:
        raise TokenError(f"a token has at most {MAX_TOKEN_BYTES} bytes")
    return token.decode("ascii")


def parse(token: bytes, now: int, max_lifetime_s: int = 0) -> Token:
    """Read a token.

    Args:
        token: the raw query string.
        now: unix seconds.
        max_lifetime_s: refuse tokens good for longer than this from now; 0 takes any.

    Raises:
        TokenError: malformed, expired or too long-lived; nothing else is ever raised.
    """
    if len(token) > MAX_TOKEN_BYTES:
        raise TokenError(f"a token has at most {MAX_TOKEN_BYTES} bytes")
    match = _TOKEN.fullmatch(token)
    if match is None:
        raise TokenError(_syntax_problem(token))
    header, claims_part, signature_part = match.groups()
    if header not in _KNOWN_HEADERS:
        _check_header(header)
    claims = _read_object(claims_part, "claims")
    _check_claims(claims)
    signature = _decode(signature_part)
    if len(signature) != SIGNATURE_BYTES:
        raise TokenError(f"signature has {len(signature)} bytes instead of {SIGNATURE_BYTES}")
    expires_at = claims["exp"]
    if now > expires_at:
        raise ExpiredTokenError(claims["sub"], now - expires_at)
    if max_lifetime_s and expires_at - now > max_lifetime_s:
        raise TokenError(
            f"token is good for {expires_at - now} s by this relay's clock,"
            f" at most {max_lifetime_s} s are allowed"
        )
    return Token(
        twin=claims["sub"],
        sid=claims.get("sid"),
        issued_at=claims["iat"],
        expires_at=expires_at,
        signed=token[: match.end(2)],
        signature=signature,
    )


def check_signature(token: Token, account: bytes) -> None:
    """Check that the holder of `account`, the account of `token.twin`, made the token.

    Raises:
        TokenError: somebody else did, or the signature is malformed.
    """
    try:
        verify(account, token.signed, token.signature)
    except SignatureError as error:
        raise TokenError(str(error)) from None


def _check_header(part: bytes) -> None:
    if _read_object(part, "header").get("alg") != ALGORITHM:
        raise TokenError(f"header: alg is not {ALGORITHM}")


def _check_claims(claims: dict[str, Any]) -> None:
    _check_integer(claims, "sub", MAX_TWIN)
    _check_integer(claims, "iat", MAX_TIME_S)
    _check_integer(claims, "exp", MAX_TIME_S)
    sid = claims.get("sid")
    if sid is not None and not isinstance(sid, str):
        raise TokenError("claims: sid is neither text nor null")


def _check_integer(claims: dict[str, Any], name: str, maximum: int) -> None:
    value = claims.get(name)
    # An exact comparison of the type: a bool is an int to Python.
    if type(value) is not int or not 0 <= value <= maximum:
        problem = f"is not an integer from 0 to {maximum}" if name in claims else "is missing"
        raise TokenError(f"claims: {name} {problem}")


def _read_object(part: bytes, name: str) -> dict[str, Any]:
    """The JSON object in a part of the token, by the strict rules of the module's docstring."""
    try:
        text = _decode(part).decode("utf-8")
        if text.count("{") + text.count("[") > MAX_JSON_BRACKETS:
            raise TokenError(f"{name}: more than {MAX_JSON_BRACKETS} opening brackets")
        value = _JSON.decode(text)
        # Strict UTF-8 has no surrogates, so only an escape can have made one.
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except ValueError:  # of UTF-8, JSON, the hooks below, or a number of thousands of digits
        raise TokenError(f"{name}: not strict JSON") from None
    if not isinstance(value, dict):
        raise TokenError(f"{name}: not a JSON object")
    return value


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("duplicate key")
    return members


def _finite_float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("number out of range")
    return value


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


_JSON: Final = json.JSONDecoder(
    object_pairs_hook=_refuse_duplicates,
    parse_float=_finite_float,
    parse_constant=_refuse_constant,
)


def _syntax_problem(token: bytes) -> str:
    parts = token.split(b".")
    if len(parts) != len(_PARTS):
        return f"a token has {len(_PARTS)} parts, not {len(parts)}"
    bad = (name for name, part in zip(_PARTS, parts, strict=True) if not re.fullmatch(_PART, part))
    return f"{next(bad)}: not base64url"


def _decode(part: bytes) -> bytes:
    """The bytes of a part that `_TOKEN` matched; surplus padding ends nothing but the padding."""
    return a2b_base64(part.translate(_TO_STANDARD) + b"==")


def _encode(raw: bytes) -> bytes:
    return b2a_base64(raw, newline=False).rstrip(b"=").translate(_TO_URL_SAFE)


_PLAIN_HEADER: Final = _encode(b'{"alg":"RS512"}')
# The two headers that all released clients write, so that a relay need not read them each time.
_KNOWN_HEADERS: Final = frozenset({_PLAIN_HEADER, _encode(b'{"alg":"RS512","typ":"JWT"}')})
