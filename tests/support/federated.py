"""Relays that federate on loopback: their processes, and the twins that list them.

Domains are `127.0.0.1:<port>`, so the ports are chosen first, once for the run, and every relay's
database knows the same twins: some of each relay, of each place for a fake partner, and of lists of
several relays. Each relay has its own Redis and its own Celery workers.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from relay.federation import outbox
from relay.queues import keys
from relay.queues.held import unpack
from tests.support.children import children
from tests.support.envelopes import SessionKey
from tests.support.federation_client import decide
from tests.support.identities import Twin, twin, twins_csv
from tests.support.load import Load, load
from tests.support.redis_servers import RedisServer, hold_port
from tests.support.relay_process import RelayProcess, make_data_folder
from tests.support.rmb_client import RmbClient
from tests.support.waiting import eventually, wait_until

FIRST_TWIN = 5001
TWINS_EACH = 120
"""Number of twins of each relay and list; each test uses fresh ones."""
RELAYS = ("a", "b", "c")
"""Names of the relays that the tests share."""
PUBLIC_ONLY = "d"
"""Name of a relay that sends to public addresses only."""
PARTNERS = 40
"""Number of places for fake partners; each test uses fresh ones."""
PARTNER_TRIOS = 3
"""Number of lists of three such places each."""


class World:
    """Ports of all relays and partners, and the twins that list them.

    Attributes:
        template: data folder with the database, copied for each relay.
        nowhere: a domain where no server listens; some twins list it beside that of relay b.
        hostile_port: port in the names of `hostile_domains`.
        ports: port of each relay by name; `proxy` is another domain of relay b.
    """

    def __init__(self, folder: Path) -> None:
        names = (*RELAYS, PUBLIC_ONLY, "proxy")
        count = len(names) + PARTNERS + 3 * PARTNER_TRIOS + 2
        self._held = {each.getsockname()[1]: each for each in (hold_port() for _ in range(count))}
        ports = iter(list(self._held))
        self.ports = dict(zip(names, ports, strict=False))
        self._release(self.ports.values())
        partners = list(islice(ports, PARTNERS))
        trios = [tuple(islice(ports, 3)) for _ in range(PARTNER_TRIOS)]
        (self.hostile_port,) = self._release([next(ports)])
        self.nowhere = f"127.0.0.1:{next(ports)}"
        self._partner_ports = iter(partners)
        self._partner_trios = iter(trios)
        self._numbers = iter(range(FIRST_TWIN, 1 << 31))
        self._twins: dict[str, list[Twin]] = {}
        self._taken: dict[str, Iterator[Twin]] = {}
        for name in names:
            self._add(self.domain(name), TWINS_EACH)
        self._add("_".join((self.domain("b"), self.domain("c"))), TWINS_EACH)
        self._add("_".join((self.nowhere, self.domain("b"))), 4)
        for relays in ([port] for port in partners):
            self._add(join_places(relays), 20)
        for relays in trios:
            self._add(join_places(relays), 4)
        for relays in self.hostile_domains():
            self._add(relays, 1)
        text = twins_csv(each for twins in self._twins.values() for each in twins)
        self.template = make_data_folder(folder, text)

    def close(self) -> None:
        """Release the ports that no test used."""
        self._release(list(self._held))

    def domain(self, name: str) -> str:
        """Return the domain that twins of a relay list."""
        return f"127.0.0.1:{self.ports[name]}"

    def partner_ports(self, count: int = 1) -> list[int]:
        """Return ports for fake partners that no other test used."""
        return self._release(list(islice(self._partner_ports, count)))

    def partner_trio_ports(self) -> tuple[int, ...]:
        """Return three such ports; some twins list all of them."""
        return tuple(self._release(next(self._partner_trios)))

    def _release(self, ports: Iterable[int]) -> list[int]:
        """Release these ports, so that servers can listen on them."""
        released = list(ports)
        for port in released:
            self._held.pop(port).close()
        return released

    def hostile_domains(self) -> list[str]:
        """Return names of relays that lead to the relay's own network."""
        return [domain.replace("PORT", str(self.hostile_port)) for domain in HOSTILE]

    def twins(self, relays: str, count: int) -> list[Twin]:
        """Return fresh twins of a relay (by name) or of a list of domains."""
        listed = "_".join(
            self.domain(each) if each in self.ports else each for each in relays.split("_")
        )
        rest = self._taken.setdefault(listed, iter(self._twins[listed]))
        found = list(islice(rest, count))
        assert len(found) == count, f"no more twins of {relays}"
        return found

    def _add(self, relays: str, count: int) -> None:
        self._twins[relays] = [twin(number, relays) for number in islice(self._numbers, count)]


