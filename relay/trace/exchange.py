"""What one relay noted of a message, given to another relay's operator as a file."""

from __future__ import annotations

import json

from relay.trace.events import Event, EventError, from_fields


class ExchangeError(ValueError):
    """What is no such file; the text is for the operator."""


def events_of(content: bytes) -> list[Event]:
    """Events in a file: a timeline, or one object a line, as `rmb_trace --json` writes them.

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
