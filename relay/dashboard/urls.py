"""Addresses of the console's pages, below `/console/`."""

from __future__ import annotations

from django.urls import path, register_converter

from relay.dashboard.addresses import KeyConverter
from relay.dashboard.views import (
    alarm_receivers,
    alarm_rules,
    alarms,
    charts,
    letters,
    overview,
    queues,
    relay,
    relays,
    search,
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
    path("letters/", letters.dead_letters, name="letters"),
    path("letters/<str:entry>/", letters.letter, name="letter"),
    path("letters/<str:entry>/delete/", letters.delete, name="letter_delete"),
    path("letters/<str:entry>/requeue/", letters.requeue, name="letter_requeue"),
    path("outbox/", letters.outbox, name="outbox"),
    path("outbox/<int:shard>/<str:entry>/", letters.outbox_message, name="outbox_message"),
    path("charts/<slug:name>.svg", charts.picture, name="chart_picture"),
    path("charts/<slug:name>/", charts.table, name="chart_table"),
    path("charts/data.json", charts.data, name="chart_data"),
    path("search/", search.search, name="search"),
    path("queues/", queues.queues, name="queues"),
    path("queues/<key:key>/purge/", queues.purge, name="queue_purge"),
    path("sessions/", sessions.sessions, name="sessions"),
    path("sessions/history/", sessions.history, name="session_history"),
    path("sessions/<key:key>/kick/", sessions.kick, name="session_kick"),
    path("relays/", relays.federation, name="relays"),
    path("relays/<str:domain>/", relay.relay, name="relay"),
    path("relays/<str:domain>/forget/", relays.forget, name="relay_forget"),
    path("relays/<str:domain>/letters/", letters.requeue_all, name="relay_requeue"),
    path("relays/<str:domain>/<slug:verb>/", relays.decide, name="relay_decide"),
    path("tasks/", tasks.tasks, name="tasks"),
    path("tasks/<str:task_id>/retry/", tasks.retry, name="task_retry"),
    path("tasks/<str:task_id>/forget/", tasks.forget, name="task_forget"),
    path("alarms/", alarms.alarms, name="alarms"),
    path("alarms/<int:alarm_id>/", alarms.alarm, name="alarm"),
    path("alarms/<int:alarm_id>/acknowledge/", alarms.acknowledge, name="alarm_acknowledge"),
    path("alarms/<int:alarm_id>/unacknowledge/", alarms.unacknowledge, name="alarm_unacknowledge"),
    path("alarms/history/", alarms.history, name="alarms_history"),
    path("alarms/silences/", alarm_rules.silences, name="alarms_silences"),
    path("alarms/silences/add/", alarm_rules.add_silence, name="alarms_silence_add"),
    path(
        "alarms/silences/<int:silence_id>/end/",
        alarm_rules.end_silence,
        name="alarms_silence_end",
    ),
    path("alarms/rules/", alarm_rules.rules, name="alarms_rules"),
    path("alarms/rules/<str:key>/", alarm_rules.rule, name="alarms_rule"),
    path("alarms/rules/<str:key>/change/", alarm_rules.change_rule, name="alarms_rule_change"),
    path("alarms/receivers/", alarm_receivers.receivers_page, name="alarms_receivers"),
    path(
        "alarms/receivers/<int:receiver_id>/test/",
        alarm_receivers.test_receiver,
        name="alarms_receiver_test",
    ),
    path("alarms/notices/", alarm_receivers.notices, name="alarms_notices"),
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
