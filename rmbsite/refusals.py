"""Texts for requests that Django refuses, shown on a page of the site.

Django's own texts recommend settings that this site does not have (`DEBUG`, `ALLOWED_HOSTS`).
"""

from __future__ import annotations

from typing import Final

from django.core.exceptions import (
    DisallowedHost,
    RequestDataTooBig,
    TooManyFieldsSent,
    TooManyFilesSent,
)
from django.http import HttpRequest, HttpResponseBadRequest, HttpResponseForbidden
from django.middleware.csrf import REASON_NO_CSRF_COOKIE
from django.template.loader import render_to_string

HOST: Final = (
    "The site does not answer to this host name. If it is meant to, add the name to admin.hosts."
)
TOO_LARGE: Final = "The form is too large: at most 2.5 MB, 1,000 fields and 100 files."
MALFORMED: Final = "The request is malformed."

NO_COOKIE: Final = "The browser sent no cookie. Allow cookies of this site and open the page again."
FOREIGN: Final = (
    "The form did not come from a page of this site, or from one that is out of date. Open the "
    "page again. Behind a proxy: pass Host and X-Forwarded-Proto on, and name the site in "
    "admin.hosts."
)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponseBadRequest:
    """Return the page with status 400."""
    text = MALFORMED
    if isinstance(exception, DisallowedHost):
        text = HOST
    elif isinstance(exception, RequestDataTooBig | TooManyFieldsSent | TooManyFilesSent):
        text = TOO_LARGE
    return HttpResponseBadRequest(render_to_string("400.html", {"text": text}))


def foreign_form(request: HttpRequest, reason: str = "") -> HttpResponseForbidden:
    """Return the page for a form without a valid CSRF token."""
    text = NO_COOKIE if reason == REASON_NO_CSRF_COOKIE else FOREIGN
    return HttpResponseForbidden(render_to_string("403_csrf.html", {"text": text}))
