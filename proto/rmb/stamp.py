"""Lifetime of an envelope: timestamp (Unix seconds) plus expiration (seconds) is its deadline.

A stamp renews the timestamp and subtracts the elapsed time from the expiration, so the deadline
never changes.
"""

from __future__ import annotations

from proto.rmb.bounds import (
    DEFAULT_EXPIRATION_S,
    MAX_EXPIRATION_S,
    RESPONSE_EXPIRATION_S,
)


def stamp(now: int, timestamp: int, expiration_s: int) -> tuple[int, int]:
    """Return the timestamp and expiration to send at `now`.

    A timestamp of 0 was never set, and one in the future is not trusted: in both cases the lifetime
    starts now.
    """
    if timestamp == 0 or timestamp > now:
        return now, expiration_s
    return now, max(0, expiration_s - (now - timestamp))


def deadline(timestamp: int, expiration_s: int) -> int:
    """Return the Unix second from which on the envelope is expired."""
    return timestamp + expiration_s


def ttl(now: int, timestamp: int, expiration_s: int) -> int:
    """Return the seconds left; the envelope is expired if this is not above 0."""
    return timestamp + expiration_s - now


def request_expiration(expiration_s: int) -> int:
    """Return the expiration that a peer sends: the default for 0, at most `MAX_EXPIRATION_S`."""
    return min(expiration_s or DEFAULT_EXPIRATION_S, MAX_EXPIRATION_S)


def response_expiration() -> int:
    """Return the expiration that a peer gives a response of a service."""
    return min(RESPONSE_EXPIRATION_S, MAX_EXPIRATION_S)
