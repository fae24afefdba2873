"""The site with the pages and the REST operations of lamps."""

from __future__ import annotations

from typing import Final

from django.urls import include, path

from relay.dashboard import urls as dashboard
from relay.resources import console
from relay.rest import api
from rmbsite import urls as site
from tests.relay.resources.lamps import RESOURCE

API: Final = api.build(["tests.relay.resources.lamps"], "lamps")
PAGES: Final = console.urls(RESOURCE)

urlpatterns = [
    path("console/", include(([*dashboard.urlpatterns, *PAGES], "console"))),
    path("house/", API.urls),
    *site.urlpatterns,
]
