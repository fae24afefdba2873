"""The audit log: actor, action, and the values before and after each change.

Only `relay.audit.services` writes it. Rows are only ever added: triggers of the database refuse
anything else (`relay.audit.triggers`), and each row's hash covers the row before it
(`relay.audit.chain`), so that a change that bypasses the triggers is detected.
"""

from __future__ import annotations

import json
from typing import Any

from django.db import models

from relay.access.actor import MAX_ADDRESS_CHARS, MAX_NAME_CHARS, Face

MAX_ACTION_CHARS = 64
MAX_TARGET_CHARS = 300
HASH_CHARS = 64


class AuditEntry(models.Model):
    """One change, or one sign-in."""

    number = models.PositiveBigIntegerField(primary_key=True)
    at = models.DateTimeField("time", db_index=True)
    actor = models.CharField(max_length=MAX_NAME_CHARS, db_index=True)
    face = models.CharField(
        max_length=8,
        choices=[(face.value, face.value) for face in Face],
        help_text="Interface of the change.",
    )
    address = models.CharField(max_length=MAX_ADDRESS_CHARS, blank=True, default="")
    action = models.CharField(max_length=MAX_ACTION_CHARS, db_index=True)
    target = models.CharField(max_length=MAX_TARGET_CHARS, blank=True, default="", db_index=True)
    # The text as hashed: a JSON column could return a different text.
    before_json = models.TextField(default="null")
    after_json = models.TextField(default="null")
    previous = models.CharField(max_length=HASH_CHARS, help_text="Hash of the previous entry.")
    hash = models.CharField(max_length=HASH_CHARS)

    class Meta:
        ordering = ("-number",)
        verbose_name = "audit entry"
        verbose_name_plural = "audit entries"
        default_permissions = ("view",)
        permissions = (("export_auditentry", "Can export the audit log"),)

    def __str__(self) -> str:
        return f"{self.number} {self.action} {self.target}"

    @property
    def before(self) -> Any:
        """Value before the change; None if absent."""
        return json.loads(self.before_json)

    @property
    def after(self) -> Any:
        """Value after the change; None if absent."""
        return json.loads(self.after_json)
