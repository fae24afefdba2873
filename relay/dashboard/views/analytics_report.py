"""Download of the monthly report."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from relay.access.errors import Away, NotFound
from relay.analytics.errors import MissingPackages
from relay.dashboard import analytics
from relay.dashboard.pages import page
from relay.dashboard.report import content, html, pdf
from relay.dashboard.report.content import Report

FORMS: Final[dict[str, tuple[str, Callable[[Report], bytes]]]] = {
    "html": ("text/html; charset=utf-8", html.write),
    "pdf": ("application/pdf", pdf.write),
}


@page(analytics.VIEW)
def report(request: HttpRequest, month: str, form: str) -> HttpResponseBase:
    """Send the report as one file."""
    if form not in FORMS:
        raise NotFound(f"a report is written as {' or '.join(FORMS)}")
    kind, write = FORMS[form]
    found = content.gather(month)
    try:
        answer = HttpResponse(write(found), content_type=kind)
    except MissingPackages as error:
        raise Away(f"The PDF cannot be made here: {error}") from error
    answer["Content-Disposition"] = f'attachment; filename="report-{month}.{form}"'
    return answer
