"""Addresses of the console's pages, below `/console/`."""

from __future__ import annotations

from django.urls import path

from relay.dashboard.views import overview, queues, tasks, trace_message, traces, workers

app_name = "console"

urlpatterns = [
    path("", overview.overview, name="overview"),
    path("queues/", queues.queues, name="queues"),
    path("queues/<path:key>/purge/", queues.purge, name="queue_purge"),
    path("tasks/", tasks.tasks, name="tasks"),
    path("tasks/<str:task_id>/retry/", tasks.retry, name="task_retry"),
    path("tasks/<str:task_id>/forget/", tasks.forget, name="task_forget"),
    path("traces/", traces.traces, name="traces"),
    path("traces/start/", traces.start, name="trace_start"),
    path("traces/message/", trace_message.find, name="trace_find"),
    path("traces/message/<path:uid>/", trace_message.message, name="trace_message"),
    path("traces/<str:order_id>/", traces.trace, name="trace"),
    path("traces/<str:order_id>/stop/", traces.stop, name="trace_stop"),
    path("workers/", workers.workers, name="workers"),
    path("workers/<str:boot_id>/drain/", workers.drain, name="worker_drain"),
]
