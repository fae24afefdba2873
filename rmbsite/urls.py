"""URLs of the operator site."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from relay.dashboard.views import api_docs, documents
from relay.ops import views
from relay.rest.api import api

handler400 = "rmbsite.refusals.bad_request"

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="console:overview")),
    path("console/", include("relay.dashboard.urls")),
    # Only the sign-in pages of Django's admin are used: no model is registered with it.
    path("admin/", RedirectView.as_view(pattern_name="console:overview")),
    path("admin/", include("relay.access.sign_in.urls")),
    path("admin/", admin.site.urls),
    path("live", views.live),
    path("ready", views.ready),
    path("metrics", views.metrics),
    path("api/v1/", api.urls),
    path("api/docs/", api_docs.operations, name="api_docs"),
    path("api/docs/<slug:name>/", api_docs.operation, name="api_docs_operation"),
    path("docs/<path:name>", documents.document, name="docs"),
]
