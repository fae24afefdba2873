"""Throttle of password and code guesses, in the database: for all processes, without Redis.

Each try is counted before it is checked, under every key that it belongs to, and taken back if it
was right. After some free failures a key has to wait, twice as long after each further failure. The
wait of an account is short, so that an attacker cannot lock out its owner. The owner's browser,
recognised by a cookie, is not slowed down by the guesses of others.
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
"""Time without a failure after which a key starts again from zero."""
MAX_EXPONENT: Final = 16


class Rule(NamedTuple):
    """Limits for one kind of key."""

    kind: str
    free: int
    max_wait_s: int


ADDRESS: Final = Rule("address", 10, 900)
ACCOUNT: Final = Rule("account", 5, 60)
BROWSER: Final = Rule("browser", 5, 60)
AGAIN: Final = Rule("again", 5, 60)
"""Rule for the password that a signed-in account enters again before it changes itself."""
PROVIDER: Final = Rule("provider", 10, 900)
"""Rule for an address that bounds audit entries of failed OpenID Connect; it delays no sign-in."""
CODE: Final = Rule("code", 5, 300)
"""Rule for codes of six digits; a client that can enter one knows the password."""


class Key(NamedTuple):
    """Key under which tries are counted."""

    rule: Rule
    hash: str


def key(rule: Rule, text: str) -> Key:
    """Return a key; it contains a hash of the text, because entered names may be passwords."""
    return Key(rule, salted_hmac(f"relay.access.{rule.kind}", text, algorithm="sha256").hexdigest())


def address_key(address: str, rule: Rule = ADDRESS) -> Key:
    """Return the key of an address; those of an IPv6 network share one, as a host may use any."""
    return key(rule, place_of(address))


def take(keys: Sequence[Key]) -> int:
    """Count a try.

    Args:
        keys: keys of the try, the address first. The first key that has to wait ends the call, so
            that names tried meanwhile get no row. All callers lock in the same order, which
            prevents deadlocks.

    Returns:
        Seconds to wait before a try is allowed; 0 if it is allowed now, and only then it was
        counted.
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
    """Take back a right try: reset the keys of the account, and subtract one from an address."""
    for each in keys:  # one statement each, which waits for one lock and holds no other
        row = FailedTries.objects.filter(key=each.hash)
        if each.rule is ADDRESS:
            row.filter(failures__gt=0).update(failures=F("failures") - 1)
        else:
            row.delete()


def _held(wanted: Key, now: datetime) -> FailedTries:
    """Return the row of a key, locked. Another sign-in may delete it first; then try again."""
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
