"""One traced message: its path through all processes, and through partner relays that traced it."""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import urlencode

from django import forms
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import reverse

from relay.access.errors import NotFound
from relay.dashboard.acts import posted
from relay.dashboard.pages import may, page, render
from relay.dashboard.views.traces import BAD, address_of, outcome_of
from relay.ops.wording import duration
from relay.trace import bounds, services, texts
from relay.trace.events import MEANINGS, Event, Stage
from relay.trace.exchange import ExchangeError, events_of
from relay.trace.waterfall import Bar, Run, Waterfall, waterfall

MAX_FILE_BYTES: Final = 4 << 20
CLOCK_SHOWN_S: Final = 0.001
"""Difference of clocks, in seconds, from which it is shown."""


class OtherRelayForm(forms.Form):
    """Events that a partner relay recorded of the same message."""

    noted = forms.FileField(
        label="Events of the partner relay",
        max_length=255,
        help_text="JSON file from its page of this message, or from `rmb_trace show UID --json`.",
    )

    def clean_noted(self) -> list[Event]:
        given = self.cleaned_data["noted"]
        if given.size > MAX_FILE_BYTES:
            raise forms.ValidationError("The file is larger than 4 MiB.")
        try:
            return events_of(given.read())
        except ExchangeError as error:
            raise forms.ValidationError(f"It {error}.") from error


@page("trace.view")
def find(request: HttpRequest) -> HttpResponseBase:
    """Redirect from an entered uid to the page of the message."""
    uid = request.GET.get("uid", "")
    if not uid:
        raise NotFound("enter the uid of a message")
    address = address_of(uid)
    if address.startswith(f"{request.path}?"):
        return _message(request, uid)
    return HttpResponseRedirect(address)


@page("trace.view")
def message(request: HttpRequest, uid: str) -> HttpResponseBase:
    """Show the waterfall; a POST adds events of a partner relay, for this response only."""
    return _message(request, uid)


def _message(request: HttpRequest, uid: str) -> HttpResponseBase:
    form = OtherRelayForm(posted(request), request.FILES or None)
    more = form.cleaned_data["noted"] if request.method == "POST" and form.is_valid() else []
    context: dict[str, Any] = {"uid": uid, "form": form, "added": len(more)}
    try:
        found = services.timeline(uid, more=more)
    except NotFound:
        start = urlencode({"kind": "uid", "subject": uid})
        context |= {
            "start": f"{reverse('console:trace_start')}?{start}"
            if may(request, "trace.start")
            else "",
            "kept_s": bounds.KEPT_S,
        }
        return render(request, "relay_dashboard/trace_message.html", "Message", context)
    document = texts.timeline_document(found)
    if request.GET.get("export") == "json":
        answer = HttpResponse(json.dumps(document, indent=1), content_type="application/json")
        answer["Content-Disposition"] = 'attachment; filename="message.json"'
        return answer
    shown = waterfall(found)
    context |= {
        "waterfall": shown,
        "runs": [_shown(run, shown) for run in shown.runs],
        "whole": _precise(shown.length_s),
        "ticks": [(f"{tick.left:.2f}%", _round(tick.at_s)) for tick in shown.ticks],
        "several": len({lane.relay for lane in shown.lanes}) > 1,
        "tried_elsewhere": _not_seen(shown),
    }
    return render(request, "relay_dashboard/trace_message.html", "Message", context)


def _shown(run: Run, shown: Waterfall) -> dict[str, Any]:
    """Return the context of a leg."""
    return {
        "run": run,
        "outcome": outcome_of(run.leg),
        "took": _precise(run.leg.took_s),
        "rows": [_row(bar, shown.begin) for bar in run.bars],
        "clocks": [
            (relay, shift) for relay, shift in run.leg.shifts.items() if abs(shift) >= CLOCK_SHOWN_S
        ],
    }


def _row(bar: Bar, begin: float) -> dict[str, Any]:
    step, event = bar.step, bar.step.event
    return {
        "bar": bar,
        # The rest of the name is the boot id.
        "process": event.by.partition("/")[0],
        "at": _precise(step.when - begin),
        "took": _precise(bar.length_s) if bar.length_s else "",
        "stage": event.stage.replace("_", " "),
        "meaning": MEANINGS[event.stage],
        "state": _state(event),
        "clock": texts.clock(step.when),
        "facts": _facts(event),
    }


def _precise(seconds: float) -> str:
    """Return a duration with more digits than elsewhere in the console, as this page needs."""
    if seconds < 1:
        return duration(seconds)
    return f"{seconds:.3f} s" if seconds < 60 else f"{duration(seconds)} {seconds % 60:.1f} s"


def _round(seconds: float) -> str:
    """Return a time on the scale, with as few digits as possible."""
    return f"{seconds:g} s" if 1 <= seconds < 60 else _precise(seconds)


def _state(event: Event) -> str:
    """Return the colour class of a bar, which highlights failures."""
    failed = event.stage is Stage.TRIED and event.answer not in ("answered 202", "answered 208")
    if failed or event.stage in BAD:
        return "bad"
    return "warning" if event.stage is Stage.DECLINED else ""


def _facts(event: Event) -> list[tuple[str, str]]:
    """Return further details of a step as (name, value)."""
    brought = event.stage in (Stage.ACCEPTED, Stage.DECLINED)
    facts = [
        ("reason", event.reason),
        ("from" if brought else "at", event.relay),
        ("answer", event.answer),
        ("session epoch", str(event.epoch or "")),
        ("entry", event.entry),
        ("batch", str(event.batch or "")),
    ]
    return [(name, value) for name, value in facts if value]


def _not_seen(shown: Waterfall) -> list[str]:
    """Return relays that accepted the message, but whose events are not here."""
    here = {lane.relay for lane in shown.lanes}
    took = {
        bar.step.event.relay
        for run in shown.runs
        for bar in run.bars
        if bar.step.event.stage is Stage.TRIED and not _state(bar.step.event)
    }
    return sorted(took - here)