HOSTILE = (
    "127.0.0.1:PORT",
    "127.1:PORT",
    "2130706433:PORT",
    "0x7f000001:PORT",
    "0.0.0.0:PORT",
    "localhost:PORT",
    "[::1]:PORT",
    "[::ffff:127.0.0.1]:PORT",
    "[::]:PORT",
    "169.254.169.254:PORT",
    "[fe80::1]:PORT",
    "user@127.0.0.1:PORT",
    "127.0.0.1:PORT/x?",
)


def join_places(ports: Iterable[int]) -> str:
    """Return the list of relays on these ports, in the form that twins have."""
    return "_".join(f"127.0.0.1:{port}" for port in ports)


class FederatedRelay(RelayProcess):
    """One relay with its Celery workers and its own Redis."""

    def __init__(
        self, world: World, name: str, folder: Path, server: RedisServer, **options: Any
    ) -> None:
        settings = {
            "celery.embedded": "1",
            "federation.scheme": "http",
            "federation.allow_private": "1",
            # All relays of the tests have the same address.
            "federation.requests_per_ip_per_s": "0",
            **options.pop("settings", {}),
        }
        domains = (world.domain(name), *((world.domain("proxy"),) if name == "b" else ()))
        super().__init__(
            folder,
            world.template,
            server,
            port=world.ports[name],
            **{"domains": domains, "settings": settings, **options},
        )
        self.domain = world.domain(name)

    async def kill_celery(self, queues: str) -> None:
        """Kill (SIGKILL) the Celery worker of these queues; the relay starts another one."""
        (worker,) = await eventually(lambda: children(queues, of=self.pid))
        worker.kill()

    def wait_federating(self, timeout_s: float = 60.0) -> None:
        """Wait until a Celery worker takes tasks of federation."""
        wait_until(
            lambda: self.store.run("EXISTS", "relay:background:federation"),
            timeout_s,
            lambda: f"no Celery worker:\n{self.log()}",
        )

    @property
    def store(self) -> RedisServer:
        """Redis of this relay."""
        assert self.redis is not None
        return self.redis

    @property
    def alive(self) -> bool:
        """Whether its supervisor runs."""
        return self._process is not None and self._process.poll() is None

    def ask_to_stop(self) -> None:
        """Begin a graceful stop."""
        os.kill(self.pid, signal.SIGTERM)

    def held_for(self, domain: str) -> int:
        """Return the number of messages in its outbox for twins that list this relay alone."""
        packed = self.store.run("HGET", keys.held(outbox.account_of([domain])), outbox.TOTAL)
        return unpack(int(packed or 0)).messages

    def partner_state(self, domain: str) -> dict[str, str]:
        """Return what it has stored about a partner relay."""
        fields = self.store.client().hgetall(keys.partner(domain))
        return {name.decode(): value.decode() for name, value in fields.items()}

    def decide(self, domain: str, flags: str) -> None:
        """Set an operator's decision about a partner relay: `paused`, `trusted`, or none."""
        decide(self.store, domain, flags)

    async def noticed(self, client: RmbClient, there: SessionKey, domain: str) -> None:
        """Wait until the drainers know earlier decisions.

        They check once a second, after they have written what they counted: when the second of two
        messages to another relay is counted, they have checked since the first one was.

        Args:
            client: a session of this relay.
            there: a session of a twin that lists `domain`.
            domain: domain of a relay that no decision affects.
        """

        def taken() -> int:
            return int(self.store.run("HGET", keys.FEDERATION_COUNTERS, f"success|{domain}") or 0)

        for _ in range(2):
            before = taken()
            await client.request(there, b"are you there?")
            await eventually(lambda before=before: taken() > before)

    def reset_partners(self) -> None:
        """End every back-off and forget failures, as the operator's action does."""
        with contextlib.closing(self.store.client()) as client:
            for name in client.keys(keys.partner("*")):
                client.hdel(name, "retry_at", "failures")
            for name in client.keys(keys.failures("*")):
                client.delete(name)
            client.hincrby(keys.CONTROL, "version", 1)


@contextlib.asynccontextmanager
async def crossing(
    world: World, sending: FederatedRelay, receiving: FederatedRelay, pairs: int = 6
) -> AsyncIterator[Load]:
    """Run twins of one relay that send to twins of another during the block."""
    async with load(sending.url) as work:
        work.signed = True
        senders = world.twins(sending.domain, pairs)
        receivers = world.twins(receiving.domain, pairs)
        for sender, receiver in zip(senders, receivers, strict=True):
            work.add_sender(sender, [work.add_receiver(receiver, url=receiving.url)])
        await work.run_until(200)
        yield work
