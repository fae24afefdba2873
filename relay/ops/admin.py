"""Workers in the admin: heartbeats, load, and draining one."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from redis.exceptions import RedisError
from unfold.admin import ModelAdmin

from relay.ops import control, live_page
from relay.ops.models import Worker
from relay.ops.redis_client import client
from relay.ops.workers import WorkerState, list_workers

logger = logging.getLogger(__name__)

HEADERS = (
    "worker", "state", "sessions", "heartbeat", "loop lag", "running for", "process", "boot id", ""
)  # fmt: skip


@admin.register(Worker)
class WorkerAdmin(ModelAdmin):  # type: ignore[misc]
    """The relay workers that live now."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_drain_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("relay_ops.drain_worker"))

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            return self._drain(request)
        note = ""
        workers: list[WorkerState] = []
        try:
            workers = list_workers(client())
        except RedisError as error:
            note = f"Redis does not answer: {error}"
        rows = self._rows(workers, self.has_drain_permission(request))
        table = live_page.LiveTable("Workers", HEADERS, rows, "No worker gives a heartbeat", note)
        return live_page.render(self, request, table)

    def _drain(self, request: HttpRequest) -> HttpResponse:
        if not self.has_drain_permission(request):
            raise PermissionDenied
        boot_id = request.POST.get("drain", "")
        try:
            if boot_id not in {worker.boot_id for worker in list_workers(client())}:
                messages.error(request, "This worker is gone already")
            else:
                control.drain(boot_id)
                logger.info("operator %s drains worker %s", request.user, boot_id)
                messages.success(request, "The worker closes its sessions and is replaced")
        except (RedisError, control.ControlError) as error:
            messages.error(request, str(error))
        return HttpResponseRedirect(request.get_full_path())

    def _rows(self, workers: list[WorkerState], may_drain: bool) -> Iterator[tuple[Any, ...]]:
        now = time.time()
        for worker in workers:
            drainable = may_drain and worker.state != "draining"
            yield (
                f"{worker.host}/{worker.slot}",
                "silent" if worker.late(now) else worker.state,
                worker.sessions,
                f"{worker.silent_s(now):.0f} s ago",
                f"{worker.loop_lag_ms:.1f} ms",
                live_page.duration(now - worker.started) if worker.started else "",
                worker.pid,
                worker.boot_id,
                live_page.button("Drain", "drain", worker.boot_id) if drainable else "",
            )
