"""Tests of the check that logs contain no secrets: it notices those that it must."""

from __future__ import annotations

import time

import pytest

from relay.access import tokens
from tests.support.secrets_in_logs import assert_none
from tests.support.world import fresh_twins


def test_tokens_are_noticed() -> None:
    (twin,) = fresh_twins(1)
    for secret in (twin.token(now=int(time.time())), tokens.mint().text):
        with pytest.raises(AssertionError, match="the log holds a"):
            assert_none(f"GET /?{secret} 101")


def test_what_may_be_logged() -> None:
    minted = tokens.mint()
    assert_none(f"account one/rmb_{minted.public_id} changed twin 7; eyJ is how tokens begin")
