"""The websocket routes: every path is the relay's, as clients put any path in their URL."""

from __future__ import annotations

from django.urls import re_path

from relay.sessions.consumers.rmb import RmbConsumer

websocket_urlpatterns = [re_path(r"", RmbConsumer.as_asgi())]
