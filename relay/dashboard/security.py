"""What browsers may do with the site's pages and keep of them, and cookies that stay on TLS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest
from django.utils.decorators import sync_only_middleware


def policy(issuer: str) -> str:
    """The content security policy.

    Args:
        issuer: address of the OpenID Connect provider, to which the sign-in's form leads; or empty.
    """
    parts = urlsplit(issuer)
    provider = f" {parts.scheme}://{parts.netloc}" if issuer else ""
    return "; ".join(
        (
            "default-src 'self'",
            # The theme writes its colours and widths into its pages.
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data:",
            "object-src 'none'",
            "base-uri 'none'",
            f"form-action 'self'{provider}",
            "frame-ancestors 'none'",
        )
    )


@sync_only_middleware
def browser_bounds(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """The middleware: a content security policy on each page, which is not kept where it does not
    say so itself, and secure cookies behind TLS."""
    allowed = policy(settings.RMB.oidc.issuer)

    def respond(request: HttpRequest) -> Any:
        response = get_response(request)
        response.headers.setdefault("Content-Security-Policy", allowed)
        # A part of a page has the page's address, and going back takes what was kept of it. Nor is
        # anything kept for whoever sits there after signing out, secrets least of all.
        response.headers.setdefault("Cache-Control", "no-store")
        if request.is_secure():
            for cookie in response.cookies.values():
                cookie["secure"] = True
        return response

    return respond
