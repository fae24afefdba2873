"""`relay.twins.fields`: the forms of twin ids, accounts, keys and lists of relays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.identity import ss58
from proto.identity.accounts import WEAK_ACCOUNTS
from relay.twins.fields import (
    FieldError,
    TwinValues,
    parse_account,
    parse_id,
    parse_pk,
    parse_relays,
    parse_signer,
    parse_values,
    to_texts,
)

ACCOUNT = bytes(range(32))
PK = b"\2" + ACCOUNT

names = st.from_regex(
    r"[A-Za-z]([A-Za-z0-9-]{0,12}[A-Za-z0-9])?(:[1-9][0-9]{0,3})?", fullmatch=True
)
values = st.builds(
    TwinValues,
    st.integers(1, 2**32 - 1),
    st.binary(min_size=32, max_size=32).filter(lambda account: account not in WEAK_ACCOUNTS),
    st.none() | st.binary(min_size=33, max_size=33),
    st.lists(names, max_size=16).map(tuple),
)


@given(values)
def test_texts_are_read_back(twin: TwinValues) -> None:
    assert parse_values(*to_texts(twin)) == twin


def test_both_forms_of_an_account() -> None:
    assert parse_account(ss58.encode(ACCOUNT)) == ACCOUNT
    assert parse_account(f" 0x{ACCOUNT.hex()} ") == ACCOUNT
    assert parse_pk("") is None
    assert parse_pk(f"0x{PK.hex().upper()}") == PK
    assert parse_relays("a:8080__b_") == ("a:8080", "b")
    assert parse_relays("R.Example._b\u00fccher.example") == ("R.Example.", "b\u00fccher.example")


@pytest.mark.parametrize(
    ("parse", "text", "complaint"),
    [
        (parse_id, "", "id: must be a number"),
        (parse_id, "0", "id: must be between 1 and 4294967295"),
        (parse_id, "4294967296", "id: must be between"),
        (parse_id, "-1", "id: must be a number"),
        (parse_id, "1.0", "id: must be a number"),
        (parse_id, "٣", "id: must be a number"),
        (parse_id, "9" * 5000, "id: must be a number"),
        (parse_account, "", "account: "),
        (parse_account, "0x00", "account: must be 0x and 64 hexadecimal digits"),
        (parse_account, "0x" + "0g" * 32, "account: must be"),
        (parse_account, "0x" + "00 " * 32, "account: must be"),
        (parse_account, ss58.encode(ACCOUNT)[:-1] + "1", "account: "),
        *(
            (parse_signer, f"0x{each.hex()}", "account: anybody can sign")
            for each in sorted(WEAK_ACCOUNTS)
        ),
        (parse_signer, ss58.encode(bytes(32)), "account: anybody can sign"),
        (parse_pk, PK.hex(), "pk: must be 0x and 66 hexadecimal digits"),
        (parse_pk, "0x" + ACCOUNT.hex(), "pk: must be"),
        (parse_relays, "a\nb", "relays: must not contain control characters"),
        (parse_relays, "_".join("abcdefghijklmnopq"), "relays: must be at most 16, not 17"),
        (parse_relays, "x" * 1025, "relays: must be at most 1024 bytes"),
        (
            parse_relays,
            "wss://r.example",
            "'wss://r.example' is neither.*; did you mean r.ex",
        ),
        (parse_relays, "r.example_r.example/", "relays: 'r.example/'.*; did you mean r.example?"),
        (parse_relays, "a b", "relays: 'a b' is neither a host name.*; did you mean a_b?"),
        (parse_relays, "a,b", "relays: 'a,b' is neither a host name.*; did you mean a_b?"),
        (parse_relays, ".", "relays: '.' is neither a host name"),
        (parse_relays, "a..b", "relays: 'a..b' is neither a host name"),
        (parse_relays, "h:99999", "with a port up to 65535$"),
        (parse_relays, "=cmd|x", "relays: '=cmd|x' is neither a host name"),
    ],
)
def test_refusals_name_the_field(parse: object, text: str, complaint: str) -> None:
    assert callable(parse)
    with pytest.raises(FieldError, match=complaint):
        parse(text)


@given(st.text(), st.text(), st.text(), st.text())
def test_any_text_is_a_twin_or_refused(twin: str, account: str, pk: str, relays: str) -> None:
    try:
        parse_values(twin, account, pk, relays)
    except FieldError as error:
        assert len(str(error)) < 200
