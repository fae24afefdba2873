"""Context processor that puts the pages of allauth into the console's frame."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from relay.access.sign_in.required import lacks_second_factor


def admin_frame(request: HttpRequest) -> dict[str, Any]:
    """Return what the theme's templates need, on the pages below `account/`.

    The menu is empty for accounts that must set up a second factor first.
    """
    if not request.path.startswith("/admin/account/"):
        return {}
    context = {**admin.site.each_context(request), "title": "Your account"}
    if request.user.is_authenticated and lacks_second_factor(request):
        context["sidebar_navigation"] = []
    return context
