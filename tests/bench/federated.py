"""Two federated relays as one target: the senders use the first relay, the receivers the second.

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
    # Both relays have the same address.
    "RMB_FEDERATION__REQUESTS_PER_IP_PER_S": "0",
}


@dataclass(frozen=True)
class Domains:
    """Ports on which the two relays listen; twins list the host name and the port of theirs."""

    first: int = field(default_factory=free_port)
    second: int = field(default_factory=free_port)

    def of(self, twin: int) -> int:
        """Return the port of the relay that a twin uses."""
        return self.second if twin % 2 else self.first

    def options(self, port: int, options: RelayOptions, *, trusting: bool) -> RelayOptions:
        """Return how the relay on a port is started; with `trusting`, it trusts the first relay."""
        trust = TRUST.format(domain=domain(self.first))
        return replace(
            options,
            port=port,
            domain=domain(port),
            environment={**ENVIRONMENT, **options.environment},
            prepare=(("shell", "-c", trust),) if trusting else (),
        )

    def shared_out(self, port: int, twins: Sequence[int]) -> tuple[list[int], dict[int, str]]:
        """Return the twins of the relay on a port, and the relay of each of the other twins."""
        own = [twin for twin in twins if self.of(twin) == port]
        others = {twin: domain(self.of(twin)) for twin in twins if self.of(twin) != port}
        return own, others


def domain(port: int) -> str:
    """Return the name under which twins list the relay on this port."""
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
    """Run the relay of the receivers; with `trusting`, it checks no signatures of the first."""
    own, others = domains.shared_out(domains.second, twins)
    settled = domains.options(domains.second, options, trusting=trusting)
    with targets.relay(cores, settled, own, others) as target:
        yield target


@dataclass
class Pair(Target):
    """Both relays as one target; figures of a single process are those of the first relay."""

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
        cores: cores on which everything runs.
        options: options of both.
        twins: even ones use the first relay, odd ones the second.
        trusted: whether the second relay trusts the first, and does not check signatures.
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
    """Return the environment variables for settings of the section `federation`."""
    return {f"RMB_FEDERATION__{name.upper()}": value for name, value in settings.items()}
