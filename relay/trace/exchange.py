"""Files with events of a message, which operators of partner relays can exchange."""

from __future__ import annotations

import json

from relay.trace.events import Event, EventError, from_fields


class ExchangeError(ValueError):
    """The file is invalid; the text is for the operator."""


def events_of(content: bytes) -> list[Event]:
    """Return the events in a file of `rmb_trace --json`: a timeline, or one object per line.

    Raises:
        ExchangeError: it is neither.
    """
    try:
        try:
            found = json.loads(content)
            if isinstance(found, dict) and "legs" in found:
                steps = [step for leg in found["legs"] for step in leg["steps"]]
                return [from_fields(step["event"]) for step in steps]
            lines = [found]
        except json.JSONDecodeError:
            lines = [json.loads(line) for line in content.splitlines() if line.strip()]
        return [from_fields(line) for line in lines if "stage" in line]
    except (EventError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ExchangeError(f"is not what `rmb_trace --json` writes: {error}") from None
