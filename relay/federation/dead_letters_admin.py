"""Dead letters and waiting messages in the admin: their headers and tries, never their payloads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.defaultfilters import filesizeformat
from django.urls import URLPattern, path
from django.utils.html import format_html_join
from redis.exceptions import RedisError
from unfold.admin import ModelAdmin

from relay.access import faces
from relay.federation import letters, services
from relay.federation.letters import Letter, Try
from relay.federation.models import DeadLetter
from relay.ops import live_page
from relay.ops.redis_client import client
from relay.queues import keys

DEAD_HEADERS = (
    "died", "why", "from", "to", "message", "uid", "size", "relays", "last try", "", "",
)  # fmt: skip
PENDING_HEADERS = (
    "waits", "from", "to", "message", "uid", "size", "expires", "relays", "shard", "tries",
)  # fmt: skip


@admin.register(DeadLetter)
class DeadLetterAdmin(ModelAdmin):  # type: ignore[misc]
    """The list of dead letters, and beside it what waits in the outbox."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def get_urls(self) -> list[URLPattern]:
        pending = path(
            "pending/",
            self.admin_site.admin_view(self.pending_view),
            name="relay_federation_deadletter_pending",
        )
        letters = path(
            "",
            self.admin_site.admin_view(self.changelist_view),
            name="relay_federation_deadletter_changelist",
        )
        return [letters, pending]  # a letter has no page of its own

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            return self._act(request)
        found: list[Letter] = []
        try:
            found = letters.dead(client())
            note = f"the latest {len(found)} of {client().xlen(keys.DEAD_LETTERS)}"
        except RedisError as error:
            note = f"Redis does not answer: {error}"
        rows = self._dead_rows(
            found, self.has_change_permission(request), self.has_delete_permission(request)
        )
        table = live_page.LiveTable("Dead letters", DEAD_HEADERS, rows, "No dead letters", note)
        return live_page.render(self, request, table)

    def pending_view(self, request: HttpRequest) -> HttpResponse:
        """The oldest messages of the outbox."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        found: list[Letter] = []
        try:
            found = letters.pending(client())
            note = f"the oldest {len(found)} messages that wait for other relays"
        except RedisError as error:
            note = f"Redis does not answer: {error}"
        rows = _pending_rows(found)
        table = live_page.LiveTable("Outbox", PENDING_HEADERS, rows, "Nothing waits", note)
        return live_page.render(self, request, table)

    def _act(self, request: HttpRequest) -> HttpResponse:
        actions: dict[str, tuple[str, Callable[..., object]]] = {
            "requeue": ("sent again", services.requeue),
            "delete": ("deleted", services.delete_letter),
        }
        for name, (done, act) in actions.items():
            entry = request.POST.get(name, "")
            if entry:
                with faces.in_admin(request):
                    act(entry, actor=faces.operator(request))
                    messages.success(request, f"The message is {done}")
        return HttpResponseRedirect(request.get_full_path())

    def _dead_rows(
        self, found: list[Letter], may_requeue: bool, may_delete: bool
    ) -> Iterator[tuple[Any, ...]]:
        for each in found:
            last = each.tries[-1] if each.tries else None
            yield (
                f"{live_page.duration(time.time() - each.at)} ago",
                each.why,
                *_what(each),
                each.account,
                live_page.cut(f"{_told(last)} ({len(each.tries)} in all)") if last else "",
                live_page.button("Requeue", "requeue", each.entry) if may_requeue else "",
                live_page.button("Delete", "delete", each.entry) if may_delete else "",
            )


def _pending_rows(found: list[Letter]) -> Iterator[tuple[Any, ...]]:
    for each in found:
        yield (
            live_page.duration(time.time() - each.at),
            *_what(each),
            live_page.duration(each.deadline - time.time()) if each.deadline else "",
            each.account,
            each.shard,
            format_html_join("", "{}", ((live_page.cut(_told(one)),) for one in each.tries)),
        )


def _what(each: Letter) -> tuple[Any, ...]:
    """The columns both tables have."""
    named = " ".join(filter(None, (each.kind, each.command, each.tags and f"[{each.tags}]")))
    return each.source, each.destination, named, each.uid, filesizeformat(each.size_bytes)


def _told(attempt: Try) -> str:
    ago = live_page.duration(time.time() - attempt.at)
    return f"{attempt.relay}: {attempt.answer}, {attempt.ms:.0f} ms, {ago} ago"
