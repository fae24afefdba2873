"""The first page: how the relay does."""

from __future__ import annotations

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from relay.dashboard.pages import page, render


@page("worker.view")
def overview(request: HttpRequest) -> HttpResponseBase:
    """What needs somebody first, then what is moving."""
    return render(request, "relay_dashboard/overview.html", "Overview")
