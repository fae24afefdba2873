"""Routing decision for a message that may be routed, as a pure function of what is known.

The order is the reference relay's (rmb-rs 1.5). A session that is connected here takes precedence
over everything, without a look-up. Otherwise the relays that the twin lists on chain decide. If a
fact is not known yet, the decision asks for it and is made again with the answer.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from proto.federation.domains import reachable
from proto.rmb.reasons import MessageReason


class Step(Enum):
    """Next step for a message."""

    QUEUE = "queue"  # add to the queue of its destination: delivered from there or from memory
    FEDERATE = "federate"  # send to another relay of the destination twin
    REFUSE = "refuse"  # refuse for the given reason
    LOOK_UP = "look_up"  # fetch the destination twin, then decide again
    ASK_PRESENCE = "ask_presence"  # ask whether another worker holds the session, then decide again


class Twin(NamedTuple):
    """Facts about a twin that routing needs."""

    relays: tuple[str, ...]
    banned: bool = False


class Facts(NamedTuple):
    """Facts about the destination of one message.

    Attributes:
        held_here: whether this worker holds the session.
        guest: whether another worker holds it although its twin does not list this relay.
        known: whether the twin was looked up.
        twin: the twin; None if there is no such twin (only when `known`).
        failed: whether the look-up failed, so that it is not known if the twin exists (only when
            `known`).
        fail_fast: whether the sender prefers an error to a wait for an absent session.
        present: whether another worker holds the session; None if not asked yet.
    """

    held_here: bool = False
    guest: bool = False
    known: bool = False
    twin: Twin | None = None
    failed: bool = False
    fail_fast: bool = False
    present: bool | None = None


class Route(NamedTuple):
    """The routing decision; only REFUSE has a `reason`."""

    step: Step
    reason: MessageReason | None = None


QUEUE: Final = Route(Step.QUEUE)
FEDERATE: Final = Route(Step.FEDERATE)
NOWHERE: Final = Route(Step.REFUSE, MessageReason.NO_USABLE_RELAY)
LOOK_UP: Final = Route(Step.LOOK_UP)
ASK_PRESENCE: Final = Route(Step.ASK_PRESENCE)


def route(facts: Facts, domains: frozenset[str]) -> Route:
    """Decide where one message goes.

    Args:
        facts: facts about its destination.
        domains: names under which twins list this relay, as returned by
            `proto.federation.domains.fold`. A free text is compared exactly, a host in every
            spelling.
    """
    if facts.held_here or facts.guest:
        return QUEUE
    if not facts.known:
        return LOOK_UP
    twin = facts.twin
    if twin is None:
        failed = MessageReason.LOOK_UP_FAILED
        return Route(Step.REFUSE, failed if facts.failed else MessageReason.UNKNOWN_TWIN)
    if twin.banned:
        return Route(Step.REFUSE, MessageReason.BANNED)
    if not twin.relays:
        return Route(Step.REFUSE, MessageReason.NO_RELAY)
    if domains.isdisjoint(twin.relays):
        return FEDERATE if reachable(twin.relays) else NOWHERE
    if not facts.fail_fast or facts.present:
        return QUEUE
    if facts.present is None:
        return ASK_PRESENCE
    return Route(Step.REFUSE, MessageReason.OFFLINE_FAILFAST)
