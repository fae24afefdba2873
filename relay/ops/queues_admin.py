"""Queues in the admin: the fullest ones, what waits in one, and deleting it. Headers only."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlencode

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.defaultfilters import filesizeformat
from django.utils.html import format_html
from unfold.admin import ModelAdmin

from relay.access import faces
from relay.access.errors import ServiceError
from relay.ops import live_page
from relay.ops.models import Queue as QueueModel
from relay.queues import services
from relay.queues.headers import Header
from relay.queues.walking import Queue

SHOWN: Final = 100
QUEUE_HEADERS: Final = ("queue", "messages", "memory", "oldest", "newest", "session", "")
MESSAGE_HEADERS: Final = (
    "waits", "size", "from", "message", "uid", "expires in", "tags", "entry",
)  # fmt: skip


@admin.register(QueueModel)
class QueueAdmin(ModelAdmin):  # type: ignore[misc]
    """Two pages: all queues, and with `?key=` the messages of one."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_purge_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("relay_ops.purge_queue"))

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            return self._purge(request)
        key = request.GET.get("key", "")
        table = _messages(key) if key else self._queues(request)
        return live_page.render(self, request, table)

    def _queues(self, request: HttpRequest) -> live_page.LiveTable:
        search = request.GET.get("q", "").strip()
        found: list[Queue] = []
        note = "the fullest first"
        try:
            twin = int(search) if search.isdecimal() and len(search) < 11 else None
            page = services.list_queues(twin=twin, order="-messages", limit=SHOWN)
            found = page.items
            if page.next:
                note = f"the {SHOWN} fullest; name a twin for others"
        except ServiceError as error:
            note = error.detail
        rows = _queue_rows(found, self.has_purge_permission(request))
        return live_page.LiveTable(
            "Queues", QUEUE_HEADERS, rows, "No mail waits", note, search, "twin"
        )

    def _purge(self, request: HttpRequest) -> HttpResponse:
        """Deletes what the page showed, not what came since."""
        newest, _, key = request.POST.get("purge", "").partition(" ")
        with faces.in_admin(request):
            count = services.purge(key, actor=faces.operator(request), up_to=newest)
            messages.success(request, f"{count} messages deleted")
        return HttpResponseRedirect(request.get_full_path())


def _queue_rows(found: list[Queue], may_purge: bool) -> Iterator[tuple[Any, ...]]:
    now = time.time()
    for queue in found:
        purgeable = may_purge and not queue.connected
        yield (
            format_html('<a href="?{}">{}</a>', urlencode({"key": queue.key}), queue.key),
            queue.messages,
            filesizeformat(queue.size_bytes),
            f"{live_page.duration(now - queue.oldest_at)} ago",
            f"{live_page.duration(now - queue.newest_at)} ago",
            "connected" if queue.connected else "away",
            live_page.button("Purge", "purge", f"{queue.newest} {queue.key}") if purgeable else "",
        )


def _messages(key: str) -> live_page.LiveTable:
    found: list[Header] = []
    try:
        page = services.list_headers(key, limit=SHOWN)
        found = page.items
        note = f"the oldest {len(found)} of them" if page.next else "all of them"
    except ServiceError as error:
        note = error.detail
    rows = _message_rows(found)
    return live_page.LiveTable(f"Mail for {key}", MESSAGE_HEADERS, rows, "Nothing waits", note)


def _message_rows(found: list[Header]) -> Iterator[tuple[Any, ...]]:
    now = time.time()
    for each in found:
        left = live_page.duration(each.deadline - now) if each.judged_deadline else ""
        yield (
            live_page.duration(now - each.at),
            filesizeformat(each.size_bytes),
            each.source,
            f"malformed: {each.problem}" if each.problem else f"{each.kind} {each.command}".strip(),
            live_page.cut(each.uid),
            "expired" if each.expired else left,
            f"{each.tags_bytes} bytes" if each.tags_bytes else "",
            each.entry,
        )
