"""The ledger: runs of jobs, and the published results."""

from __future__ import annotations

from django.db import models


class RunState(models.TextChoices):
    """State of a run."""

    RUNNING = "running"
    DONE = "done"
    UNCHANGED = "unchanged", "nothing to do"
    FAILED = "failed"


class Run(models.Model):
    """One run of a job."""

    name = models.CharField(
        max_length=64, unique=True, help_text="Last part of the paths of its files."
    )
    job = models.CharField(max_length=64)
    master = models.CharField(
        max_length=255, help_text="Spark master that ran the job, such as local[2]."
    )
    first_day = models.DateField()
    last_day = models.DateField(help_text="Last day of the run, which is included.")
    state = models.CharField(max_length=16, choices=RunState.choices, default=RunState.RUNNING)
    error = models.TextField(blank=True, default="")
    began_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    periods = models.PositiveIntegerField(
        default=0, help_text="Number of days or months that the run computed."
    )
    result_rows = models.PositiveBigIntegerField(default=0)

    class Meta:
        ordering = ("-id",)
        default_permissions = ()
        indexes = (models.Index(fields=("job", "-id"), name="analytics_run_of_job"),)

    def __str__(self) -> str:
        return f"{self.name} {self.state}"


class Origin(models.Model):
    """Lake of all results: one row, created when the first result is computed."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    lake = models.CharField(max_length=32, help_text="Id of the lake, from its file lake.id.")
    folder = models.CharField(max_length=4096, help_text="Path of the lake at that time.")
    host = models.CharField(max_length=255, help_text="Host that saw the lake at this path.")
    since = models.DateTimeField()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.folder} of {self.host} (since {self.since:%Y-%m-%d})"


class Published(models.Model):
    """Current result of one table for one period, which readers see."""

    table = models.CharField(max_length=64)
    period = models.CharField(max_length=10, help_text="Day YYYY-MM-DD or month YYYY-MM.")
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="published")
    fingerprint = models.CharField(
        max_length=64, help_text="Fingerprint of the events that it was computed from."
    )
    folder = models.CharField(
        max_length=255, blank=True, help_text="Path below results/; empty: there are no rows."
    )
    result_rows = models.PositiveBigIntegerField()
    size_bytes = models.PositiveBigIntegerField()
    event_rows = models.PositiveBigIntegerField(
        help_text="Events read to compute it, margins included."
    )
    day_rows = models.JSONField(default=dict, help_text="Events read, by day; empty: unknown.")
    published_at = models.DateTimeField()

    class Meta:
        ordering = ("table", "period")
        default_permissions = ()
        constraints = (
            models.UniqueConstraint(fields=("table", "period"), name="analytics_published_once"),
        )

    def __str__(self) -> str:
        return f"{self.table} {self.period}"
