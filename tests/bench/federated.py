"""Two relays that federate, as one target: senders live on the first, receivers on the second.

Each has its own Valkey, database and Celery workers; all of them share the server cores. Odd twins
of a `pair_load` are the receivers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tests.bench import targets
from tests.bench.targets import RelayOptions, Target
from tests.support.redis_servers import free_port

TRUST = (
    "from relay.access.actor import SYSTEM; from relay.federation import services;"
    "services.trust({domain!r}, actor=SYSTEM)"
)
ENVIRONMENT = {
    "RMB_CELERY__EMBEDDED": "1",
    "RMB_FEDERATION__SCHEME": "http",
    "RMB_FEDERATION__ALLOW_PRIVATE": "1",
    # Both relays have one address.
    "RMB_FEDERATION__REQUESTS_PER_IP_PER_S": "0",
}


@dataclass(frozen=True)
class Domains:
    """Where the two relays listen, which is also what twins list."""

    first: int = field(default_factory=free_port)
    second: int = field(default_factory=free_port)

    def of(self, twin: int) -> int:
        """Port of the relay a twin lives on."""
        return self.second if twin % 2 else self.first

    def options(self, port: int, options: RelayOptions, *, trusting: bool) -> RelayOptions:
        """How the relay of a port is started; `trusting`, it believes the first one."""
        trust = TRUST.format(domain=domain(self.first))
        return replace(
            options,
            port=port,
            domain=domain(port),
            environment={**ENVIRONMENT, **options.environment},
            prepare=(("shell", "-c", trust),) if trusting else (),
        )

    def shared_out(self, port: int, twins: Sequence[int]) -> tuple[list[int], dict[int, str]]:
        """Twins of the relay of a port, and the relay of each other one."""
        own = [twin for twin in twins if self.of(twin) == port]
        others = {twin: domain(self.of(twin)) for twin in twins if self.of(twin) != port}
        return own, others


def domain(port: int) -> str:
    """What twins list of the relay that listens there."""
    return f"127.0.0.1:{port}"


@contextmanager
def first_relay(
    cores: frozenset[int], options: RelayOptions, domains: Domains, twins: Sequence[int]
) -> Iterator[Target]:
    """Run the relay of the senders; it knows all twins."""
    own, others = domains.shared_out(domains.first, twins)
    settled = domains.options(domains.first, options, trusting=False)
    with targets.relay(cores, settled, own, others) as target:
        yield target


@contextmanager
def second_relay(
    cores: frozenset[int],
    options: RelayOptions,
    domains: Domains,
    twins: Sequence[int],
    *,
    trusting: bool,
) -> Iterator[Target]:
    """Run the relay of the receivers; `trusting`, it checks no signature of the first."""
    own, others = domains.shared_out(domains.second, twins)
    settled = domains.options(domains.second, options, trusting=trusting)
    with targets.relay(cores, settled, own, others) as target:
        yield target


@dataclass
class Pair(Target):
    """Both relays at once; figures of one process are those of the first."""

    second: Target | None = None
    domains: Domains = field(default_factory=Domains)

    @property
    def roots(self) -> dict[str, int]:
        assert self.second is not None
        others = {f"second {name}": pid for name, pid in self.second.roots.items()}
        return {**super().roots, **others}

    def homes(self, twins: Sequence[int]) -> dict[str, set[int]]:
        assert self.second is not None
        there = {twin for twin in twins if self.domains.of(twin) == self.domains.second}
        return {self.url: set(twins) - there, self.second.url: there}


@contextmanager
def pair(
    cores: frozenset[int], options: RelayOptions, twins: Sequence[int], *, trusted: bool
) -> Iterator[Pair]:
    """Run both relays.

    Args:
        cores: where everything runs.
        options: of both.
        twins: even ones live on the first relay, odd ones on the second.
        trusted: the second believes the first, and checks no signature.
    """
    domains = Domains()
    with (
        first_relay(cores, options, domains, twins) as first,
        second_relay(cores, options, domains, twins, trusting=trusted) as second,
    ):
        yield Pair(
            *(first.name, first.url, first.process, first.log, first.redis),
            second=second,
            domains=domains,
        )


def environment(**settings: str) -> Mapping[str, str]:
    """Settings of the section `federation`."""
    return {f"RMB_FEDERATION__{name.upper()}": value for name, value in settings.items()}
