"""Builds and checks calls, and judges the answers to them (sheet sections 2, 4 and 5).

A receiver decodes the body, calls `check_claims`, fetches a moved payload, and calls
`check_payload`; `check` does both where the payload is available already. The order of the checks
is that of the sheet: sizes, shape, signature, issuer, times, URLs, target, payload, hash, link.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Mapping
from functools import lru_cache
from typing import Final

from proto.lattice.bounds import (
    CACHED_KEYS,
    CHUNK_THRESHOLD_BYTES,
    IAT_WINDOW_S,
    MAX_NAME_CHARS,
    MAX_OPERATION_CHARS,
    MAX_PAYLOAD_BYTES,
)
from proto.lattice.claims import Claims, read_signed, sign
from proto.lattice.entity import Entity
from proto.lattice.errors import (
    CheckError,
    KeyFormatError,
    Reason,
    RemoteError,
    ResponseError,
    ResponseFault,
)
from proto.lattice.messages import Invocation, InvocationResponse
from proto.lattice.nkeys import KeyKind, KeyPair, decode_public
from proto.lattice.wire import check_utf8, too_long

ERROR_PREFIX: Final = "Error when handling invocation: "
"""Prefix that providers of the Rust SDK write before the text of a `CheckError`."""


def hash_of(origin_url: str, target_url: str, operation: str, payload: bytes) -> str:
    """Return the hash that claims sign. It covers the whole payload, even if it is moved."""
    digest = hashlib.sha256(f"{origin_url}{target_url}{operation}".encode())
    digest.update(payload)
    return digest.hexdigest().upper()


def make(
    origin: Entity,
    target: Entity,
    operation: str,
    payload: bytes,
    *,
    host_id: str,
    cluster: KeyPair,
    invocation_id: str,
    jti: str,
    iat: int,
    trace: Mapping[str, str] | None = None,
) -> Invocation:
    """Return a signed call. The payload of a `moved` one must be stored before the call is sent.

    Args:
        origin: entity that calls.
        target: entity that is called.
        operation: name of the operation, as `Interface.Method`.
        payload: the whole payload.
        host_id: public key of the sending host (`N...`), a valid key.
        cluster: key pair of the cluster, which signs the call.
        invocation_id: 32 hexadecimal digits, or any other unique text.
        jti: 22 letters and digits, unique.
        iat: current time, in seconds since 1970.
        trace: W3C trace keys.

    Raises:
        KeyFormatError: `host_id` or `cluster` is not a key of its kind; such a call crashes
            actors of real hosts.
        FormatError: another argument is malformed or exceeds its limit.
    """
    decode_public(host_id, KeyKind.HOST)
    _check_sent("operation", operation, MAX_OPERATION_CHARS)
    _check_entity(origin)
    _check_entity(target)
    target_url = f"{target.url}/{operation}"
    token = sign(
        cluster=cluster,
        subject=invocation_id,
        jti=jti,
        iat=iat,
        target_url=target_url,
        origin_url=origin.url,
        invocation_hash=hash_of(origin.url, target_url, operation, payload),
    )
    moved = len(payload) > CHUNK_THRESHOLD_BYTES
    return Invocation(
        origin,
        target,
        operation,
        b"" if moved else payload,
        invocation_id,
        token,
        host_id,
        len(payload),
        trace or {},
    )


def check(
    invocation: Invocation,
    payload: bytes | None = None,
    *,
    issuers: Container[str],
    now: float,
    window_s: float = IAT_WINDOW_S,
    expected_target: Entity | str | None = None,
    linked: Container[str] | None = None,
    max_payload_bytes: int = MAX_PAYLOAD_BYTES,
) -> Claims:
    """Check a call as strictly as the strictest receiver, and return its signed claims.

    Args:
        invocation: invocation as decoded.
        payload: the whole payload; None: that in the message.
        issuers: public keys of clusters that are trusted.
        now: current time, in seconds since 1970.
        window_s: seconds by which a token's time may differ from now; 0: unchecked.
        expected_target: the receiver, or its public key; None: any target.
        linked: public keys with a link to the receiver; None: no link is needed.
        max_payload_bytes: maximum size of the payload.

    Raises:
        CheckError: the call must not be executed.
    """
    claims = check_claims(
        invocation,
        issuers=issuers,
        now=now,
        window_s=window_s,
        expected_target=expected_target,
        max_payload_bytes=max_payload_bytes,
    )
    check_payload(invocation, invocation.msg if payload is None else payload, claims, linked=linked)
    return claims


def check_claims(
    invocation: Invocation,
    *,
    issuers: Container[str],
    now: float,
    window_s: float = IAT_WINDOW_S,
    expected_target: Entity | str | None = None,
    max_payload_bytes: int = MAX_PAYLOAD_BYTES,
) -> Claims:
    """Make all checks that need no payload (see `check`).

    Raises:
        CheckError: the call must not be executed.
    """
    check_sizes(invocation, max_payload_bytes)
    try:
        decode_public(invocation.host_id, KeyKind.HOST)
    except KeyFormatError as error:
        raise CheckError(Reason.HOST_ID, f"Invalid host ID: {error}") from None
    claims = read_signed(invocation.encoded_claims)
    if claims.issuer not in issuers:
        raise CheckError(
            Reason.ISSUER,
            f"Issuer of this invocation is not in list of cluster issuers: {claims.issuer}",
        )
    check_times(claims, now, window_s)
    origin_url, target = invocation.origin.url, invocation.target
    target_url = f"{target.url}/{invocation.operation}"
    if claims.target_url != target_url:
        raise CheckError(
            Reason.TARGET_URL,
            "Invocation claims and invocation target URL do not match:"
            f" {claims.target_url} != {target_url}",
        )
    if claims.origin_url != origin_url:
        raise CheckError(
            Reason.ORIGIN_URL,
            "Invocation claims and invocation origin URL do not match:"
            f" {claims.origin_url} != {origin_url}",
        )
    if expected_target is not None:
        _check_target(target, expected_target)
    return claims


def check_payload(
    invocation: Invocation,
    payload: bytes,
    claims: Claims,
    *,
    linked: Container[str] | None = None,
) -> None:
    """Make the remaining checks, which need the payload (see `check`).

    Raises:
        CheckError: the call must not be executed.
    """
    if len(payload) != invocation.content_length:
        raise CheckError(
            Reason.SIZE,
            f"payload of {len(payload)} bytes, content_length: {invocation.content_length} bytes",
        )
    found = hash_of(claims.origin_url, claims.target_url, invocation.operation, payload)
    if found != claims.hash:
        raise CheckError(
            Reason.HASH, f"Invocation hash does not match claims hash ({found} / {claims.hash})"
        )
    if linked is not None and invocation.origin.public_key not in linked:
        raise CheckError(
            Reason.UNLINKED,
            f"Actor {invocation.origin.public_key} is not linked to this provider",
        )


def check_sizes(invocation: Invocation, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> None:
    """Check the length of the payload, before anything is fetched.

    Raises:
        CheckError: the payload is too long, or its length is not the announced one.
    """
    size, inline = invocation.content_length, len(invocation.msg)
    if size > max_payload_bytes:
        raise CheckError(Reason.SIZE, f"payload of {size} bytes, limit: {max_payload_bytes} bytes")
    if inline != (0 if invocation.moved else size):
        raise CheckError(
            Reason.SIZE,
            f"{inline} bytes of payload in the message, content_length: {size} bytes;"
            f" only payloads above {CHUNK_THRESHOLD_BYTES} bytes are moved to the object store",
        )


def check_times(claims: Claims, now: float, window_s: float) -> None:
    """Check that a token may be used now; only the issue time has a tolerance, `window_s`.

    Raises:
        CheckError: the token is expired, not valid yet, or issued outside of the window.
    """
    if claims.exp is not None and claims.exp < now:
        raise CheckError(Reason.EXPIRED, "Invocation claims token expired")
    if claims.nbf is not None and now < claims.nbf:
        raise CheckError(Reason.NOT_YET, "Invocation claims token not valid yet")
    if window_s and abs(now - claims.iat) > window_s:
        raise CheckError(
            Reason.ISSUED_AT,
            f"Invocation claims were issued at {claims.iat}, {abs(now - claims.iat):.0f} s from"
            f" now, limit: {window_s:g} s; check the clocks",
        )


def judge_response(
    invocation_id: str,
    response: InvocationResponse,
    *,
    max_payload_bytes: int = MAX_PAYLOAD_BYTES,
) -> bytes | None:
    """Return the result of a call, or None if it must be fetched from the object store.

    The checks are made in the order of a host. The object is named
    `response_object_name(invocation_id)`, and has `response.size_bytes` bytes.

    Raises:
        ResponseError: the response does not answer this call, or its sizes differ.
        RemoteError: the call failed; the text is that of the other side.
    """
    error = response.error
    if response.invocation_id != invocation_id:
        raise ResponseError(
            ResponseFault.INVOCATION_ID,
            f"invocation ID mismatch: {response.invocation_id!r}, expected {invocation_id!r}"
            + (f"; the response reports: {error}" if error else ""),
        )
    size, inline = response.size_bytes, len(response.msg)
    if size > max_payload_bytes:
        raise ResponseError(
            ResponseFault.SIZE, f"result of {size} bytes, limit: {max_payload_bytes} bytes"
        )
    if not response.moved and size != inline:
        raise ResponseError(
            ResponseFault.SIZE,
            f"message size mismatch: result of {inline} bytes, content_length: {size} bytes"
            + (f"; the response reports: {error}" if error else ""),
        )
    if error is not None:
        raise RemoteError(error)
    return None if response.moved else response.msg


def _check_sent(name: str, text: str, limit: int) -> None:
    if len(text) > limit:
        raise too_long("invocation", name, len(text), limit, "characters")
    if not text.isascii():
        check_utf8("invocation", name, text)


@lru_cache(maxsize=CACHED_KEYS)
def _check_entity(entity: Entity) -> None:
    for name in ("public_key", "link_name", "contract_id"):
        _check_sent(name, getattr(entity, name), MAX_NAME_CHARS)


def _check_target(target: Entity, expected: Entity | str) -> None:
    if isinstance(expected, str):
        found, wanted = target.public_key, expected
    else:
        found, wanted = target.url, expected.url
    if found != wanted:
        raise CheckError(
            Reason.TARGET,
            f"Target of the invocation was {found}, which does not match the receiver {wanted}",
        )
