"""The doctor: checks everything a relay depends on, and says what to do about problems.

Checks are functions that yield findings. None of them changes anything, each ends within seconds,
and one that fails is reported as a finding itself, so that the others still run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Final

from relay.ops.doctor import (
    certificates,
    lattice,
    machine,
    mux,
    recorded,
    remote,
    running,
    sbd,
    stores,
)
from relay.ops.doctor.finding import Check, Finding, Level, fault
from relay.ops.redis_client import may_be_given_up

__all__ = ["CHECKS", "Finding", "Level", "examine"]

logger = logging.getLogger(__name__)

CHECKS: Final[tuple[Check, ...]] = (
    machine.open_files,
    machine.accept_queue,
    machine.memory,
    machine.data_folder,
    machine.hot_path,
    machine.contradictions,
    certificates.own_certificate,
    certificates.authorities,
    stores.redis_server,
    stores.database,
    running.domains,
    running.tokens,
    running.listener,
    running.workers,
    running.addresses,
    running.celery,
    running.alarms,
    mux.listeners,
    mux.limits,
    sbd.listeners,
    sbd.hook,
    sbd.clients,
    sbd.limits,
    lattice.processes,
    lattice.trust,
    lattice.monitor,
    lattice.policies,
    recorded.lake,
    remote.federation,
    remote.chain,
)


def examine(checks: Iterable[Check] = CHECKS) -> Iterator[Finding]:
    """Run the checks one after another; yield findings as they are made."""
    with may_be_given_up():
        for check in checks:
            yield from _findings(check)


def _findings(check: Check) -> Iterator[Finding]:
    try:
        yield from check()
    except Exception as error:  # operators run the doctor when things are broken
        logger.debug("check %s broke", check.__name__, exc_info=True)
        yield fault(
            f"doctor.{check.__name__}",
            f"this check could not be made: {type(error).__name__}: {error}",
            "run it with RMB_LOG__LEVEL=debug for the reason, and tell us",
        )
