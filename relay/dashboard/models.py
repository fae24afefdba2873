"""Settings of operators for the console itself; other data belongs to the other applications."""

from __future__ import annotations

from typing import Final

from django.conf import settings
from django.db import models

FIRST_STEPS: Final = "first_steps"


class Dismissal(models.Model):
    """A notice that an account has dismissed."""

    account = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    notice = models.CharField(max_length=32)

    class Meta:
        default_permissions = ()
        constraints = (
            models.UniqueConstraint(fields=("account", "notice"), name="dismissal_once"),
        )

    def __str__(self) -> str:
        return f"{self.notice} of account {self.account_id}"
