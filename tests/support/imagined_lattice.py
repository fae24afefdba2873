"""A lattice for screenshots: plausible reports of its processes for an hour, written by `write`."""

from __future__ import annotations

import math
import time

from proto.lattice import state
from proto.lattice.nkeys import KeyKind, KeyPair
from proto.lattice.state import ActorRow, CallField, HostRow, LinkRow, ProviderRow, Seen
from tests.support.lattice_state import find, report, saw
from tests.support.redis_servers import RedisServer

VERSION = "0.82.0"
MINUTES = range(-60, 15)
BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500)


def _keys(kind: KeyKind, count: int) -> list[str]:
    return [KeyPair.of_random(kind, bytes([number]) * 32).public  # TEST KEYS
            for number in range(1, count + 1)]  # fmt: skip


HOSTS = dict(zip(_keys(KeyKind.HOST, 3), ("quiet-tree-4117", "autumn-river-0032",
                                          "patient-moon-9210"), strict=True))  # fmt: skip
(CLUSTER,) = _keys(KeyKind.CLUSTER, 1)
METERS, TARIFFS, INVOICES, WEATHER, DEPLOYER = ACTORS = _keys(KeyKind.ACTOR, 5)
NAMES = ("meter-gateway", "tariff-lookup", "invoice-renderer", "weather", "deployer")
STORE, WEB, BRIDGE = _keys(KeyKind.PROVIDER, 3)
CONTRACTS = {
    STORE: ("Redis store", "wasmcloud:keyvalue"), WEB: ("HTTP server", "wasmcloud:httpserver"),
}  # fmt: skip
# Direction, entity, contract, operation, calls a minute, mean latency in ms, share of failures.
CALLS = (
    ("to_lattice", METERS, "", "Meters.Read", 840, 2.8, 0.0),
    ("to_lattice", TARIFFS, "", "Tariffs.Lookup", 310, 14.0, 0.002),
    ("to_lattice", STORE, "wasmcloud:keyvalue", "KeyValue.Get", 265, 1.4, 0.0),
    ("to_twin", DEPLOYER, "", "Twin.Call", 96, 21.0, 0.01),
    ("to_lattice", INVOICES, "", "Invoices.Render", 44, 180.0, 0.05),
    ("to_lattice", WEATHER, "", "Weather.Forecast", 18, 7.5, 0.0),
    ("to_twin", METERS, "", "Twin.Send", 12, 3.1, 0.0),
    ("to_lattice", "(others)", "", "(others)", 3, 0.2, 1.0),
)  # fmt: skip


def write(server: RedisServer) -> None:
    """Write hosts, actors, providers, links, calls, findings and processes."""
    now = time.time()
    hosts = list(HOSTS)
    saw(server, Seen.HOSTS, *(
        HostRow(key, name, CLUSTER, VERSION, 86_400 * number + 5000, {}, 2, 1, now)
        for number, (key, name) in enumerate(HOSTS.items(), 1)
    ))  # fmt: skip
    saw(server, Seen.ACTORS, *(
        ActorRow(key, name, hosts[number % 3], f"registry.example.com/{name}:1.{number}.0",
                 10 * number + 5, number, now)
        for number, (key, name) in enumerate(zip(ACTORS, NAMES, strict=True))
    ))  # fmt: skip
    saw(server, Seen.PROVIDERS, *(
        ProviderRow(key, name, hosts[0], "default", contract, health="passed", seen_at=now)
        for key, (name, contract) in CONTRACTS.items()
    ))  # fmt: skip
    saw(server, Seen.LINKS, *(
        LinkRow(actor, STORE, "default", "wasmcloud:keyvalue", {"URL": ""}, now) for actor in ACTORS
    ))  # fmt: skip
    minute = int(now // 60)
    for number, call in enumerate(CALLS):
        for each in MINUTES:
            tide = 1 + 0.2 * math.sin(each / 9 + number)
            _count(server, minute + each, call, tide)
    find(server, "replay", origin=f"wasmbus://{METERS}", target=f"wasmbus://{TARIFFS}",
         operation="Tariffs.Lookup", text="the same token was seen before")  # fmt: skip
    report(server, "bridge", provider=BRIDGE, twin=8080, running=3)
    report(server, "monitor", seen=95_210, unjudged=0)


def _count(
    server: RedisServer,
    minute: int,
    call: tuple[str, str, str, str, int, float, float],
    tide: float,
) -> None:
    *key, a_minute, mean_ms, failing = call
    calls = round(a_minute * tide)
    failed = round(calls * failing)
    slow = round(calls * 0.02)
    own = next(bound for bound in BOUNDS_MS if bound >= mean_ms)
    late = BOUNDS_MS[min(BOUNDS_MS.index(own) + 1, len(BOUNDS_MS) - 1)]
    told = {"ok": calls - failed, "ms": calls * mean_ms, f"<{own}": calls - slow, f"<{late}": slow}
    if failed:
        told["remote_error"] = failed
    fields = [part for what, count in told.items()
              for part in (CallField(*map(str, key), what).encode(), count)]  # fmt: skip
    server.run("HSET", state.calls_key(minute), *fields)
