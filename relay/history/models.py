"""The minutes of a week and the hours of a year. Only `relay.history.keeping` writes them."""

from __future__ import annotations

from django.db import models


class Point(models.Model):
    """The values of all series over one minute or hour."""

    resolution_s = models.PositiveIntegerField(help_text="Length in seconds: 60 or 3600.")
    at = models.PositiveBigIntegerField(help_text="Unix time of its start.")
    figures = models.BinaryField(help_text="Values in the form of `relay.history.packing`.")

    class Meta:
        ordering = ("resolution_s", "at")
        default_permissions = ()
        constraints = (
            models.UniqueConstraint(fields=("resolution_s", "at"), name="history_point_once"),
        )

    def __str__(self) -> str:
        return f"{self.resolution_s} s from {self.at}"
