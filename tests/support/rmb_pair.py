"""A relay of `RelaySide`s and any number of `PeerSide`s that communicate in memory.

The relay here is as small as possible: a queue per session, delivered at once when the session is
joined. It keeps no promise beyond the protocol's own, but peers cannot distinguish it from a real
one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from random import Random

from proto.limits.window import Excess
from proto.rmb import events
from proto.rmb.machine import PeerSide, RelaySide
from proto.rmb.routing import Facts, Step, Twin
from proto.rmb.sealing import PeerTwin
from tests.support.identities import TEST_DOMAIN, twin

SessionKey = tuple[int, str | None]

NOW = 1_795_218_450
MAX_ROUNDS = 1000  # bound of `roundtrip`: an endless exchange fails instead of hanging


class MemoryRelay:
    """Sessions, their queues, and their events.

    Args:
        relays: relays that each twin lists; a number that is missing is not a twin.
        admit: the limit, the same for every session.
    """

    def __init__(
        self,
        relays: dict[int, tuple[str, ...]],
        admit: Callable[[int, float], Excess | None] | None = None,
    ) -> None:
        self.relays = relays
        self.sessions: dict[SessionKey, tuple[PeerSide, RelaySide]] = {}
        self.queues: dict[SessionKey, list[bytes]] = defaultdict(list)
        self.federated: list[bytes] = []
        self.events: list[events.RelayEvent] = []
        self._admit = admit

    def join(self, peer: PeerSide) -> RelaySide:
        """Connect a peer; it replaces an earlier connection of the same session."""
        side = RelaySide(peer.own, frozenset({TEST_DOMAIN}), self._facts, self._admit)
        self.sessions[peer.own] = (peer, side)
        return side

    def leave(self, peer: PeerSide) -> None:
        """Disconnect a peer."""
        del self.sessions[peer.own]

    def exchange(self, now: int) -> bool:
        """Carry waiting data one step further; return whether there was any."""
        moved = False
        for key, (peer, side) in list(self.sessions.items()):
            for data in peer.data_to_send():
                moved = True
                side.receive_data(data, now)
            while (event := side.next_event()) is not None:
                moved = True
                self._act(event)
            for data in self.queues.pop(key, []):
                side.deliver(data)
            for data in side.data_to_send():
                moved = True
                peer.receive_data(data, now)
        return moved

    def _act(self, event: events.RelayEvent) -> None:
        self.events.append(event)
        if isinstance(event, events.EnvelopeAccepted):
            if event.step is Step.QUEUE:
                self.queues[event.destination].append(event.data)
            else:
                assert event.step is Step.FEDERATE, event
                self.federated.append(event.data)

    def _facts(self, key: SessionKey) -> Facts:
        names = self.relays.get(key[0])
        held = key in self.sessions
        known = Twin(names) if names is not None else None
        return Facts(held_here=held, known=True, twin=known, present=held)


def roundtrip(relay: MemoryRelay, now: int = NOW) -> None:
    """Exchange messages until no side has anything more to send."""
    for _ in range(MAX_ROUNDS):
        if not relay.exchange(now):
            return
    raise AssertionError(f"still talking after {MAX_ROUNDS} rounds")


def make_peer(
    number: int,
    connection: str | None = None,
    *,
    sealed: bool = True,
    look_up: Callable[[int], PeerTwin | None] | None = None,
    seed: int = 0,
) -> PeerSide:
    """Make a peer of test twin `number`; TEST KEYS. Unless `sealed`, it has no encryption key."""
    identity = twin(number)
    return PeerSide(
        (number, connection),
        identity.signing_key,
        identity.encryption_key if sealed else None,
        look_up or known_twin,
        Random(f"{number} {connection} {seed}").randbytes,
    )


def known_twin(number: int) -> PeerTwin | None:
    """Look up a twin: 1 to 99 exist; those from 50 on have no public key."""
    if not 1 <= number <= 99:
        return None
    identity = twin(number)
    return PeerTwin(identity.account, identity.encryption_key.public if number < 50 else None)


def drain(peer: PeerSide) -> list[events.PeerEvent]:
    """Return all events of a peer so far."""
    drained = []
    while (event := peer.next_event()) is not None:
        drained.append(event)
    return drained
