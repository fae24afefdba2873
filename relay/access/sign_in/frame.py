"""The admin's frame around the pages of allauth."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest


def admin_frame(request: HttpRequest) -> dict[str, Any]:
    """A context processor: what the theme's templates need, on the pages below `account/`."""
    if not request.path.startswith("/admin/account/"):
        return {}
    return {**admin.site.each_context(request), "title": "Your account"}
