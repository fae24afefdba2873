"""Addresses of the console's pages, below `/console/`."""

from __future__ import annotations

from django.urls import path

from relay.dashboard.views import overview, queues

app_name = "console"

urlpatterns = [
    path("", overview.overview, name="overview"),
    path("queues/", queues.queues, name="queues"),
    path("queues/<path:key>/purge/", queues.purge, name="queue_purge"),
]
