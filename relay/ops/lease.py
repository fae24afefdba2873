"""A lease: at most one process does a piece of work, and another takes over when it goes silent.

The holder writes its token into a key that lives for seconds, and renews it. A process that is
stopped, killed or cut off from Redis does not renew; the key expires, and the next process takes
the lease. The holder measures by its own clock from before each renewal, and gives the lease up
earlier than Redis does.

A supervisor can give a process and its predecessors the same name (`be`): the successor of a killed
process then need not wait for its leases to expire, as no other tokens begin with that name.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from redis import Redis
from redis.exceptions import RedisError

LIFE_S: Final = 15.0
RENEW_S: Final = 5.0
MARGIN_S: Final = 2.0
"""Seconds by which a lease counts as lost before it expires: two hosts' clocks differ in speed."""

_RENEW: Final = (Path(__file__).parent / "lua" / "lease_renew.lua").read_text()
_RELEASE: Final = (Path(__file__).parent / "lua" / "lease_release.lua").read_text()
_FREE: Final = (Path(__file__).parent / "lua" / "lease_free.lua").read_text()

_SEPARATOR: Final = "/"
_holder = ""


def be(holder: str) -> None:
    """Set the name under which this process takes leases; no other running process may have it."""
    global _holder
    _holder = holder


def new_token() -> str:
    """Return a unique token."""
    return f"{_holder}{_SEPARATOR}{secrets.token_hex(8)}"


def free_former(client: Redis, leases: Iterable[str]) -> int:
    """Release the leases of this process's predecessor; must be called before any lease is taken.

    Returns:
        Number of leases released.

    Raises:
        redis.exceptions.RedisError: Redis does not answer.
    """
    keys = list(leases)
    if not _holder or not keys:
        return 0
    return int(client.eval(_FREE, len(keys), *keys, f"{_holder}{_SEPARATOR}"))


class Lease:
    """The lease under one key, for one holder.

    Attributes:
        token: Value of the key while this holder has the lease.
    """

    def __init__(
        self, client: Redis, key: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.token = new_token()
        self._client = client
        self._key = key
        self._clock = clock
        self._until = float("-inf")
        self._ended = threading.Event()

    @property
    def held(self) -> bool:
        """Whether this holder has the lease, as far as it can know without asking Redis."""
        return self._clock() < self._until

    def take(self) -> bool:
        """Take the lease if it is free, and return whether it was.

        Raises:
            redis.exceptions.RedisError: Redis does not answer.
        """
        began = self._clock()
        if not self._client.set(self._key, self.token, nx=True, px=int(LIFE_S * 1000)):
            return False
        self._until = began + LIFE_S - MARGIN_S
        return True

    def renew(self) -> bool:
        """Renew the lease if still held, and return whether it is.

        If Redis does not answer, the lease is held until it expires.
        """
        began = self._clock()
        try:
            ours = self._client.eval(_RENEW, 1, self._key, self.token, int(LIFE_S * 1000))
        except RedisError:
            return self.held
        self._until = began + LIFE_S - MARGIN_S if ours else float("-inf")
        return bool(ours)

    def keep(self, lost: Callable[[], None]) -> None:
        """Renew the lease from a thread until `release`.

        Args:
            lost: Called once, in that thread, when the lease is lost.
        """

        def run() -> None:
            while not self._ended.wait(RENEW_S):
                if not self.renew():
                    lost()
                    return

        threading.Thread(target=run, name=f"lease {self._key}", daemon=True).start()

    def release(self) -> None:
        """Release the lease, if it is held."""
        self._ended.set()
        self._until = float("-inf")
        with contextlib.suppress(RedisError):  # then it expires
            self._client.eval(_RELEASE, 1, self._key, self.token)
