"""Other relays in the admin: what is decided about them, beside how they do now."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat
from redis.exceptions import RedisError
from unfold.admin import ModelAdmin
from unfold.views import ChangeList

from relay.access import faces
from relay.federation import dead_letters_admin as dead_letters_admin
from relay.federation import live, services
from relay.federation.live import PartnerState
from relay.federation.models import RelayNode
from relay.ops import live_page
from relay.ops.redis_client import client

logger = logging.getLogger(__name__)


class LiveChangeList(ChangeList):  # type: ignore[misc]
    """A page of rows, each with the relay's state in Redis as `row.live`."""

    result_list: Any

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        self.result_list = list(self.result_list)
        attach(request, self.result_list)


@admin.register(RelayNode)
class RelayNodeAdmin(ModelAdmin):  # type: ignore[misc]
    """Every relay this one has dealt with, and those entered by hand."""

    list_display = (
        "domain", "show_flags", "show_kind", "show_rank", "show_failures", "show_backoff",
        "show_success", "show_traffic", "show_latency", "show_held",
    )  # fmt: skip
    list_filter = ("trusted", "paused", "blocked")
    search_fields = ("domain", "note")
    actions = (
        "reset_selected", "pause_selected", "resume_selected", "block_selected",
        "unblock_selected", "trust_selected", "distrust_selected",
    )  # fmt: skip
    fields = ("domain", "trusted", "paused", "blocked", "note")
    list_per_page = 50
    show_full_result_count = False

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[LiveChangeList]:
        return LiveChangeList

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        try:
            services.discover()
        except RedisError as error:
            logger.warning("relays in traffic cannot be listed: %s", error)
        page: HttpResponse = super().changelist_view(request, extra_context)
        return page

    def get_readonly_fields(
        self, request: HttpRequest, obj: RelayNode | None = None
    ) -> tuple[str, ...]:
        return ("domain",) if obj else ()

    def save_model(self, request: HttpRequest, obj: RelayNode, form: Any, change: bool) -> None:
        services.save(obj, actor=faces.operator(request))

    def delete_model(self, request: HttpRequest, obj: RelayNode) -> None:
        services.forget([obj.domain], actor=faces.operator(request))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[RelayNode]) -> None:
        domains = queryset.values_list("domain", flat=True)
        services.forget(domains, actor=faces.operator(request))

    # Actions

    @admin.action(description="Reset rank and back-off", permissions=["change"])
    def reset_selected(self, request: HttpRequest, queryset: QuerySet[RelayNode]) -> None:
        self._act(request, queryset, "reset", services.reset)

    @admin.action(description="Pause", permissions=["change"])
    def pause_selected(self, request: HttpRequest, queryset: QuerySet[RelayNode]) -> None:
        self._act(request, queryset, "paused", services.pause)

    @admin.action(description="Resume", permissions=["change"])
    def resume_selected(self, request: HttpRequest, queryset: QuerySet[RelayNode]) -> None:
        self._act(request, queryset, "resumed", services.resume)

    @admin.action(description="Block", permissions=["change"])
    def block_selected(self, request: HttpRequest, queryset: QuerySet[RelayNode]) -> None:
        self._act(request, queryset, "blocked", services.block)

    @admin.action(description="Unblock", permissions=["change"])
    def unblock_selected(self, request: HttpRequest, queryset: QuerySet[RelayNode]) -> None:
        self._act(request, queryset, "unblocked", services.unblock)

    @admin.action(description="Trust", permissions=["change"])
    def trust_selected(self, request: HttpRequest, queryset: QuerySet[RelayNode]) -> None:
        self._act(request, queryset, "trusted", partial(services.trust, trusted=True))

    @admin.action(description="Trust no longer", permissions=["change"])
    def distrust_selected(self, request: HttpRequest, queryset: QuerySet[RelayNode]) -> None:
        self._act(request, queryset, "distrusted", partial(services.trust, trusted=False))

    def _act(
        self,
        request: HttpRequest,
        queryset: QuerySet[RelayNode],
        done: str,
        act: Callable[..., None],
    ) -> None:
        domains = list(queryset.values_list("domain", flat=True))
        who = faces.operator(request)
        with faces.in_admin(request):
            for domain in domains:
                act(domain, actor=who)
            messages.success(request, f"{len(domains)} relays {done}")

    # Columns

    @admin.display(description="decided")
    def show_flags(self, node: RelayNode) -> str | None:
        return ", ".join(node.flags) or None

    @admin.display(description="kind")
    def show_kind(self, node: RelayNode) -> str:
        return state_of(node).kind

    @admin.display(description="rank (failures an hour)")
    def show_rank(self, node: RelayNode) -> str:
        return f"{state_of(node).rate_per_hour:.4g}"

    @admin.display(description="failures")
    def show_failures(self, node: RelayNode) -> str:
        state = state_of(node)
        if not state.failures:
            return "0"
        told = f"{state.failures}, the last {_ago(state.last_failure)}: {state.last_error}"
        return live_page.cut(told)

    @admin.display(description="back-off")
    def show_backoff(self, node: RelayNode) -> str | None:
        left_s = state_of(node).retry_at - time.time()
        return f"{left_s:.0f} s more" if left_s > 0 else None

    @admin.display(description="last success")
    def show_success(self, node: RelayNode) -> str | None:
        return _ago(state_of(node).last_success) or None

    @admin.display(description="out / in")
    def show_traffic(self, node: RelayNode) -> str:
        state = state_of(node)
        return f"{state.sent} / {state.received}"

    @admin.display(description="latency")
    def show_latency(self, node: RelayNode) -> str | None:
        latency_ms = state_of(node).latency_ms
        return f"{latency_ms:.1f} ms" if latency_ms else None

    @admin.display(description="waiting")
    def show_held(self, node: RelayNode) -> str | None:
        state = state_of(node)
        if not state.held.messages:
            return None
        oldest = f", the oldest for {_since(state.oldest_at)}" if state.oldest_at else ""
        return f"{state.held.messages} ({filesizeformat(state.held.size_bytes)}){oldest}"


def attach(request: HttpRequest, nodes: Iterable[RelayNode]) -> None:
    """Give each row its relay's state; without Redis all of them are empty, and a line says so."""
    rows = list(nodes)
    period_s = settings.RMB.federation.ranker_period_s
    states: dict[str, PartnerState] = {}
    try:
        states = live.read_partners(client(), [node.domain for node in rows], period_s)
    except RedisError as error:
        messages.error(request, f"Redis does not answer: {error}")
    for node in rows:
        node.live = states.get(node.domain)  # type: ignore[attr-defined]


def state_of(node: RelayNode) -> PartnerState:
    """What `attach` gave a row."""
    state: PartnerState | None = getattr(node, "live", None)
    return state or PartnerState(node.domain)


def _since(unix_s: float) -> str:
    return live_page.duration(time.time() - unix_s)


def _ago(unix_s: float) -> str:
    return f"{_since(unix_s)} ago" if unix_s else ""
