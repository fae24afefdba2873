"""Sessions in the admin: those held now (from Redis) and the history (from the database)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils import timezone
from redis.exceptions import RedisError
from unfold.admin import ModelAdmin

from relay.access import actor, faces
from relay.ops import live_page, live_sessions
from relay.ops.live_sessions import LiveSession
from relay.ops.redis_client import client
from relay.ops.workers import list_workers
from relay.sessions import services
from relay.sessions.models import Session

HEADERS = (
    "twin", "session id", "address", "worker", "connected for", "in", "out", "backlog", "drops",
    "user agent", "",
)  # fmt: skip


class OpenFilter(admin.SimpleListFilter):
    """Open or ended, as far as the database knows."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("open", "open"), ("ended", "ended")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Session]) -> QuerySet[Session]:
        if self.value() in ("open", "ended"):
            return queryset.filter(closed_at__isnull=self.value() == "open")
        return queryset


@admin.register(Session)
class SessionAdmin(ModelAdmin):  # type: ignore[misc]
    """The history as a list, and the live page beside it. Nothing can be edited."""

    list_display = (
        "show_key",
        "remote",
        "slot",
        "opened_at",
        "closed_at",
        "close_reason",
        "messages_in",
        "messages_out",
        "backlog",
        "drops",
    )
    list_filter = (OpenFilter, "close_reason", "opened_at")
    search_fields = ("=twin", "sid", "remote", "worker")
    search_help_text = "Twin, session, address or boot id"
    actions = ("kick_selected",)
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_kick_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("relay_sessions.kick_session"))

    def get_urls(self) -> list[URLPattern]:
        live = path(
            "live/", self.admin_site.admin_view(self.live_view), name="relay_sessions_session_live"
        )
        return [live, *super().get_urls()]

    @admin.display(description="session", ordering="twin")
    def show_key(self, session: Session) -> str:
        return live_page.cut(session.key_text)

    @admin.action(description="Kick the selected sessions", permissions=["kick"])
    def kick_selected(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        chosen = list(queryset)
        self._kick(request, [(each.key_text, each.epoch) for each in chosen if not each.closed_at])
        if any(each.closed_at for each in chosen):
            messages.warning(request, "Sessions that ended already were passed over")

    # The live page

    def live_view(self, request: HttpRequest) -> HttpResponse:
        """Sessions held now, by the directory in Redis."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            if not self.has_kick_permission(request):
                raise PermissionDenied
            epoch, _, key = request.POST.get("kick", "").partition(" ")
            if epoch.isdecimal() and key:
                self._kick(request, [(key, int(epoch))])
            return HttpResponseRedirect(request.get_full_path())
        search = request.GET.get("q", "").strip()
        found = live_sessions.LivePage([], 0)
        slots: dict[str, str] = {}
        try:
            found = live_sessions.find(client(), search)
            slots = {each.boot_id: f"{each.host}/{each.slot}" for each in list_workers(client())}
            note = f"{len(found.sessions)} of {found.total} sessions shown"
        except RedisError as error:
            note = f"Redis does not answer: {error}"
        rows = self._rows(found.sessions, slots, self.has_kick_permission(request))
        table = live_page.LiveTable(
            "Live sessions",
            HEADERS,
            rows,
            "No such session is open" if search else "No session is open",
            note,
            search,
            "twin or twin:session id",
        )
        return live_page.render(self, request, table)

    def _kick(self, request: HttpRequest, sessions: list[tuple[str, int]]) -> None:
        by, kicked = actor.of_request(request, actor.Face.ADMIN), 0
        for key, epoch in sessions:
            with faces.in_admin(request):
                services.kick(key, actor=by, epoch=epoch)
                kicked += 1
        if kicked:
            messages.success(request, f"{kicked} sessions are told to end")

    def _rows(
        self, sessions: list[LiveSession], slots: dict[str, str], may_kick: bool
    ) -> Iterator[tuple[Any, ...]]:
        now = timezone.now()
        for each in sessions:
            twin, sid = each.key
            row = each.row
            yield (
                twin,
                "none" if sid is None else live_page.cut(repr(sid)),
                each.remote,
                slots.get(each.boot_id, "no heartbeat"),
                live_page.duration((now - each.since).total_seconds()),
                row.messages_in if row else "",
                row.messages_out if row else "",
                row.backlog if row else "",
                row.drops if row else "",
                live_page.cut(row.user_agent) if row else "",
                live_page.button("Kick", "kick", f"{each.epoch} {each.text}") if may_kick else "",
            )
