"""Guesses of passwords and codes are slowed down, in the database: for all processes, Redis or not.

Each try is counted before it is checked, under every key that stands for it, and taken back when it
was right. After some free failures a key has to wait, twice as long after each one more. The wait
of an account is short: somebody who guesses at it must not lock its owner out. Its owner's browser,
known by a cookie, is not even slowed down by the guesses of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from django.db import transaction
from django.db.models import F
from django.utils import timezone
from django.utils.crypto import salted_hmac

from proto.limits.addresses import place_of
from relay.access.models import FailedTries

FORGET: Final = timedelta(hours=1)
"""A key without a failure for so long begins anew."""
MAX_EXPONENT: Final = 16


class Rule(NamedTuple):
    """How one kind of key is slowed down."""

    kind: str
    free: int
    max_wait_s: int


ADDRESS: Final = Rule("address", 10, 900)
ACCOUNT: Final = Rule("account", 5, 60)
BROWSER: Final = Rule("browser", 5, 60)
AGAIN: Final = Rule("again", 5, 60)
"""The password, asked of an account that has signed in: before a change of its own."""
PROVIDER: Final = Rule("provider", 10, 900)
"""An address, for what the audit log has of failures by OpenID Connect; nobody waits for it."""
CODE: Final = Rule("code", 5, 300)
"""Of six digits; whoever gets so far has the password."""


class Key(NamedTuple):
    """Something that tries are counted under."""

    rule: Rule
    hash: str


def key(rule: Rule, text: str) -> Key:
    """A key; names that were tried are not stored as such, they may be passwords."""
    return Key(rule, salted_hmac(f"relay.access.{rule.kind}", text, algorithm="sha256").hexdigest())


def address_key(address: str, rule: Rule = ADDRESS) -> Key:
    """Of an address; one host may choose any of a network of IPv6."""
    return key(rule, place_of(address))


def take(keys: Sequence[Key]) -> int:
    """Count a try.

    Args:
        keys: the address first. One that has to wait ends it: names that are tried meanwhile get
            no row, and all callers lock in one order, so nobody waits in turn.

    Returns:
        Seconds to wait before one is allowed; 0 is now, and only then it was counted.
    """
    now = timezone.now()
    with transaction.atomic():
        FailedTries.objects.filter(last__lt=now - FORGET).delete()
        for each in keys:
            row = _held(each, now)
            wait_s = _wait_s(each.rule, row, (now - row.last).total_seconds())
            if wait_s > 0:
                return int(wait_s + 0.999)
        hashes = [each.hash for each in keys]
        FailedTries.objects.filter(key__in=hashes).update(failures=F("failures") + 1, last=now)
    return 0


def give_back(keys: Sequence[Key]) -> None:
    """The try was right: what stands for the account begins anew, an address had one try less."""
    for each in keys:  # a statement each: it waits for one and holds none
        row = FailedTries.objects.filter(key=each.hash)
        if each.rule is ADDRESS:
            row.filter(failures__gt=0).update(failures=F("failures") - 1)
        else:
            row.delete()


def _held(wanted: Key, now: datetime) -> FailedTries:
    """The row of a key, locked. Another sign-in that was right may take it away before it is."""
    while True:
        fresh = FailedTries(key=wanted.hash, failures=0, last=now)
        FailedTries.objects.bulk_create([fresh], ignore_conflicts=True)
        row = FailedTries.objects.select_for_update().filter(key=wanted.hash).first()
        if row is not None:
            return row


def _wait_s(rule: Rule, row: FailedTries, since_s: float) -> float:
    over = row.failures - rule.free
    if over < 0:
        return 0.0
    return min(2.0 ** min(over, MAX_EXPONENT), rule.max_wait_s) - since_s
