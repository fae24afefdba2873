"""Session tokens: the JWT with which a client opens its websocket.

The whole query string is the token: `header.claims.signature`, each base64url. The header says
`RS512`, a fixed label that released clients write and the reference relay insists on. The signature
is a 65-byte `signing` signature over the text `header.claims` itself. The claims:

    sub   twin id, uint32
    sid   session id: text, null or absent; "" is a session of its own, while null and absent are
          the same session
    iat   issued at, Unix seconds; required, but compared with nothing, because clients round it up
          into the future
    exp   expires at, Unix seconds; the token is valid while now <= exp

Other header entries and claims are ignored. Rules that the reference relay leaves to its JSON
parser are enforced here: no duplicate keys, no lone surrogates, no booleans or fractions for
integers.

A relay takes three steps: `parse` (cheap, rejects most invalid tokens), then a look-up of the
account of `Token.twin`, then `check_signature` (an elliptic curve operation).
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
"""The only label that the reference relay accepts, whatever the actual signature scheme."""

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
    """A parsed token that has not expired. Its signature is not checked yet.

    The repr omits the parts with which a reader of a log could open the session.
    """

    twin: int
    """Twin that the token claims to be of."""

    sid: str | None
    """Session id; None and "" are different sessions."""

    issued_at: int
    """Unix seconds by the client's clock; may be in the future."""

    expires_at: int
    """Unix seconds."""

    signed: bytes = field(repr=False)
    """Text that the signature covers."""

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
    """Create a token. Clients create a new one for every connection attempt.

    Args:
        key: signing key; its account must be the twin's.
        twin: twin id.
        sid: session id; None for the session without one.
        now: Unix seconds.
        ttl_s: seconds for which it can be used to connect; the connection itself outlives it.
        omit_sid: whether to omit `sid` instead of writing null, as the Go client does.

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
    """Parse a token.

    Args:
        token: the raw query string.
        now: Unix seconds.
        max_lifetime_s: maximum remaining lifetime of a token, in seconds; 0 for no limit.

    Raises:
        TokenError: the token is malformed, expired or too long-lived; no other exception is raised.
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
        TokenError: another key made it, or the signature is malformed.
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
    """Return the JSON object in a part of the token, parsed by this module's strict rules."""
    try:
        text = _decode(part).decode("utf-8")
        if text.count("{") + text.count("[") > MAX_JSON_BRACKETS:
            raise TokenError(f"{name}: more than {MAX_JSON_BRACKETS} opening brackets")
        value = _JSON.decode(text)
        # Strict UTF-8 has no surrogates, so only an escape can have made one.
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except ValueError:  # from UTF-8, JSON, the hooks below, or a number of thousands of digits
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
    """Decode a part that `_TOKEN` matched. The added padding has no effect if it is not needed."""
    return a2b_base64(part.translate(_TO_STANDARD) + b"==")


def _encode(raw: bytes) -> bytes:
    return b2a_base64(raw, newline=False).rstrip(b"=").translate(_TO_URL_SAFE)


_PLAIN_HEADER: Final = _encode(b'{"alg":"RS512"}')
# The two headers that released clients write, so that a relay need not parse them each time.
_KNOWN_HEADERS: Final = frozenset({_PLAIN_HEADER, _encode(b'{"alg":"RS512","typ":"JWT"}')})
