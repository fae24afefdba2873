"""Search results, as JSON for the palette and as a page without JavaScript."""

from __future__ import annotations

from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase

from relay.dashboard.pages import page, render
from relay.dashboard.search import MAX_TEXT_CHARS, find


@page("worker.view")
def search(request: HttpRequest) -> HttpResponseBase:
    """Return what `?q=` may refer to; as JSON for `Accept: application/json`."""
    text = request.GET.get("q", "")[:MAX_TEXT_CHARS]
    hits = find(request, text)
    if request.headers.get("Accept") == "application/json":
        return JsonResponse({"hits": [hit._asdict() for hit in hits]})
    return render(request, "relay_dashboard/search.html", "Search", {"text": text, "hits": hits})
