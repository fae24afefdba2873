"""Partner relays as pages show them: their states, and the decisions about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from django.http import HttpRequest
from django.urls import reverse

from relay.access.actor import Actor
from relay.dashboard.acts import Question
from relay.dashboard.pages import may
from relay.dashboard.states import State, Tone
from relay.dashboard.tables import Action
from relay.federation import services
from relay.federation.dead_letters import MAX_LETTERS
from relay.federation.listing import Health, Relay

_TONES: Final = {
    Health.BACKED_OFF: Tone.BAD,
    Health.FAILING: Tone.WARNING,
    Health.BLOCKED: Tone.INFO,
    Health.PAUSED: Tone.INFO,
    Health.UNKNOWN: Tone.IDLE,
    Health.WORKING: Tone.GOOD,
}


class Verb(NamedTuple):
    """A decision about a relay.

    Attributes:
        action: action of the permission matrix.
        label: text of its button.
        fits: whether the decision would change anything.
        ask: question to confirm it.
        perform: function that carries it out.
        done: text that follows the domain in the message afterwards.
    """

    action: str
    label: str
    fits: Callable[[Relay], bool]
    ask: Callable[[Relay], Question]
    perform: Callable[[str, Actor], object]
    done: str


def state(health: Health, hint: str = "") -> State:
    """Return the state of a relay with an icon and a colour."""
    return State(str(health), _TONES[health], hint)


def state_of(relay: Relay) -> State:
    """Return the state of a relay, with its last error on hover if that is the reason."""
    failing = relay.health in (Health.BACKED_OFF, Health.FAILING)
    return state(relay.health, relay.live.last_error if failing else "")


def actions(request: HttpRequest, relay: Relay) -> list[Action]:
    """Return the buttons of a relay that the account may use."""
    found = []
    for name, verb in VERBS.items():
        if verb.fits(relay) and may(request, verb.action):
            url = reverse("console:relay_decide", args=[relay.domain, name])
            found.append(Action(verb.label, url, verb.ask(relay).danger))
    if may(request, "relay.forget"):
        url = reverse("console:relay_forget", args=[relay.domain])
        found.append(Action("Forget", url, danger=True))
    return found


def forgetting(relay: Relay) -> Question:
    """Return the question to confirm that a relay is forgotten."""
    flags, live = relay.flags, relay.live
    loses = [
        f"the decisions about it: {', '.join(flags)}" if flags else "",
        "its note" if relay.note else "",
        f"its counts: {live.sent:,} messages out, {live.received:,} in",
        f"its rank: {live.failures:,} failures" if live.failures else "",
    ]
    return Question(
        f"Remove relay {relay.domain}",
        "Forget",
        "Messages that wait for it stay. The relay appears again when it is next used.",
        loses=tuple(filter(None, loses)),
        danger=True,
    )


def messages(count: int) -> str:
    """Return a count of messages as text."""
    return f"{count:,} message{'' if count == 1 else 's'}"


def _pausing(relay: Relay) -> Question:
    held = relay.live.held.messages
    return Question(
        f"Pause relay {relay.domain}",
        "Pause",
        "The relay stops sending to it, but accepts messages from it. Messages for it "
        "wait. If they expire, their senders are notified.",
        loses=(
            (
                (
                    f"of the messages that wait for it ({messages(held)}), all that expire before "
                    "you resume it"
                ),
            )
            if held
            else ()
        ),
    )


def _blocking(relay: Relay) -> Question:
    held = relay.live.held.messages
    waiting = (
        f" Messages that wait only for it ({messages(held)}) fail in the same way and become "
        "dead letters."
    )
    lost = held - MAX_LETTERS
    return Question(
        f"Block relay {relay.domain}",
        "Block",
        "The relay neither sends to it nor accepts messages from it, or from twins that "
        'list only blocked relays. Requests to such twins fail with "destination '
        'offline".' + (waiting if held else ""),
        loses=(
            (f"{lost:,} of them: {MAX_LETTERS:,} dead letters are kept, for a day",)
            if lost > 0
            else ()
        ),
        danger=True,
    )


def _trusting(relay: Relay) -> Question:
    return Question(
        f"Trust relay {relay.domain}",
        "Trust",
        "The relay accepts messages without the signature of the source twin if they "
        "come from an address of its domain. Its operator can then send in the name of "
        "every twin that lists it. Trust only relays that you run yourself.",
        danger=True,
    )


def _resetting(relay: Relay) -> Question:
    failures = relay.live.failures
    return Question(
        f"Reset rank and back-off of {relay.domain}",
        "Reset",
        "The relay sends to it at once, as if it had no failures.",
        loses=(f"the record of its {failures:,} failures",) if failures else (),
    )


def _plain(title: str, button: str, text: str) -> Callable[[Relay], Question]:
    return lambda relay: Question(f"{title} {relay.domain}", button, text)


VERBS: Final = {
    "reset": Verb(
        "relay.reset", "Reset rank",
        lambda relay: bool(relay.live.failures or relay.live.in_a_row or relay.live.retry_at),
        _resetting,
        lambda domain, actor: services.reset(domain, actor=actor), "is tried again",
    ),
    "pause": Verb(
        "relay.pause", "Pause", lambda relay: not relay.paused, _pausing,
        lambda domain, actor: services.pause(domain, actor=actor), "is paused",
    ),
    "resume": Verb(
        "relay.resume", "Resume", lambda relay: relay.paused,
        _plain("Resume relay", "Resume", "Waiting messages are sent at once."),
        lambda domain, actor: services.resume(domain, actor=actor), "is resumed",
    ),
    "block": Verb(
        "relay.block", "Block", lambda relay: not relay.blocked, _blocking,
        lambda domain, actor: services.block(domain, actor=actor), "is blocked",
    ),
    "unblock": Verb(
        "relay.unblock", "Unblock", lambda relay: relay.blocked,
        _plain("Unblock relay", "Unblock", "The relay exchanges messages with it again."),
        lambda domain, actor: services.unblock(domain, actor=actor), "is not blocked any more",
    ),
    "trust": Verb(
        "relay.trust", "Trust", lambda relay: not relay.trusted, _trusting,
        lambda domain, actor: services.trust(domain, actor=actor), "is trusted",
    ),
    "distrust": Verb(
        "relay.distrust", "End trust", lambda relay: relay.trusted,
        _plain("End trust in relay", "End trust",
               "Messages from it need the signature of the source twin again."),
        lambda domain, actor: services.distrust(domain, actor=actor), "is not trusted any more",
    ),
}  # fmt: skip
