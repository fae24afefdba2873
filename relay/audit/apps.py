"""Django app of `relay.audit`."""

from __future__ import annotations

from django.apps import AppConfig


class AuditAppConfig(AppConfig):
    name = "relay.audit"
    label = "relay_audit"
    verbose_name = "Audit"
