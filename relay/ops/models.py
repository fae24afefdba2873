"""Decisions that wait for Redis, and models without a table, which only define permissions.

The models without a table stand for data that is in Redis or in files.
"""

from __future__ import annotations

from django.db import models


class PendingDecision(models.Model):
    """A kind of decisions of which some are not in force yet; see `relay.ops.pending`."""

    kind = models.CharField(max_length=16, primary_key=True)
    marks = models.PositiveIntegerField()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return self.kind


class Worker(models.Model):
    """A relay worker with a heartbeat. Its page reads Redis; no row is ever stored."""

    boot_id = models.CharField(max_length=64, primary_key=True)

    class Meta:
        managed = False
        default_permissions = ("view",)
        permissions = (("drain_worker", "Can drain a worker"),)

    def __str__(self) -> str:
        return f"worker {self.boot_id}"


class Queue(models.Model):
    """Messages that wait for one session. They are in Redis; no row is ever stored."""

    key = models.CharField(max_length=200, primary_key=True)

    class Meta:
        managed = False
        default_permissions = ("view",)
        permissions = (
            ("export_queue", "Can export what is known of queued messages"),
            ("move_queue", "Can move queued messages to another session"),
            ("purge_queue", "Can delete queued messages"),
        )

    def __str__(self) -> str:
        return f"queue {self.key}"


class Task(models.Model):
    """Background work of the Celery workers. It is in Redis; no row is ever stored."""

    task_id = models.CharField(max_length=64, primary_key=True)

    class Meta:
        managed = False
        default_permissions = ("view",)
        permissions = (("retry_task", "Can start a failed task again"),)

    def __str__(self) -> str:
        return f"task {self.task_id}"


class Setting(models.Model):
    """A setting in force. It comes from the file and the environment; no row is ever stored."""

    key = models.CharField(max_length=64, primary_key=True)

    class Meta:
        managed = False
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"setting {self.key}"


class Backup(models.Model):
    """A backup of all tables. The file is the operator's; no row is ever stored."""

    file = models.CharField(max_length=200, primary_key=True)

    class Meta:
        managed = False
        default_permissions = ()
        permissions = (
            ("make_backup", "Can write all tables into a file"),
            ("restore_backup", "Can fill an empty database from a file"),
        )

    def __str__(self) -> str:
        return f"backup {self.file}"
