"""The signed claims of an invocation: a token that Rust peers accept (sheet section 4).

The header differs from that of JWT libraries, and the base64url must be canonical. The token proves
that some member of the cluster sent the invocation, but not which one.
"""

from __future__ import annotations

import json
import re
from binascii import a2b_base64, b2a_base64
from dataclasses import dataclass
from typing import Any, Final

from proto.lattice.bounds import (
    JTI_CHARS,
    MAX_ID_CHARS,
    MAX_TOKEN_CHARS,
    MAX_UINT,
    WASCAP_REVISION,
)
from proto.lattice.errors import CheckError, FormatError, KeyFormatError, Reason
from proto.lattice.nkeys import KeyKind, KeyPair, PublicKey, decode_public, verify_raw
from proto.lattice.wire import check_utf8

_HEADER: Final = {"typ": "jwt", "alg": "Ed25519"}
_PARTS: Final = 3
_JTI: Final = re.compile(rf"[0-9A-Za-z]{{{JTI_CHARS}}}")
_TIMES: Final = ("exp", "nbf")
_URLS: Final = ("target_url", "origin_url", "hash")
_quote: Final = json.encoder.encode_basestring


# `base64` and `json.loads` take twice the time for the same work, which is done for each call.
_TO_URL: Final = bytes.maketrans(b"+/", b"-_")
_FROM_URL: Final = bytes.maketrans(b"-_", b"+/")
_PADDING: Final = (b"", b"===", b"==", b"=")


def _encode(data: bytes) -> str:
    return b2a_base64(data, newline=False).rstrip(b"=").translate(_TO_URL).decode()


_HEADER_PART: Final = _encode(json.dumps(_HEADER, separators=(",", ":")).encode())


@dataclass(frozen=True, slots=True)
class Claims:
    """The contents of a token.

    Attributes:
        issuer: public key of a cluster, well formed.
        subject: id of the invocation; receivers do not compare it.
        jti: unique id of the token.
        iat: time at which it was issued, in seconds since 1970.
        exp: time at which it expires; None: never.
        nbf: time before which it must not be used; None: no such time.
        target_url, origin_url, hash: those of the invocation.
    """

    issuer: str
    subject: str
    jti: str
    iat: int
    exp: int | None
    nbf: int | None
    target_url: str
    origin_url: str
    hash: str


def sign(
    *,
    cluster: KeyPair,
    subject: str,
    jti: str,
    iat: int,
    target_url: str,
    origin_url: str,
    invocation_hash: str,
) -> str:
    """Return the signed token of an invocation.

    Raises:
        KeyFormatError: the key is not that of a cluster.
        FormatError: the subject is empty or too long, the jti is not a NUID, or the time is
            negative.
    """
    if cluster.kind is not KeyKind.CLUSTER:
        raise KeyFormatError(f"invocations are signed by a cluster key (C), not {cluster.public}")
    if not 0 < len(subject) <= MAX_ID_CHARS:
        raise FormatError(f"id of {len(subject)} characters, expected 1 to {MAX_ID_CHARS}", "id")
    check_utf8("invocation", "id", subject)
    if not _JTI.fullmatch(jti):
        raise FormatError(f"invalid jti: expected {JTI_CHARS} letters and digits", "jti")
    if type(iat) is not int or not 0 <= iat <= MAX_UINT:
        raise FormatError(f"invalid iat {iat!r}: expected whole seconds since 1970", "iat")
    body = (
        f'{{"jti":"{jti}","iat":{iat},"iss":"{cluster.public}","sub":{_quote(subject)},'
        f'"wascap":{{"target_url":{_quote(target_url)},"origin_url":{_quote(origin_url)},'
        f'"hash":"{invocation_hash}"}},"wascap_revision":{WASCAP_REVISION}}}'
    )
    signed = f"{_HEADER_PART}.{_encode(body.encode())}"
    return f"{signed}.{_encode(cluster.sign(signed.encode()))}"


def read(token: str) -> Claims:
    """Read a token without checking its signature.

    Raises:
        CheckError: the token is malformed (`Reason.TOKEN`).
    """
    return _read(token)[0]


def read_signed(token: str) -> Claims:
    """Read a token and check that its issuer signed it; whether to trust the issuer is not checked.

    Raises:
        CheckError: the token is malformed (`Reason.TOKEN`), or signed by another key
            (`Reason.SIGNATURE`).
    """
    claims, key, signature = _read(token)
    if not verify_raw(key.raw, token[: token.rindex(".")].encode(), signature):
        raise CheckError(Reason.SIGNATURE, "Invocation claims signature invalid")
    return claims


def _read(token: str) -> tuple[Claims, PublicKey, bytes]:
    if len(token) > MAX_TOKEN_CHARS:
        raise _malformed(f"{len(token)} characters, limit: {MAX_TOKEN_CHARS}")
    parts = token.split(".")
    if len(parts) != _PARTS:
        raise _malformed(f"invalid token format, expected {_PARTS} segments, found {len(parts)}")
    if parts[0] != _HEADER_PART:
        header = _object(parts[0], "header")
        if any(header.get(name) != value for name, value in _HEADER.items()):
            raise _malformed('the header must be {"typ":"jwt","alg":"Ed25519"}')
    body = _object(parts[1], "body")
    signature = _decode(parts[2], "signature")
    wascap = body.get("wascap")
    if type(wascap) is not dict:
        raise CheckError(Reason.TOKEN, "Invocation claims missing wascap metadata")
    issuer = _text(body, "iss")
    try:
        key = decode_public(issuer, KeyKind.CLUSTER)
    except KeyFormatError as error:
        raise _malformed(f"iss: {error}") from None
    exp, nbf = (_seconds(body, name) if body.get(name) is not None else None for name in _TIMES)
    subject = _text(body, "sub")
    if not subject:
        raise _malformed("sub is empty")
    target_url, origin_url, invocation_hash = (_text(wascap, name) for name in _URLS)
    claims = Claims(
        issuer,
        subject,
        _text(body, "jti"),
        _seconds(body, "iat"),
        exp,
        nbf,
        target_url,
        origin_url,
        invocation_hash,
    )
    return claims, key, signature


def _decode(part: str, name: str) -> bytes:
    """Decode base64url as strictly as the Rust peers: no padding, and no unused bits set."""
    try:
        text = part.encode()
        data = a2b_base64(text.translate(_FROM_URL) + _PADDING[len(text) % 4])
    except ValueError:
        raise _malformed(f"{name}: invalid base64url") from None
    if b2a_base64(data, newline=False).rstrip(b"=").translate(_TO_URL) != text:
        raise _malformed(f"{name}: base64url with padding, other characters or unused bits set")
    return data


def _object(part: str, name: str) -> dict[str, Any]:
    try:
        value = _read_json(_decode(part, name).decode())
    except (ValueError, RecursionError):
        raise _malformed(f"{name}: invalid JSON") from None
    if type(value) is not dict:
        raise _malformed(f"{name}: expected a JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key occurs twice")
    return value


_read_json: Final = json.JSONDecoder(object_pairs_hook=_unique).decode


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if type(value) is not str:
        raise _malformed(f"{name}: expected a text")
    return value


def _seconds(body: dict[str, Any], name: str) -> int:
    value = body.get(name)
    if type(value) is not int or not 0 <= value <= MAX_UINT:
        raise _malformed(f"{name}: expected whole seconds since 1970")
    return value


def _malformed(detail: str) -> CheckError:
    return CheckError(Reason.TOKEN, f"Invocation claims are not valid JSON: {detail}")
