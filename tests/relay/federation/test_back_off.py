"""The back-off of a relay that failed.

It applies to all drainers, whichever saw the failure, until the relay is heard.
"""

from __future__ import annotations

import time

from relay.queues import keys
from tests.relay.federation.conftest import Outgoing
from tests.support.partner_server import partner
from tests.support.waiting import eventually


def failed(out: Outgoing, domain: str, retry_in_s: float) -> float:
    """Store the state of a relay that failed just now, and return when it may be retried."""
    now = time.time()
    state = {"failures": 5, "retry_at": now + retry_in_s, "last_failure": now}
    out.client.hset(keys.partner(domain), mapping=state)
    return now + retry_in_s


async def test_it_survives_a_restart(out: Outgoing) -> None:
    async with partner() as other:
        twin = out.twin(8, other.domain)
        retry_at = failed(out, other.domain, 1.5)
        out.put(twin)
        await out.start(0)
        await eventually(lambda: len(other.taken) == 1)
        assert time.time() >= retry_at
        await eventually(lambda: "retry_at" not in out.partner(other.domain))


async def test_it_ends_when_the_relay_is_heard(out: Outgoing) -> None:
    async with partner() as silent, partner() as other:
        failed(out, other.domain, 600)
        failed(out, silent.domain, 600)
        for number, domain in ((8, other.domain), (16, silent.domain)):
            out.put(out.twin(number, domain))
        await out.start(0)
        await eventually(lambda: not out.sender.partners.get(other.domain).open)
        out.client.hset(keys.partner(other.domain), "heard", f"{time.time():.3f}")
        await eventually(lambda: len(other.taken) == 1)
        await eventually(lambda: "retry_at" not in out.partner(other.domain))
        assert "failures" in out.partner(silent.domain)
        assert not silent.requests


async def test_what_was_heard_before_the_failure_does_not_end_it(out: Outgoing) -> None:
    async with partner() as other:
        out.client.hset(keys.partner(other.domain), "heard", f"{time.time() - 1:.3f}")
        retry_at = failed(out, other.domain, 1.5)
        out.put(out.twin(8, other.domain))
        await out.start(0)
        await eventually(lambda: len(other.taken) == 1)
        assert time.time() >= retry_at


async def test_a_clock_that_is_set_back_puts_nobody_off(out: Outgoing) -> None:
    async with partner() as other:
        twin = out.twin(8, other.domain)
        await out.start(0)
        put_off = out.sender.partners.get(other.domain)
        put_off.put_off_until = time.time() + 7200  # set before the clock was set back
        out.put(twin)
        await eventually(lambda: len(other.taken) == 1)
