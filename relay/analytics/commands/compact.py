"""`rmb_analytics compact`: do once what the compactor of a relay does."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from argparse import ArgumentParser
from typing import Any, Final

from django.conf import settings
from django.core.management.base import OutputWrapper
from redis.exceptions import RedisError

from relay.analytics import lag
from relay.analytics.errors import AnalyticsError
from relay.analytics.lake import Lake
from relay.analytics.recording import relay_name
from relay.ops.redis_client import client

SUMMARY: Final = "move recorded segments into the lake, merge its files, remove old days"
DESCRIPTION: Final = """\
Convert closed segments of recorders to Parquet, merge the files of past hours, and remove days
older than analytics.keep_days. A relay that records (analytics.record) does this itself. If you run
workers without `runrelay`, run this command each minute.

If the lake has events of fewer than seven days before today, the command keeps old days, because
the clock may be wrong. If the clock is right, remove them with --expire. --expire does nothing else
and may run beside the compactor of a relay.

exit code: 0 done, 1 partly failed, 2 usage
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--expire", action="store_true", help="only remove old days")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def handle(out: OutputWrapper, options: dict[str, Any]) -> None:
    from relay.analytics.compactor import Compactor, alone

    config = settings.RMB.analytics
    lake = Lake.configured()
    if options["expire"]:
        _expire(out, lake, config.keep_days, json_wanted=options["json"])
        return
    with alone(lake):
        compactor = Compactor(
            lake,
            keep_days=config.keep_days,
            segments_max_bytes=config.segments_max_bytes,
            flush_s=config.flush_ms / 1000,
        )
        done = [compactor.convert(), compactor.merge(), compactor.retain()]
        if config.record:
            with contextlib.suppress(RedisError):  # alarms and metrics report if it is down
                done.append(compactor.take_in(client(), relay_name(settings.RMB)))
                lag.publish(client(), lag.look(lake, time.time()))
    total = {
        field.name: sum(getattr(work, field.name) for work in done)
        for field in dataclasses.fields(done[0])
        if field.type == "int"
    }
    wrong = [text for work in done for text in (work.trouble, *work.unreadable) if text]
    if options["json"]:
        out.write(json.dumps({**total, "wrong": wrong}, indent=2))
    else:
        out.write("{rows:,} events of {segments:,} segments".format(**total))
        out.write("{merged:,} hours merged, {days:,} old days removed".format(**total))
        if total["dropped"]:
            out.write("{dropped:,} segments deleted because the disk is full".format(**total))
    if wrong:
        raise AnalyticsError("\n".join(wrong))


def _expire(out: OutputWrapper, lake: Lake, keep_days: int, *, json_wanted: bool) -> None:
    from relay.analytics import retention

    try:
        with lake.changing():
            gone = retention.expire(lake, keep_days, time.time(), sure=True)
    except OSError as error:
        raise AnalyticsError(f"old days stay: {error}") from None
    if json_wanted:
        out.write(json.dumps({"days": [str(day) for day in gone]}, indent=2))
    else:
        out.write(f"{len(gone):,} old days removed")
