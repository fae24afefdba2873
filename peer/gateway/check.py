"""`rmb-peer --check`: test one by one everything that the gateway depends on.

Nothing is changed: the twin on the chain is only compared, relays are joined under another session
id, no queue is touched. So the check can run beside a working gateway.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Final, Literal, NamedTuple

from redis.asyncio import Redis
from redis.exceptions import RedisError

from peer.arguments import FAILED, UsageError
from peer.errors import PeerError, RelayError
from peer.gateway import startup
from peer.gateway.options import Options
from peer.gateway.parts import load_modules, open_twins
from peer.identity import Identity
from peer.link import Link
from peer.links import MakeLink
from peer.reach import reach
from peer.twins import Twin, TwinSource
from proto.identity import ss58

REDIS_TIMEOUT_S: Final = 5.0
OLDEST_REDIS: Final = (6, 2)

Verdict = Literal["ok", "note", "FAIL"]


class Finding(NamedTuple):
    """Result of one test."""

    name: str
    verdict: Verdict
    """Outcome; a note does not keep the gateway from working."""
    text: str


async def run(options: Options) -> int:
    """Run all tests and print the results; return the exit code."""
    identity = options.identity
    assert identity is not None, "the options of a check have one"
    findings = []
    async for finding in tried(options, identity):
        findings.append(finding)
        if not options.json:
            print(f"{finding.name:<8} {finding.verdict:<5} {finding.text}", flush=True)
    if options.json:
        print(json.dumps([finding._asdict() for finding in findings], indent=2))
    return FAILED if any(finding.verdict == "FAIL" for finding in findings) else 0


async def tried(
    options: Options,
    identity: Identity,
    source: TwinSource | None = None,
    make_link: MakeLink = Link,
) -> AsyncIterator[Finding]:
    """Test in order everything that a gateway depends on.

    Args:
        options: options of the gateway.
        identity: keys of the gateway.
        source: source of twins, if the caller has opened one.
        make_link: factory of links to relays; by default each has a websocket of its own.
    """
    kind = identity.key.key_type.name.lower()
    address = ss58.encode(identity.account)
    yield Finding("keys", "ok", f"{kind} account {address}, pk 0x{identity.pk.hex()}")
    twin: Twin | None = None
    try:
        twin = await _own_twin(options, identity, source)
        relays = " ".join(twin.relays) or "none"
        yield Finding("twin", "ok", f"{twin.id} with relays {relays}, from {_place(options)}")
    except (PeerError, UsageError) as error:
        yield Finding("twin", "FAIL", str(error))
    if twin is not None:
        for finding in _listed(twin, identity, options):
            yield finding
        tries = [_relay(url, identity, twin, make_link) for url in options.relays]
        for finding in await asyncio.gather(*tries):
            yield finding
    else:
        yield Finding("relay", "FAIL", "not tried: a session token needs the id of the twin")
    yield await _redis(options.redis_url)
    yield _modules(options)


async def _own_twin(options: Options, identity: Identity, source: TwinSource | None) -> Twin:
    if source is not None:
        return await startup.own_twin(identity, source)
    source = open_twins(options)
    try:
        return await startup.own_twin(identity, source)
    finally:
        await source.aclose()


def _place(options: Options) -> str:
    return options.twins or f"the chain ({' '.join(options.substrate)})"


def _listed(twin: Twin, identity: Identity, options: Options) -> list[Finding]:
    wrong = startup.differences(twin, identity, options.domains)
    if not wrong:
        return [Finding("listed", "ok", "relays and pk are those of this gateway")]
    then = (
        "the gateway corrects this when it starts"
        if options.update
        else "other twins may not reach this gateway"
    )
    return [Finding("listed", "note", f"{difference}: {then}") for difference in wrong]


async def _relay(url: str, identity: Identity, twin: Twin, make_link: MakeLink = Link) -> Finding:
    try:
        reached = await reach(url, identity, twin.id, make_link=make_link)
    except RelayError as error:
        return Finding("relay", "FAIL", str(error))
    times = f"signed in after {reached.sign_in_ms:.0f} ms, pong after {reached.pong_ms:.1f} ms"
    if reached.clock:
        return Finding("relay", "note", f"{url}: {times}; {reached.clock}")
    return Finding("relay", "ok", f"{url}: {times}")


async def _redis(url: str) -> Finding:
    client = Redis.from_url(url, socket_timeout=REDIS_TIMEOUT_S, retry=None, protocol=2)
    try:
        server = await client.info("server")
        memory = await client.info("memory")
    except (RedisError, OSError, ValueError) as error:
        # The URL may contain a password; the error names host and port only.
        return Finding("redis", "FAIL", str(error))
    finally:
        await client.aclose()
    version = str(server.get("valkey_version") or server["redis_version"])
    name = "Valkey" if "valkey_version" in server else "Redis"
    if tuple(map(int, version.split(".")[:2])) < OLDEST_REDIS:
        return Finding("redis", "FAIL", f"{name} {version} is older than 6.2")
    policy = memory.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        return Finding("redis", "note", f"{name} {version} may drop queues: it evicts ({policy})")
    return Finding("redis", "ok", f"{name} {version}")


def _modules(options: Options) -> Finding:
    try:
        loaded = load_modules(options)
    except UsageError as error:
        return Finding("modules", "FAIL", str(error))
    uploads = f"uploads go to {options.uploads}" if options.uploads else "uploads are refused"
    names = " ".join(f"{module.prefix}.*" for module in loaded) or "none"
    return Finding("modules", "ok", f"{names}; {uploads}")
