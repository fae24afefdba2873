"""Health and metrics on the operator site's listener."""

from __future__ import annotations

from django.conf import settings
from django.db import Error as DatabaseError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from redis.exceptions import RedisError

from relay.alarms import figures as alarm_figures
from relay.analytics import lag
from relay.calls.endpoint import endpoint
from relay.dashboard.live import sockets
from relay.federation import figures
from relay.lattice import figures as lattice_figures
from relay.ops import exposition, health, nodes
from relay.ops.redis_client import client
from relay.ops.workers import list_workers
from relay.queues import keys, purging
from relay.twins import chain_state


@never_cache
@require_safe
def live(request: HttpRequest) -> JsonResponse:
    """Answer that the process is alive."""
    return JsonResponse({"status": "live"})


@never_cache
@require_safe
def ready(request: HttpRequest) -> JsonResponse:
    """Answer whether everything that sessions need works; 503 and the reasons otherwise."""
    verdict = health.readiness()
    body = {
        "status": "ready" if verdict.ready else "not ready",
        "reasons": verdict.reasons,
        "degraded": verdict.degraded,
        "workers": verdict.workers,
    }
    return JsonResponse(body, status=200 if verdict.ready else 503)


@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Return the figures of all workers, of federation and of the chain."""
    try:
        shared = [figures.read(client()), purging.figures(client().get(keys.PURGED))]
        if settings.RMB.twins.source == "tfchain":
            shared.append(chain_state.figures(chain_state.read(client())))
        if settings.RMB.analytics.record:
            shared.append(lag.figures(lag.read(client())))
        if settings.RMB.lattice.enabled:
            shared.append(lattice_figures.read(client()))
        shared += [
            nodes.figures(nodes.read(client().hgetall(keys.NODES))),
            _alarms(),
            sockets.figures(),
            endpoint.figures(),
        ]
        text = exposition.render(list_workers(client()), *shared)
    except RedisError as error:
        return HttpResponse(f"redis: {error}\n", status=503, content_type="text/plain")
    return HttpResponse(text, content_type=exposition.CONTENT_TYPE)


def _alarms() -> dict[str, float]:
    """Return the figures from the database; the other figures do not depend on it."""
    try:
        return alarm_figures.read()
    except DatabaseError:
        return {}
