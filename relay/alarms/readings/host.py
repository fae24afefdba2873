"""Readings of this machine (disk, certificate, clock), and of whether alarms arrive."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Final

from django.db.models import Min
from redis.exceptions import RedisError

from relay.alarms.models import Delivery, Outcome
from relay.alarms.readings.look import Look, Reading, Readings, machine
from relay.ops.wording import duration

DAY_S: Final = 86_400.0
MAX_FILE_BYTES: Final = 1 << 20
STEPS_S: Final = 300.0
"""Seconds for which a step of the clock is reported."""
MAX_STEPS: Final = 20
MAX_MACHINES: Final = 8
LEAST_STEP_S: Final = 0.05
"""Smallest step in seconds that counts; less may pass between reading two clocks."""


class UnreadableError(Exception):
    """A file does not have the expected content."""


def disk(look: Look) -> Readings:
    """Read how full the disk of the data folder is, as `df` computes it."""
    folder: Path = look.config.data_dir
    found = os.statvfs(folder)
    used = found.f_blocks - found.f_bfree
    usable = used + found.f_bavail
    part = 100 * used / usable if usable else 0.0
    free = found.f_bavail * found.f_frsize
    return {"disk": {str(folder): Reading(round(part, 1), f"{free:,} bytes free")}}


def certificate(look: Look) -> Readings:
    """Read how long the relay's certificate is valid; nothing if none is configured.

    Raises:
        UnreadableError: the file contains no certificate.
    """
    path = look.config.relay.tls_cert
    if not path:
        return {}
    from cryptography import x509  # takes a tenth of a worker's start; most have no certificate

    with Path(path).open("rb") as file:
        content = file.read(MAX_FILE_BYTES)
    try:
        # The first certificate is the relay's; the others are the chain to its authority.
        first = x509.load_pem_x509_certificates(content)[0]
    except (ValueError, IndexError) as error:
        raise UnreadableError(f"{path}: {error}") from None
    left_s = first.not_valid_after_utc.timestamp() - look.now
    detail = f"valid until {first.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
    reading = Reading(round(left_s / DAY_S, 2), detail)
    return {"certificate_expiry": {path: reading}, "certificate_expired": {path: reading}}


def clock(look: Look) -> Readings:
    """Read steps of this machine's clock, and its difference from the clock of Redis."""
    offset_s = look.now - look.monotonic
    offsets: dict[str, float] = look.memory.get("offsets", {})
    before_s = offsets.pop(machine(), offset_s)
    step_s = offset_s - before_s
    steps: list[list[Any]] = [
        each
        for each in look.memory.get("steps", [])
        if each[0] == machine() and look.monotonic - each[1] < STEPS_S
    ]
    if abs(step_s) > LEAST_STEP_S:
        steps.append([machine(), look.monotonic, round(step_s, 3)])
    offsets[machine()] = offset_s
    look.memory["offsets"] = dict(list(offsets.items())[-MAX_MACHINES:])
    look.memory["steps"] = steps[-MAX_STEPS:]
    largest = max((step for *_, step in steps), key=abs, default=0.0)
    detail = f"set by {largest:+.1f} s within 5 minutes" if largest else ""
    return {
        "clock_step": {
            "this machine": Reading(round(abs(largest), 2), detail),
            "Redis": _beside_redis(look),
        }
    }


def receivers(look: Look) -> Readings:
    """Read the age of the oldest notice that waits for each receiver."""
    waiting = (
        Delivery.objects.filter(outcome=Outcome.WAITING, receiver__enabled=True)
        .values("receiver__name", "receiver__last_error")
        .annotate(oldest=Min("created"))
        .order_by()
    )
    found = {}
    for each in waiting:
        age_s = max(0.0, look.now - each["oldest"].timestamp())
        error = each["receiver__last_error"] or "not sent yet"
        reading = Reading(round(age_s, 3), f"waits for {duration(age_s)}: {error}")
        found[each["receiver__name"]] = reading
    return {"receiver_failing": found}


def _beside_redis(look: Look) -> Reading:
    """Read the difference between the two clocks, unless the time the query took explains it."""
    began = time.monotonic()
    try:
        seconds, micros = look.redis.time()
    except RedisError:
        return Reading(None, "Redis does not answer")
    took_s = time.monotonic() - began
    # `look.now` was read earlier in this look; the same time has passed on the other clock.
    here = look.now + (began - look.monotonic)
    there = seconds + micros / 1e6
    ahead_s = there - here
    if -LEAST_STEP_S <= ahead_s <= took_s + LEAST_STEP_S:
        ahead_s = 0.0
    return Reading(round(abs(ahead_s), 2), f"Redis' clock is {ahead_s:+.1f} s from ours")
