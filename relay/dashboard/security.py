"""Security headers of the operator site's pages, and cookies that are only sent over TLS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest
from django.utils.decorators import sync_only_middleware


def policy(issuer: str) -> str:
    """Return the content security policy.

    Args:
        issuer: address of the OpenID Connect provider, which the sign-in form leads to; or empty.
    """
    parts = urlsplit(issuer)
    provider = f" {parts.scheme}://{parts.netloc}" if issuer else ""
    return "; ".join(
        (
            "default-src 'self'",
            # The theme uses inline styles for colours and widths.
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
    """Return middleware that sets security headers, and marks cookies as secure behind TLS.

    Each response gets a content security policy and `Cache-Control: no-store`, unless it sets them.
    """
    allowed = policy(settings.RMB.oidc.issuer)

    def respond(request: HttpRequest) -> Any:
        response = get_response(request)
        response.headers.setdefault("Content-Security-Policy", allowed)
        # A part of a page has the page's own address: if it were cached, going back could show only
        # the part. And nothing, least of all secrets, may stay in the browser after signing out.
        response.headers.setdefault("Cache-Control", "no-store")
        if request.is_secure():
            for cookie in response.cookies.values():
                cookie["secure"] = True
        return response

    return respond
