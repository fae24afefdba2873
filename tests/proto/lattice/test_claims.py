"""Tests of tokens: the recorded ones, ones with one fault each, and arbitrary input."""

from __future__ import annotations

import base64
import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.lattice.claims import read, read_signed
from proto.lattice.errors import CheckError, Reason
from proto.lattice.invocation import check, check_times
from tests.proto.lattice.identities import ACTOR, CLUSTER, HOST, IAT, ID, JTI, call

HEADER = {"typ": "jwt", "alg": "Ed25519"}
GOOD = call().encoded_claims
BODY = {
    "jti": JTI,
    "iat": IAT,
    "iss": CLUSTER.public,
    "sub": ID,
    "wascap": {"target_url": "t", "origin_url": "o", "hash": "H"},
    "wascap_revision": 3,
}


def part(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token(body: Any = BODY, header: Any = HEADER) -> str:
    """Return a token with any content, signed by the cluster."""
    signed = f"{part(header)}.{part(body)}"
    return f"{signed}.{part(CLUSTER.sign(signed.encode()))}"


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in BODY.items() if key != name}


def test_a_token_is_read() -> None:
    claims = read_signed(token({**BODY, "exp": 5, "nbf": None, "more": [1]}))
    assert (claims.issuer, claims.subject, claims.jti, claims.iat) == (
        CLUSTER.public,
        ID,
        JTI,
        IAT,
    )
    assert (claims.exp, claims.nbf) == (5, None)
    assert (claims.target_url, claims.origin_url, claims.hash) == ("t", "o", "H")
    assert read_signed(token(header={"alg": "Ed25519", "typ": "jwt", "x": 1})).iat == IAT


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected 3 segments, found 1"),
        ("a.b", "expected 3 segments, found 2"),
        (f"{GOOD}.", "expected 3 segments, found 4"),
        ("..", "header: invalid JSON"),
        ("x" * 8193, "8193 characters, limit: 8192"),
        (token(header={"typ": "JWT", "alg": "EdDSA"}), "the header must be"),
        (token(header={"typ": "jwt"}), "the header must be"),
        (token(header=[]), "header: expected a JSON object"),
        (token(b"{"), "body: invalid JSON"),
        (token(b"\xff"), "body: invalid JSON"),
        (token(b"[" * 5_000), "body: invalid JSON"),
        (token(b'{"iss":"a","iss":"b"}'), "body: invalid JSON"),
        (token([]), "body: expected a JSON object"),
        (token(without("wascap")), "missing wascap metadata"),
        (token({**BODY, "wascap": []}), "missing wascap metadata"),
        (token({**BODY, "wascap": {"target_url": "t"}}), "origin_url: expected a text"),
        (token(without("iss")), "iss: expected a text"),
        (token({**BODY, "iss": ""}), "iss: invalid key '': 0 characters, expected 56"),
        (token({**BODY, "iss": "CA"}), "iss: invalid key 'CA'"),
        (token({**BODY, "iss": HOST.public}), "host key"),
        (token({**BODY, "sub": ""}), "sub is empty"),
        (token(without("sub")), "sub: expected a text"),
        (token(without("jti")), "jti: expected a text"),
        (token(without("iat")), "iat: expected whole seconds"),
        (token({**BODY, "iat": True}), "iat: expected whole seconds"),
        (token({**BODY, "iat": -1}), "iat: expected whole seconds"),
        (token({**BODY, "iat": 1 << 64}), "iat: expected whole seconds"),
        (token({**BODY, "exp": 1.5}), "exp: expected whole seconds"),
        (token({**BODY, "nbf": "1"}), "nbf: expected whole seconds"),
        (GOOD + "=", "signature: base64url with padding"),
        (GOOD[:-1] + "R", "signature: base64url with padding, other characters or unused bits"),
        (GOOD.replace(".", "+.", 1), "header: base64url"),
        (GOOD.replace(".", ".é"), "body: base64url with padding, other characters"),
        (GOOD.replace(".", ".\ud800"), "body: invalid base64url"),
        (f"{GOOD}AAA", "signature: invalid base64url"),
    ],
)
def test_malformed_tokens(text: str, says: str) -> None:
    with pytest.raises(CheckError, match=says) as caught:
        read(text)
    assert caught.value.reason is Reason.TOKEN


@pytest.mark.parametrize("text", [GOOD[:-2], GOOD[:-20] + "A" * 20, token() + "AAAA"])
def test_other_signatures(text: str) -> None:
    read(text)
    with pytest.raises(CheckError) as caught:
        read_signed(text)
    assert caught.value.reason is Reason.SIGNATURE


@given(st.text(max_size=30) | st.lists(st.text(max_size=9), max_size=4).map(".".join))
def test_any_text_is_malformed(text: str) -> None:
    with pytest.raises(CheckError):
        read(text)


@given(
    st.dictionaries(
        st.sampled_from([*BODY, "exp", "nbf"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
        max_size=3,
    )
)
def test_any_body_is_read_or_malformed(changes: dict[str, Any]) -> None:
    with contextlib.suppress(CheckError):
        claims = read_signed(token({**BODY, **changes}))
        assert claims.issuer == CLUSTER.public


@given(st.integers(0, len(GOOD) - 1), st.sampled_from("AZaz09-_.=+/ é"))
def test_no_damaged_token_is_accepted(at: int, character: str) -> None:
    damaged = GOOD[:at] + character + GOOD[at + 1 :]
    if damaged != GOOD:
        with pytest.raises(CheckError):
            read_signed(damaged)


@pytest.mark.parametrize(
    ("times", "now", "reason"),
    [
        ({"exp": IAT}, IAT, None),
        ({"exp": IAT}, IAT + 0.1, Reason.EXPIRED),
        ({"nbf": IAT}, IAT, None),
        ({"nbf": IAT}, IAT - 0.1, Reason.NOT_YET),
        ({}, IAT + 300, None),
        ({}, IAT + 300.5, Reason.ISSUED_AT),
        ({}, IAT - 300, None),
        ({}, IAT - 301, Reason.ISSUED_AT),
        ({"iat": (1 << 64) - 1}, IAT, Reason.ISSUED_AT),
    ],
)
def test_times(times: dict[str, int], now: float, reason: Reason | None) -> None:
    claims = read(token({**BODY, **times}))
    if reason is None:
        check_times(claims, now, 300)
        return
    with pytest.raises(CheckError) as caught:
        check_times(claims, now, 300)
    assert caught.value.reason is reason


def test_only_a_listed_issuer_is_trusted() -> None:
    with pytest.raises(CheckError, match="not in list of cluster issuers") as caught:
        check(call(), issuers=[ACTOR.public], now=IAT)
    assert caught.value.reason is Reason.ISSUER
