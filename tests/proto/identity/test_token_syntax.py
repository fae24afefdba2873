"""Tests of session token syntax: accepted JSON, base64url and headers, and the maximum size."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable

import pytest

from proto.identity import tokens
from proto.identity.bounds import MAX_JSON_BRACKETS, MAX_TOKEN_BYTES
from proto.identity.errors import TokenError
from tests.proto.identity.handmade import CLAIMS, HEADER, KEY, NOW, parse_and_check, part, token_of


def _in_header(extra: str) -> bytes:
    return token_of(header=f'{{"alg":"RS512",{extra}}}')


def _in_claims(extra: str) -> bytes:
    return token_of(claims=json.dumps(CLAIMS)[:-1] + f",{extra}}}")


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
    parse_and_check(token_with(extra))


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
        tokens.parse(token_of(header=raw), NOW)
    with pytest.raises(TokenError, match="claims: not strict JSON"):
        tokens.parse(token_of(claims=raw), NOW)


@pytest.mark.parametrize("text", ["[]", "null", "1", '"text"', "true", '[["sub",3]]'])
def test_what_is_no_object(text: str) -> None:
    with pytest.raises(TokenError, match="header: not a JSON object"):
        tokens.parse(token_of(header=text), NOW)
    with pytest.raises(TokenError, match="claims: not a JSON object"):
        tokens.parse(token_of(claims=text), NOW)


@in_both_parts
@pytest.mark.parametrize("brackets", ["[]", "{}"])
def test_nesting_is_bounded(token_with: Callable[[str], bytes], brackets: str) -> None:
    opening, closing = brackets if brackets == "[]" else ('{"x":', "}")
    innermost = "1"

    def nested(depth: int) -> bytes:
        return token_with('"x":' + opening * depth + innermost + closing * depth)

    parse_and_check(nested(MAX_JSON_BRACKETS - 1))
    for depth in (MAX_JSON_BRACKETS, 900):
        with pytest.raises(TokenError, match="more than 64 opening brackets"):
            tokens.parse(nested(depth), NOW)


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
    assert parse_and_check(token_of(header=header)).twin == 3


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
        tokens.parse(token_of(header=header), NOW)


def test_padding_is_tolerated_where_it_fits() -> None:
    claims = json.dumps(CLAIMS)
    for spaces in range(3):
        signed = b".".join(
            urlsafe_b64encode(text.encode())
            for text in (HEADER + " " * spaces, claims + " " * spaces)
        )
        assert parse_and_check(signed + b"." + urlsafe_b64encode(KEY.sign(signed))).twin == 3


@pytest.mark.parametrize("parts", [0, 1, 2, 4, 5])
def test_there_are_three_parts(parts: int) -> None:
    token = b".".join([part(HEADER)] * parts)
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
    parts = token_of().split(b".")
    parts[position] = damage(parts[position])
    name = ["header", "claims", "signature"][position]
    with pytest.raises(TokenError, match=f"^{name}: not base64url$"):
        tokens.parse(b".".join(parts), NOW)


@pytest.mark.parametrize(
    "last",
    # Bits that decode to nothing, padding of the wrong length, and a lone character.
    ["AB", "A_", "AB==", "AAB", "AA9", "AAB=", "AA=", "AA===", "AAA==", "AAAA=", "A", "="],
)
def test_base64_has_one_spelling(last: str) -> None:
    header, claims, _ = token_of().split(b".")
    with pytest.raises(TokenError, match="signature: not base64url"):
        tokens.parse(header + b"." + claims + b"." + last.encode(), NOW)


def test_a_token_is_bounded() -> None:
    room = MAX_TOKEN_BYTES - len(token_of(claims=CLAIMS | {"sid": ""}))
    longest = token_of(claims=CLAIMS | {"sid": "x" * (room * 3 // 4)})
    assert MAX_TOKEN_BYTES - 4 < len(longest) <= MAX_TOKEN_BYTES
    parse_and_check(longest)
    with pytest.raises(TokenError, match="at most 8192 bytes"):
        tokens.parse(token_of(claims=CLAIMS | {"sid": "x" * room}), NOW)
    with pytest.raises(TokenError, match="at most 8192 bytes"):
        tokens.parse(b"." * 10**6, NOW)
