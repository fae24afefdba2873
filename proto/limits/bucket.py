"""Token buckets: a steady rate with room for a burst, for handshakes per address.

A bucket holds at most `burst` tokens and gains `rate_per_s` tokens per second. Its content is
computed from the elapsed time when it is used, so an unused bucket costs nothing. Times are seconds
of any monotonic clock.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

MAX_KEYS: Final = 65_536
"""Maximum number of buckets kept; each takes about 200 bytes."""

Key = TypeVar("Key", bound=Hashable)


class TokenBucket:
    """A single bucket, full at first."""

    __slots__ = ("_at", "_tokens", "burst", "rate_per_s")

    def __init__(self, rate_per_s: float, burst: float, now: float) -> None:
        _check(rate_per_s, burst)
        self.rate_per_s = rate_per_s
        self.burst = burst
        self._tokens = burst
        self._at = now

    def take(self, now: float, tokens: float = 1.0) -> bool:
        """Take tokens if there are enough, otherwise none; return whether they were taken."""
        self._fill(now)
        if self._tokens < tokens:
            return False
        self._tokens -= tokens
        return True

    def wait_s(self, now: float, tokens: float = 1.0) -> float:
        """Return the seconds until a number of tokens is available; infinite above the burst."""
        if tokens > self.burst:
            return float("inf")
        self._fill(now)
        return max(0.0, (tokens - self._tokens) / self.rate_per_s)

    def _fill(self, now: float) -> None:
        if now > self._at:
            self._tokens = min(self.burst, self._tokens + (now - self._at) * self.rate_per_s)
            self._at = now


class TokenBuckets(Generic[Key]):
    """One bucket per key, at most `max_keys` of them.

    When there are too many, the least recently used bucket is discarded. It is the one most likely
    to be full again, and a full bucket is equivalent to none.
    """

    __slots__ = ("_buckets", "burst", "max_keys", "rate_per_s")

    def __init__(self, rate_per_s: float, burst: float, max_keys: int = MAX_KEYS) -> None:
        _check(rate_per_s, burst)
        self.rate_per_s = rate_per_s
        self.burst = burst
        self.max_keys = max_keys
        self._buckets: dict[Key, TokenBucket] = {}  # the most recently used one is at the end

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: Key, now: float, tokens: float = 1.0) -> bool:
        """Take tokens from the bucket of `key` if there are enough; return whether there were."""
        bucket = self._buckets.pop(key, None)
        if bucket is None:
            bucket = TokenBucket(self.rate_per_s, self.burst, now)
            if len(self._buckets) >= self.max_keys:
                del self._buckets[next(iter(self._buckets))]
        self._buckets[key] = bucket
        return bucket.take(now, tokens)


def _check(rate_per_s: float, burst: float) -> None:
    if rate_per_s <= 0 or burst <= 0:
        raise ValueError("rate and burst of a token bucket must be above 0")
