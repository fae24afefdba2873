"""Health of a lattice's providers, and whether NATS has JetStream: both checked every half minute.

Hosts check their providers too, but they publish changes only, and know nothing of providers that
run without a host.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

import nats.errors

from lattice.connection import LatticeConnection
from lattice.errors import (
    CallTimeoutError,
    ConnectionLostError,
    LatticeError,
    NoRespondersError,
    NotConnectedError,
)
from lattice.texts import cut, said
from proto.lattice.messages import decode_health
from proto.lattice.subjects import SubjectKind, provider_subject

ASK_EVERY_S: Final = 30.0
LOOK_S: Final = 1.0
"""Seconds between two passes; a new provider is first asked at the next one."""
ANSWER_S: Final = 2.0
AT_ONCE: Final = 32
MAX_TEXT_CHARS: Final = 200

Provider = tuple[str, str]
"""Public key and link name of a provider."""


class Condition(NamedTuple):
    """Health of a provider.

    Attributes:
        health: `passed`, `failed`, or empty if unknown.
        text: what is wrong.
    """

    health: str = ""
    text: str = ""


UNKNOWN: Final = Condition()


class Health:
    """Asks providers for their health, at most `AT_ONCE` at a time.

    Attributes:
        jetstream: reason why JetStream cannot be used; empty: it can; None: unknown.
    """

    def __init__(self, connection: LatticeConnection) -> None:
        self.jetstream: str | None = None
        self._connection = connection
        self._known: dict[Provider, Condition] = {}
        self._asked_s: dict[Provider, float] = {}
        self._looked_s = -ASK_EVERY_S

    def of(self, provider: str, link_name: str) -> Condition:
        """Return the last known health of a provider."""
        return self._known.get((provider, link_name), UNKNOWN)

    async def keep(self, providers: Callable[[], Collection[Provider]]) -> None:
        """Keep asking the providers that the function returns, until cancelled."""
        while True:
            await self.ask(providers())
            if time.monotonic() - self._looked_s >= ASK_EVERY_S:
                self.jetstream = await self._jetstream()
                self._looked_s = time.monotonic()
            await asyncio.sleep(LOOK_S)

    async def ask(self, providers: Collection[Provider]) -> None:
        """Ask the providers whose health is unknown or out of date, and forget those not given."""
        there = set(providers)
        for gone in self._asked_s.keys() - there:
            del self._asked_s[gone]
            self._known.pop(gone, None)
        now_s = time.monotonic()
        due = [each for each in there if now_s - self._asked_s.get(each, -1e9) >= ASK_EVERY_S]
        due.sort(key=lambda each: self._asked_s.get(each, 0.0))
        asked = due[:AT_ONCE]
        self._asked_s.update(dict.fromkeys(asked, now_s))
        found = await asyncio.gather(*(self._ask(*each) for each in asked))
        self._known.update(zip(asked, found, strict=True))

    async def _ask(self, provider: str, link_name: str) -> Condition:
        lattice = self._connection.options.lattice
        try:
            subject = provider_subject(lattice, provider, link_name, SubjectKind.HEALTH)
            answer = decode_health(await self._connection.request(subject, b"", ANSWER_S))
        except (NotConnectedError, ConnectionLostError):
            return UNKNOWN
        except NoRespondersError:
            return Condition("failed", "it does not run")
        except CallTimeoutError:
            return Condition("failed", f"no answer within {ANSWER_S:g} s")
        except LatticeError as error:
            return Condition("failed", cut(str(error), MAX_TEXT_CHARS))
        if answer.healthy:
            return Condition("passed")
        return Condition("failed", cut(answer.message or "unhealthy", MAX_TEXT_CHARS))

    async def _jetstream(self) -> str | None:
        try:
            await (await self._connection.jetstream()).account_info()
        except NotConnectedError:
            return None
        except (nats.errors.Error, ValueError, KeyError, TypeError) as error:
            return cut(said(error), MAX_TEXT_CHARS)
        return ""
