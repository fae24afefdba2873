"""Workers in the admin: heartbeats, load, and draining one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.defaultfilters import filesizeformat
from unfold.admin import ModelAdmin

from relay.access import actor, faces
from relay.access.errors import Away
from relay.ops import live_page, services
from relay.ops import queues_admin as queues_admin
from relay.ops.models import Worker
from relay.ops.services import WorkerRow

HEADERS = (
    "worker", "state", "sessions", "heartbeat", "loop lag", "commit p99", "memory", "running for",
    "process", "boot id", "",
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
        workers: list[WorkerRow] = []
        try:
            workers = services.list_workers()
        except Away as error:
            note = error.detail
        rows = self._rows(workers, self.has_drain_permission(request))
        table = live_page.LiveTable("Workers", HEADERS, rows, "No worker gives a heartbeat", note)
        return live_page.render(self, request, table)

    def _drain(self, request: HttpRequest) -> HttpResponse:
        if not self.has_drain_permission(request):
            raise PermissionDenied
        with faces.in_admin(request):
            boot_id = request.POST.get("drain", "")
            services.drain(boot_id, actor=actor.of_request(request, actor.Face.ADMIN))
            messages.success(request, "The worker closes its sessions and is replaced")
        return HttpResponseRedirect(request.get_full_path())

    def _rows(self, workers: list[WorkerRow], may_drain: bool) -> Iterator[tuple[Any, ...]]:
        now = time.time()
        for worker in workers:
            drainable = may_drain and worker.state != "draining"
            yield (
                f"{worker.host}/{worker.slot}",
                worker.state,
                worker.sessions,
                f"{max(0.0, now - worker.heartbeat):.0f} s ago",
                f"{worker.loop_lag_ms:.1f} ms",
                "" if worker.commit_p99_ms is None else f"{worker.commit_p99_ms:g} ms",
                filesizeformat(worker.memory_bytes) if worker.memory_bytes else "",
                live_page.duration(worker.uptime_s) if worker.started else "",
                worker.pid,
                worker.boot_id,
                live_page.button("Drain", "drain", worker.boot_id) if drainable else "",
            )
