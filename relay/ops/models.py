"""Models without a table: what is live in Redis, for the admin's menu and permissions."""

from __future__ import annotations

from django.db import models


class Worker(models.Model):
    """A relay worker with a heartbeat. Its page reads Redis; no row is ever stored."""

    boot_id = models.CharField(max_length=64, primary_key=True)

    class Meta:
        managed = False
        default_permissions = ("view",)
        permissions = (("drain_worker", "Can drain a worker"),)

    def __str__(self) -> str:
        return f"worker {self.boot_id}"
