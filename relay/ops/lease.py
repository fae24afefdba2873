"""A lease: at most one process does a piece of work, and another may begin when it is silent.

The holder writes a token of its own into a key that lives for seconds, and renews it. Who was
stopped, killed or cut off from Redis does not renew; the key ends, and the next one takes it. The
holder counts from before each renewal by its own clock, and gives up earlier than Redis does.

Who starts a process anew can name it and its predecessors alike (`be`): the successor of one that
was killed need not wait for its leases then, as nobody else's tokens begin with that name.
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
"""Before its end the lease counts as gone: clocks of two hosts do not run alike."""

_RENEW: Final = (Path(__file__).parent / "lua" / "lease_renew.lua").read_text()
_RELEASE: Final = (Path(__file__).parent / "lua" / "lease_release.lua").read_text()
_FREE: Final = (Path(__file__).parent / "lua" / "lease_free.lua").read_text()

_SEPARATOR: Final = "/"
_holder = ""


def be(holder: str) -> None:
    """Say who takes leases in this process; nobody else may live who says the same."""
    global _holder
    _holder = holder


def new_token() -> str:
    """A token that nobody else has."""
    return f"{_holder}{_SEPARATOR}{secrets.token_hex(8)}"


def free_former(client: Redis, leases: Iterable[str]) -> int:
    """Free what this process's predecessor held; call it before any lease is taken.

    Returns:
        How many of the leases were.

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
        token: what stands in the key while it is ours.
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
        """Whether it is ours, as far as we can know without asking."""
        return self._clock() < self._until

    def take(self) -> bool:
        """Take it if nobody has it.

        Raises:
            redis.exceptions.RedisError: Redis does not answer.
        """
        began = self._clock()
        if not self._client.set(self._key, self.token, nx=True, px=int(LIFE_S * 1000)):
            return False
        self._until = began + LIFE_S - MARGIN_S
        return True

    def renew(self) -> bool:
        """Prolong it if it is still ours; without an answer of Redis it goes on to its end."""
        began = self._clock()
        try:
            ours = self._client.eval(_RENEW, 1, self._key, self.token, int(LIFE_S * 1000))
        except RedisError:
            return self.held
        self._until = began + LIFE_S - MARGIN_S if ours else float("-inf")
        return bool(ours)

    def keep(self, lost: Callable[[], None]) -> None:
        """Renew it from a thread until `release`.

        Args:
            lost: called once, in that thread, when it is no longer ours.
        """

        def run() -> None:
            while not self._ended.wait(RENEW_S):
                if not self.renew():
                    lost()
                    return

        threading.Thread(target=run, name=f"lease {self._key}", daemon=True).start()

    def release(self) -> None:
        """Give it back, if it is ours."""
        self._ended.set()
        self._until = float("-inf")
        with contextlib.suppress(RedisError):  # then it ends by itself
            self._client.eval(_RELEASE, 1, self._key, self.token)
