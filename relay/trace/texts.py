"""Events and timelines as lines of a terminal."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from relay.ops.printable import shown
from relay.ops.wording import counted
from relay.trace.events import Event
from relay.trace.services import Noted, Trace
from relay.trace.timeline import Leg, Timeline

SHIFT_SHOWN_S = 0.001


def event_line(event: Event) -> str:
    """Format one event of a stream of many messages."""
    route = shown(f"{event.source or '-'} > {event.destination or '-'}")
    return f"{clock(event.at)}  {event.stage:<12}  {shown(event.uid)}  {route}  {details(event)}"


def details(event: Event) -> str:
    """Format the details of an event other than its message, stage and time."""
    parts = []
    if event.reason:
        parts.append(event.reason)
    if event.relay:
        parts.append(f"{'from' if event.stage in ('accepted', 'declined') else 'at'} {event.relay}")
    if event.answer:
        parts.append(event.answer)
    if event.ms:
        parts.append(f"{event.ms:.1f} ms")
    if event.epoch:
        parts.append(f"epoch {event.epoch}")
    if event.entry:
        parts.append(f"entry {event.entry}")
    if event.batch:
        parts.append(f"batch {event.batch}")
    parts.append(f"[{event.by}]")
    return "  ".join(map(shown, parts))


def timeline_lines(timeline: Timeline) -> Iterator[str]:
    """Format all legs of one uid."""
    yield f"uid {shown(timeline.uid)}"
    for leg in timeline.legs:
        yield ""
        route = f"{leg.source or 'a relay'} > {leg.destination or '-'}"
        size = leg.steps[0].event.size_bytes
        yield f"{leg.kind or 'message'}  {shown(route)}  {size} bytes"
        yield from _steps(leg)
        yield f"  {shown(leg.outcome)}, {leg.took_s * 1000:.1f} ms from the first to the last"
        for relay, shift in leg.shifts.items():
            yield f"  the clock of {shown(relay)} is {-shift * 1000:+.1f} ms from the sender's"


def _steps(leg: Leg) -> Iterator[str]:
    several = len({step.event.here for step in leg.steps}) > 1
    for step in leg.steps:
        event = step.event
        where = f"{shown(event.here)}  " if several else ""
        # A shift of its whole relay is shown once, below.
        own = step.moved_s - leg.shifts.get(event.here, 0.0)
        moved = f"  (by its clock {-own * 1000:.1f} ms earlier)" if own > SHIFT_SHOWN_S else ""
        offset = f"+{step.after_s * 1000:.1f} ms"
        said = f"{where}{details(event)}{moved}"
        yield f"  {clock(step.when)} {offset:>12}  {event.stage:<12}  {said}"


def trace_line(trace: Trace) -> str:
    """Format one order of a list."""
    row = trace.row
    missing = "".join(
        f", {count} {what}"
        for count, what in ((trace.skipped, "messages skipped"), (trace.lost, "events lost"))
        if count
    )
    share = "" if row.sample == 1 else f" {row.sample:.2%} of"
    until = row.until.strftime("%H:%M:%S")
    return (
        f"{row.id}  {trace.state:<7}  until {until}{share} {row.kind} {shown(row.subject)}"
        f"  {counted(trace.events, 'event')}{missing}"
    )


def trace_document(trace: Trace) -> dict[str, Any]:
    """Return one order as JSON data."""
    row = trace.row
    return {
        "id": row.id,
        "kind": row.kind,
        "subject": row.subject,
        "sample": row.sample,
        "events_per_s": row.events_per_s,
        "started": row.started.isoformat(),
        "until": row.until.isoformat(),
        "started_by": row.started_by,
        "stopped": row.stopped.isoformat() if row.stopped else None,
        "stopped_by": row.stopped_by,
        "state": trace.state.value,
        "events": trace.events,
        "skipped": trace.skipped,
        "lost": trace.lost,
    }


def noted_line(noted: Noted) -> str:
    """Format one event as a line of JSON."""
    return json.dumps({"cursor": noted.cursor, **noted.event.fields()})


def timeline_document(timeline: Timeline) -> dict[str, Any]:
    """Return a timeline as JSON data; `show --with` of a partner relay can read its events."""
    return {
        "uid": timeline.uid,
        "legs": [
            {
                "kind": leg.kind,
                "source": leg.source,
                "destination": leg.destination,
                "outcome": leg.outcome,
                "took_ms": round(leg.took_s * 1000, 3),
                "shifts_ms": {relay: round(s * 1000, 3) for relay, s in leg.shifts.items()},
                "steps": [
                    {
                        "when": round(step.when, 6),
                        "after_ms": round(step.after_s * 1000, 3),
                        "event": step.event.fields(),
                    }
                    for step in leg.steps
                ],
            }
            for leg in timeline.legs
        ],
    }


def clock(at: float) -> str:
    """Format the time of day, in UTC."""
    return f"{time.strftime('%H:%M:%S', time.gmtime(at))}.{int(at * 1000) % 1000:03d}"
