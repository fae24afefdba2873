"""Where a message goes once it may be routed at all: a pure function of what is known.

The order is the reference relay's (rmb-rs 1.5): a session that is connected here wins over
everything, without a look-up; then the twin decides, by the relays it names on chain. A fact that
is not known yet is asked for, and the decision is made again with the answer.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from proto.federation.domains import reachable
from proto.rmb.reasons import MessageReason


class Step(Enum):
    """What to do with a message next."""

    QUEUE = "queue"  # into the stream of its destination: delivered from there or from memory
    FEDERATE = "federate"  # to another relay of the destination twin
    REFUSE = "refuse"  # it ends here; the reason says why
    LOOK_UP = "look_up"  # fetch the destination twin, then decide again
    ASK_PRESENCE = "ask_presence"  # ask whether another worker holds the session, then again


class Twin(NamedTuple):
    """What routing needs to know of a twin."""

    relays: tuple[str, ...]
    banned: bool = False


class Facts(NamedTuple):
    """What is known about one message's destination.

    Attributes:
        held_here: this worker holds the session.
        guest: another worker holds it although its twin does not list this relay.
        known: the twin was looked up.
        twin: None: there is no such twin (only when `known`).
        failed: nobody can say now whether there is (only when `known`).
        fail_fast: the sender would rather have an error than wait for an absent session.
        present: whether another worker holds the session; None: not asked yet.
    """

    held_here: bool = False
    guest: bool = False
    known: bool = False
    twin: Twin | None = None
    failed: bool = False
    fail_fast: bool = False
    present: bool | None = None


class Route(NamedTuple):
    """The decision; `reason` belongs to REFUSE."""

    step: Step
    reason: MessageReason | None = None


QUEUE: Final = Route(Step.QUEUE)
FEDERATE: Final = Route(Step.FEDERATE)
NOWHERE: Final = Route(Step.REFUSE, MessageReason.NO_USABLE_RELAY)
LOOK_UP: Final = Route(Step.LOOK_UP)
ASK_PRESENCE: Final = Route(Step.ASK_PRESENCE)


def route(facts: Facts, domains: frozenset[str]) -> Route:
    """Decides where one message goes.

    Args:
        facts: what is known of its destination.
        domains: the names under which twins list this relay, as `proto.federation.domains.fold`
            gives them: of free text, compared exactly, and of every spelling of a host.
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
