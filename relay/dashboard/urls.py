"""Addresses of the console's pages, below `/console/`."""

from __future__ import annotations

from django.urls import path, register_converter

from relay.dashboard.addresses import KeyConverter
from relay.dashboard.views import (
    overview,
    queues,
    sessions,
    tasks,
    trace_message,
    traces,
    workers,
)

app_name = "console"

register_converter(KeyConverter, "key")

urlpatterns = [
    path("", overview.overview, name="overview"),
    path("queues/", queues.queues, name="queues"),
    path("queues/<key:key>/purge/", queues.purge, name="queue_purge"),
    path("sessions/", sessions.sessions, name="sessions"),
    path("sessions/history/", sessions.history, name="session_history"),
    path("sessions/<key:key>/kick/", sessions.kick, name="session_kick"),
    path("tasks/", tasks.tasks, name="tasks"),
    path("tasks/<str:task_id>/retry/", tasks.retry, name="task_retry"),
    path("tasks/<str:task_id>/forget/", tasks.forget, name="task_forget"),
    path("traces/", traces.traces, name="traces"),
    path("traces/start/", traces.start, name="trace_start"),
    path("traces/message/", trace_message.find, name="trace_find"),
    path("traces/message/<path:uid>/", trace_message.message, name="trace_message"),
    path("traces/<str:order_id>/", traces.trace, name="trace"),
    path("traces/<str:order_id>/stop/", traces.stop, name="trace_stop"),
    path("twins/<int:twin>/kick/", sessions.kick_twin, name="twin_kick"),
    path("workers/", workers.workers, name="workers"),
    path("workers/<str:boot_id>/drain/", workers.drain, name="worker_drain"),
]
