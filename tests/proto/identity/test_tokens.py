"""Session tokens: the reference's verdict on 66 recorded ones, strictness, round trips."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha512
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.identity import ss58, tokens
from proto.identity.bounds import MAX_JSON_BRACKETS, MAX_TIME_S, MAX_TOKEN_BYTES, MAX_TWIN
from proto.identity.errors import TokenError
from proto.identity.signing import KeyType, SigningKey
from tests.interop.recorded import recorded

VECTORS = recorded("jwts")
ACCOUNTS = {key["twin"]: ss58.decode(key["account"]) for key in recorded("keys") if key.get("twin")}
KEY = SigningKey.from_mini_secret(b"test key".ljust(32, b"."))
NOW = 1_795_218_450
HEADER = '{"alg":"RS512"}'
CLAIMS = {"sub": 3, "sid": "v", "iat": NOW, "exp": NOW + 300}


def _part(text: str | bytes) -> bytes:
    raw = text if isinstance(text, bytes) else text.encode()
    return urlsafe_b64encode(raw).rstrip(b"=")


def _token(header: str | bytes = HEADER, claims: str | bytes | dict[str, Any] = CLAIMS) -> bytes:
    if isinstance(claims, dict):
        claims = json.dumps(claims)
    signed = _part(header) + b"." + _part(claims)
    return signed + b"." + _part(KEY.sign(signed))


def _parse_and_check(token: bytes, now: int = NOW) -> tokens.Token:
    parsed = tokens.parse(token, now)
    tokens.check_signature(parsed, KEY.account)
    return parsed


# --- recorded tokens


def test_there_are_all_recorded_tokens() -> None:
    assert len(VECTORS) == 66


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: f"{v['made_by']}-{v['what'][:40]}")
def test_the_references_verdict(vector: dict[str, Any]) -> None:
    # Where implementations differ there is no "valid", and the reference's answer counts.
    expected = vector.get("valid", vector.get("reference_status") == 101)
    try:
        token = tokens.parse(vector["token"].encode(), vector["now"])
        account = ACCOUNTS.get(token.twin)
        if account is None:
            assert vector["reference_body"] == f"twin not found {token.twin}"
            verdict = False
        else:
            tokens.check_signature(token, account)
            assert account.hex() == vector["pubkey"]
            claims = vector["claims"]
            assert token.twin == claims["sub"]
            assert token.sid == claims.get("sid")
            assert (token.issued_at, token.expires_at) == (claims["iat"], claims["exp"])
            verdict = True
    except TokenError:
        verdict = False
    assert verdict is expected


def test_recorded_signatures_alone() -> None:
    checked = 0
    for vector in VECTORS:
        try:
            token = tokens.parse(vector["token"].encode(), vector["now"])
        except TokenError:
            continue
        checked += 1
        if vector["signature_ok"]:
            tokens.check_signature(token, bytes.fromhex(vector["pubkey"]))
        else:
            with pytest.raises(TokenError, match="signature"):
                tokens.check_signature(token, bytes.fromhex(vector["pubkey"]))
    assert checked > 35


# --- making them


@given(
    st.sampled_from(KeyType),
    st.integers(0, MAX_TWIN),
    st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=50),
    st.integers(0, 2**40),
    st.integers(0, 2**30),
)
def test_round_trip(key_type: KeyType, twin: int, sid: str | None, now: int, ttl_s: int) -> None:
    key = SigningKey.from_mini_secret(b"test key".ljust(32, b"."), key_type)
    text = tokens.issue(key, twin, sid, now, ttl_s)
    token = tokens.parse(text.encode("ascii"), now + ttl_s)
    assert (token.twin, token.sid) == (twin, sid)
    assert (token.issued_at, token.expires_at) == (now, now + ttl_s)
    tokens.check_signature(token, key.account)
    with pytest.raises(TokenError, match="expired"):
        tokens.parse(text.encode("ascii"), now + ttl_s + 1)


def test_an_issued_token_looks_like_rmb_peers() -> None:
    text = tokens.issue(KEY, 22, None, 1_795_218_235)
    recorded_token = VECTORS[0]["token"]
    assert text.rpartition(".")[0] == recorded_token.rpartition(".")[0]
    assert "=" not in text


def test_a_session_id_can_be_left_out() -> None:
    text = tokens.issue(KEY, 3, None, NOW, omit_sid=True)
    assert text.split(".")[1].encode() == _part(f'{{"sub":3,"iat":{NOW},"exp":{NOW + 300}}}')
    assert tokens.parse(text.encode(), NOW).sid is None


@pytest.mark.parametrize(
    ("problem", "arguments"),
    [
        ("sub is not", {"twin": -1}),
        ("sub is not", {"twin": MAX_TWIN + 1}),
        ("sub is not", {"twin": True}),
        ("iat is not", {"now": -1}),
        ("exp is not", {"now": MAX_TIME_S}),
        ("exp is not", {"ttl_s": -NOW - 1}),
        ("exp is not", {"ttl_s": 0.5}),
        ("sid is neither", {"sid": 5}),
        ("surrogate", {"sid": "\ud800"}),
        ("at most 8192 bytes", {"sid": "x" * MAX_TOKEN_BYTES}),
        ("left out", {"sid": "", "omit_sid": True}),
    ],
)
def test_tokens_no_relay_would_take_are_not_made(problem: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(TokenError, match=problem):
        tokens.issue(**{"key": KEY, "twin": 3, "sid": None, "now": NOW} | arguments)


# --- time


def test_the_last_second_counts() -> None:
    token = _token()
    assert tokens.parse(token, NOW + 300).expires_at == NOW + 300
    with pytest.raises(TokenError, match=r"^jwt has expired$"):
        tokens.parse(token, NOW + 301)


@pytest.mark.parametrize("issued_at", [0, NOW - 10**6, NOW + 10**6, MAX_TIME_S])
def test_iat_is_compared_with_nothing(issued_at: int) -> None:
    assert _parse_and_check(_token(claims=CLAIMS | {"iat": issued_at})).issued_at == issued_at


def test_long_lived_tokens_can_be_refused() -> None:
    token = _token()
    assert tokens.parse(token, NOW, max_lifetime_s=300)
    assert tokens.parse(token, NOW + 1, max_lifetime_s=299)
    with pytest.raises(TokenError, match="more than 299 s"):
        tokens.parse(token, NOW, max_lifetime_s=299)


# --- claims


@pytest.mark.parametrize("sid", ["", "v", "é:ü 1", "\N{GRINNING FACE}", "\x00", " ", "null"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_session_ids_are_any_text(sid: str, ascii_only: bool) -> None:
    claims = json.dumps(CLAIMS | {"sid": sid}, ensure_ascii=ascii_only)
    assert _parse_and_check(_token(claims=claims)).sid == sid


def test_null_and_absent_are_the_session_without_id() -> None:
    absent = {name: value for name, value in CLAIMS.items() if name != "sid"}
    assert _parse_and_check(_token(claims=absent)).sid is None
    assert _parse_and_check(_token(claims=absent | {"sid": None})).sid is None
    assert _parse_and_check(_token(claims=absent | {"sid": ""})).sid == ""


@pytest.mark.parametrize("sid", [0, 5, True, False, [], {}, ["v"], 1.5])
def test_session_ids_are_nothing_else(sid: object) -> None:
    with pytest.raises(TokenError, match="sid is neither text nor null"):
        tokens.parse(_token(claims=CLAIMS | {"sid": sid}), NOW)


@pytest.mark.parametrize("name", ["sub", "iat", "exp"])
def test_numbers_must_be_there(name: str) -> None:
    claims = {other: value for other, value in CLAIMS.items() if other != name}
    with pytest.raises(TokenError, match=f"{name} is missing"):
        tokens.parse(_token(claims=claims), NOW)


@pytest.mark.parametrize("name", ["sub", "iat", "exp"])
@pytest.mark.parametrize(
    "value",
    ["true", "false", "null", '"3"', "3.0", "3e0", "3E2", "-1", "[]", "{}", str(2**64), "9" * 4000],
)
def test_numbers_are_unsigned_integers(name: str, value: str) -> None:
    rest = {other: value for other, value in CLAIMS.items() if other != name}
    claims = json.dumps(rest)[:-1] + f', "{name}": {value}}}'
    with pytest.raises(TokenError, match=f"{name} is not an integer"):
        tokens.parse(_token(claims=claims), NOW)


def test_a_twin_has_32_bits() -> None:
    assert tokens.parse(_token(claims=CLAIMS | {"sub": MAX_TWIN}), NOW).twin == MAX_TWIN
    with pytest.raises(TokenError, match="sub is not"):
        tokens.parse(_token(claims=CLAIMS | {"sub": MAX_TWIN + 1}), NOW)


def test_unknown_claims_are_ignored() -> None:
    unknown = {"aud": ["x", {"y": 1.5}], "nbf": NOW + 999, "é": None, "n": -1e300}
    assert _parse_and_check(_token(claims=CLAIMS | unknown)).twin == 3


# --- strict JSON, in both parts


def _in_header(extra: str) -> bytes:
    return _token(header=f'{{"alg":"RS512",{extra}}}')


def _in_claims(extra: str) -> bytes:
    return _token(claims=json.dumps(CLAIMS)[:-1] + f",{extra}}}")


in_both_parts = pytest.mark.parametrize("token_with", [_in_header, _in_claims])


@in_both_parts
@pytest.mark.parametrize(
    "extra",
    [
        '"x":1,"x":1',
        '"x":{"y":1,"y":2}',
        '"x":[{"y":1,"\\u0079":2}]',
        '"x":NaN',
        '"x":Infinity',
        '"x":-Infinity',
        '"x":1e999',
        '"x":-1e999',
        '"x":' + "9" * 5000,
        '"x":"\\ud800"',
        '"x":["\\uDC00\\ud800"]',
        '"\\udfff":1',
        '"x":"\n"',
        '"x":"\\x41"',
        '"x":"\\u12"',
        '"x":01',
        '"x":+1',
        '"x":.5',
        '"x":1.',
        '"x":0x1',
        '"x":1_0',
        '"x":\u0661',
        "'x':1",
        "x:1",
        '"x"',
        '"x":1,',
        "/**/",
        '"x":True',
    ],
)
def test_what_is_not_strict_json(token_with: Callable[[str], bytes], extra: str) -> None:
    with pytest.raises(TokenError, match="not strict JSON"):
        tokens.parse(token_with(extra), NOW)


@in_both_parts
@pytest.mark.parametrize("extra", ['"x":"\\ud83d\\ude00"', '"x":"\\\\ud800"', '"x":1e300', '"":{}'])
def test_what_is_strict_json(token_with: Callable[[str], bytes], extra: str) -> None:
    _parse_and_check(token_with(extra))


@pytest.mark.parametrize("name", ["sub", "sid", "iat", "exp"])
def test_no_claim_twice(name: str) -> None:
    with pytest.raises(TokenError, match="claims: not strict JSON"):
        tokens.parse(_in_claims(f'"{name}":{json.dumps(CLAIMS[name])}'), NOW)


def test_no_algorithm_twice() -> None:
    with pytest.raises(TokenError, match="header: not strict JSON"):
        tokens.parse(_in_header('"alg":"RS512"'), NOW)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xef\xbb\xbf{}",
        "{}".encode("utf-16"),
        b'{"x":"\xff"}',
        b'{"x":"\xed\xa0\x80"}',  # half a surrogate pair in UTF-8
        b'{"x":"\xc0\x80"}',
        b"{}{}",
        b"{} x",
        b"{",
        b"\x00",
    ],
)
def test_what_is_no_json_at_all(raw: bytes) -> None:
    with pytest.raises(TokenError, match="header: not strict JSON"):
        tokens.parse(_token(header=raw), NOW)
    with pytest.raises(TokenError, match="claims: not strict JSON"):
        tokens.parse(_token(claims=raw), NOW)


@pytest.mark.parametrize("text", ["[]", "null", "1", '"text"', "true", '[["sub",3]]'])
def test_what_is_no_object(text: str) -> None:
    with pytest.raises(TokenError, match="header: not a JSON object"):
        tokens.parse(_token(header=text), NOW)
    with pytest.raises(TokenError, match="claims: not a JSON object"):
        tokens.parse(_token(claims=text), NOW)


@in_both_parts
@pytest.mark.parametrize("brackets", ["[]", "{}"])
def test_nesting_is_bounded(token_with: Callable[[str], bytes], brackets: str) -> None:
    opening, closing = brackets if brackets == "[]" else ('{"x":', "}")
    innermost = "1"

    def nested(depth: int) -> bytes:
        return token_with('"x":' + opening * depth + innermost + closing * depth)

    _parse_and_check(nested(MAX_JSON_BRACKETS - 1))
    for depth in (MAX_JSON_BRACKETS, 900):
        with pytest.raises(TokenError, match="more than 64 opening brackets"):
            tokens.parse(nested(depth), NOW)


# --- header


@pytest.mark.parametrize(
    "header",
    [
        '{"alg":"RS512","typ":"JWT"}',
        '{"typ":"JWT","alg":"RS512"}',
        '{"alg":"RS512","kid":"1","x":[1]}',
        ' { "alg" : "RS512" } ',
        '{"\\u0061lg":"RS512"}',
    ],
)
def test_headers_that_name_the_label(header: str) -> None:
    assert _parse_and_check(_token(header=header)).twin == 3


@pytest.mark.parametrize(
    "header",
    [
        "{}",
        '{"typ":"JWT"}',
        '{"Alg":"RS512"}',
        *(
            json.dumps({"alg": alg})
            for alg in [
                "none",
                "HS256",
                "RS256",
                "rs512",
                "RS512 ",
                "sr25519",
                "",
                None,
                512,
                ["RS512"],
            ]
        ),
    ],
)
def test_headers_that_do_not(header: str) -> None:
    with pytest.raises(TokenError, match="alg is not RS512"):
        tokens.parse(_token(header=header), NOW)


# --- parts and base64


def test_padding_is_tolerated_where_it_fits() -> None:
    claims = json.dumps(CLAIMS)
    for spaces in range(3):
        signed = b".".join(
            urlsafe_b64encode(text.encode())
            for text in (HEADER + " " * spaces, claims + " " * spaces)
        )
        assert _parse_and_check(signed + b"." + urlsafe_b64encode(KEY.sign(signed))).twin == 3


@pytest.mark.parametrize("parts", [0, 1, 2, 4, 5])
def test_there_are_three_parts(parts: int) -> None:
    token = b".".join([_part(HEADER)] * parts)
    with pytest.raises(TokenError, match=f"a token has 3 parts, not {max(parts, 1)}"):
        tokens.parse(token, NOW)


@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize(
    "damage",
    [
        lambda part: part + b"A" * (5 - len(part) % 4),  # one character too many
        lambda part: part + b"+AAA",
        lambda part: part + b"/AAA",
        lambda part: part + b"A\n",
        lambda part: b" " + part,
        lambda part: b"=" + part,
        lambda part: part[:4] + b"=" + part[4:],
        lambda part: part + b"===",
        lambda part: part + b"&a=b",
        lambda part: b"%41" + part,
        lambda part: part + b"\x00",
        lambda part: part + "é".encode(),
    ],
)
def test_what_is_not_base64url(position: int, damage: Callable[[bytes], bytes]) -> None:
    parts = _token().split(b".")
    parts[position] = damage(parts[position])
    name = ["header", "claims", "signature"][position]
    with pytest.raises(TokenError, match=f"^{name}: not base64url$"):
        tokens.parse(b".".join(parts), NOW)


@pytest.mark.parametrize("last", [b"AB", b"A_", b"AAB", b"AA9", b"AA==="[:4], b"AAA==", b"AAAA="])
def test_base64_has_one_spelling(last: bytes) -> None:
    header, claims, _ = _token().split(b".")
    with pytest.raises(TokenError, match="signature: not base64url"):
        tokens.parse(header + b"." + claims + b"." + last + b"=", NOW)


def test_a_token_is_bounded() -> None:
    room = MAX_TOKEN_BYTES - len(_token(claims=CLAIMS | {"sid": ""}))
    longest = _token(claims=CLAIMS | {"sid": "x" * (room * 3 // 4)})
    assert MAX_TOKEN_BYTES - 4 < len(longest) <= MAX_TOKEN_BYTES
    _parse_and_check(longest)
    with pytest.raises(TokenError, match="at most 8192 bytes"):
        tokens.parse(_token(claims=CLAIMS | {"sid": "x" * room}), NOW)
    with pytest.raises(TokenError, match="at most 8192 bytes"):
        tokens.parse(b"." * 10**6, NOW)


# --- signatures


def test_what_is_signed_is_the_text() -> None:
    token = _token()
    parsed = tokens.parse(token, NOW)
    assert parsed.signed == token.rpartition(b".")[0]
    assert parsed.signature == KEY.sign(b"")[:1] + parsed.signature[1:]
    assert len(parsed.signature) == 65


@pytest.mark.parametrize("size_bytes", [0, 1, 64, 66, 1000])
def test_a_signature_has_65_bytes(size_bytes: int) -> None:
    signed = _token().rpartition(b".")[0]
    with pytest.raises(TokenError, match=f"signature has {size_bytes} bytes instead of 65"):
        tokens.parse(signed + b"." + _part(b"s" * size_bytes), NOW)


def test_the_digest_of_the_text_is_not_what_is_signed() -> None:
    signed = _part(HEADER) + b"." + _part(json.dumps(CLAIMS))
    token = signed + b"." + _part(KEY.sign(sha512(signed).digest()))
    with pytest.raises(TokenError, match="sr25519 signature verification failed"):
        _parse_and_check(token)


def test_a_token_of_another_account() -> None:
    other = SigningKey.from_mini_secret(bytes(32)).account
    with pytest.raises(TokenError, match="sr25519 signature verification failed"):
        tokens.check_signature(tokens.parse(_token(), NOW), other)


# --- nothing leaks, nothing else is raised


def test_neither_repr_nor_errors_hold_the_token() -> None:
    token = _token(claims=CLAIMS | {"sid": "mine"})
    shown = repr(tokens.parse(token, NOW))
    assert shown == f"Token(twin=3, sid='mine', issued_at={NOW}, expires_at={NOW + 300})"
    for damaged in (token[1:], token[:-1], token[:60] + token[61:], token.replace(b".", b"")):
        with pytest.raises(TokenError) as caught:
            tokens.parse(damaged, NOW)
        assert len(str(caught.value)) < 100
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__ or caught.value.__context__ is None


@given(st.binary(max_size=300))
def test_any_bytes(token: bytes) -> None:
    with pytest.raises(TokenError):
        tokens.parse(token, NOW)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.dictionaries(st.sampled_from(["alg", "typ", "kid"]) | st.text(), json_values, max_size=3),
    st.dictionaries(
        st.sampled_from(["sub", "sid", "iat", "exp"]) | st.text(), json_values, max_size=6
    ),
    st.booleans(),
)
def test_any_json(header: dict[str, Any], claims: dict[str, Any], complete: bool) -> None:
    if complete:
        header, claims = {"alg": "RS512"} | header, CLAIMS | claims
    try:
        parsed = tokens.parse(_token(json.dumps(header), json.dumps(claims)), NOW)
    except TokenError:
        return
    assert header["alg"] == "RS512"
    assert (parsed.twin, parsed.sid) == (claims["sub"], claims.get("sid"))
    assert parsed.issued_at == claims["iat"]
    assert parsed.expires_at == claims["exp"] >= NOW
    assert not any(isinstance(claims[name], bool) for name in ("sub", "iat", "exp"))
