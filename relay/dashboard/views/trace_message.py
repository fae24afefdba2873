"""One message: its way through all processes, and through other relays where they were traced."""

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
"""What clocks differ by at least to be told."""


class OtherRelayForm(forms.Form):
    """What another relay noted of the same message."""

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
    """From a uid that somebody typed to the page of it."""
    uid = request.GET.get("uid", "")
    if not uid:
        raise NotFound("enter the uid of a message")
    address = address_of(uid)
    if address.startswith(f"{request.path}?"):
        return _message(request, uid)
    return HttpResponseRedirect(address)


@page("trace.view")
def message(request: HttpRequest, uid: str) -> HttpResponseBase:
    """The waterfall; a POST adds what another relay noted, for this answer only."""
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
    """A leg as the template has it."""
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
        # What a process is called besides is the id of its start.
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
    """A length of time finer than elsewhere in the console: it is what the page is about."""
    if seconds < 1:
        return duration(seconds)
    return f"{seconds:.3f} s" if seconds < 60 else f"{duration(seconds)} {seconds % 60:.1f} s"


def _round(seconds: float) -> str:
    """A time of the scale, which has no more digits than it needs."""
    return f"{seconds:g} s" if 1 <= seconds < 60 else _precise(seconds)


def _state(event: Event) -> str:
    """Colour of the bar: what went wrong stands out."""
    failed = event.stage is Stage.TRIED and event.answer not in ("answered 202", "answered 208")
    if failed or event.stage in BAD:
        return "bad"
    return "warning" if event.stage is Stage.DECLINED else ""


def _facts(event: Event) -> list[tuple[str, str]]:
    """What there is to say of a step besides who and when: (name, value)."""
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
    """Relays that took the message, and of which nothing is here."""
    here = {lane.relay for lane in shown.lanes}
    took = {
        bar.step.event.relay
        for run in shown.runs
        for bar in run.bars
        if bar.step.event.stage is Stage.TRIED and not _state(bar.step.event)
    }
    return sorted(took - here)
