"""The display of `rmb_top`: lines of text for a terminal of a given width and height."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from relay.federation.live import PartnerState
from relay.ops.load import Rates, Snapshot, rates, total
from relay.ops.printable import shown
from relay.ops.workers import WorkerState
from relay.twins.chain_state import ChainState

MOST_PARTNERS: Final = 10
_STEPS: Final = ("", "k", "M", "G", "T")


def lines(before: Snapshot, after: Snapshot, title: str, now: float) -> list[str]:
    """Return all lines of the display, whatever the size of the terminal.

    Args:
        before, after: Two snapshots; their difference is shown as rates.
        title: Name of the relay.
        now: Unix time in seconds.
    """
    everything, each = total(before, after), rates(before, after)
    clock = datetime.fromtimestamp(now, UTC)
    found = [
        f"RMB relay {title}  {clock:%Y-%m-%d %H:%M:%S} UTC",
        *_totals(everything, after),
        "",
        *_workers(after.workers, each, now),
        *_partners(after.partners, now),
        *_chain(after.chain, now),
    ]
    return list(map(shown, found))


def fit(text: Sequence[str], columns: int, rows: int) -> list[str]:
    """Cut the lines to the size of a terminal; the last line says how many lines are missing."""
    cut = [line[:columns] for line in text]
    if len(cut) <= rows:
        return cut
    return [*cut[: rows - 1], f"... {len(cut) - rows + 1} more lines"[:columns]]


def amount(value: float) -> str:
    """Format a number in at most five characters: 0, 0.4, 12, 9999, 12k, 3.4M."""
    if 0 < value < 9.95:
        return f"{value:.1f}"
    step = 0
    while round(value) >= 10_000 and step < len(_STEPS) - 1:
        value, step = value / 1000, step + 1
    return f"{value:.0f}{_STEPS[step]}"


def span(seconds: float) -> str:
    """Format a length of time in at most four characters: 45s, 12m, 3h, 9d."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{max(0.0, seconds):.0f}s"


def _totals(load: Rates, after: Snapshot) -> list[str]:
    sessions = sum(worker.all_sessions for worker in after.workers)
    waiting = sum(
        value
        for name, value in after.federation.items()
        if name.startswith("federation_outbox_messages")
    )
    dropped = sorted(load.dropped.items(), key=lambda pair: -pair[1])
    reasons = ", ".join(f"{reason} {amount(count)}/s" for reason, count in dropped)
    return [
        f"in    {amount(load.messages_in):>5} msg/s  {amount(load.bytes_in):>5}B/s    "
        f"queued {amount(load.queued):>5}/s    sessions {sessions:,}",
        f"out   {amount(load.messages_out):>5} msg/s  {amount(load.bytes_out):>5}B/s    "
        f"remote {amount(load.federated):>5}/s    outbox   {waiting:,.0f}",
        f"commit p50 {_bound(load.commit_p50_s)}  p99 {_bound(load.commit_p99_s)}    "
        f"limits {amount(load.limit_hits):>5}/s    redis    {amount(after.redis_bytes)}B",
        f"dropped  {reasons or 'nothing'}",
    ]


def _workers(workers: Sequence[WorkerState], each: dict[str, Rates], now: float) -> list[str]:
    if not workers:
        return ["no relay worker gives a heartbeat: the relay does not run"]
    rows = ["WORKER            STATE     SESSIONS   IN/s  OUT/s  COMMIT p99   LAG ms    UP"]
    for worker in workers:
        load = each.get(worker.boot_id, Rates())
        name = f"{worker.host}/{worker.slot}"
        state = "silent" if worker.late(now) else worker.state
        rows.append(
            f"{name[:17]:<17} {state[:9]:<9} {worker.all_sessions:>8} "
            f"{amount(load.messages_in):>6} {amount(load.messages_out):>6} "
            f"{_bound(load.commit_p99_s):>11} "
            f"{worker.loop_lag_ms:>8.1f} {span(now - worker.started):>5}"
        )
    return rows


def _partners(partners: Sequence[PartnerState], now: float) -> list[str]:
    """Return the lines of partner relays: those with problems first, then the busiest."""
    if not partners:
        return []
    ranked = sorted(partners, key=lambda each: (-each.held.messages, -each.failures, -each.sent))
    rows = ["", "RELAY                    WAITING  OLDEST  FAILED  BACK-OFF   SENT  RECEIVED"]
    for each in ranked[:MOST_PARTNERS]:
        oldest = span(now - each.oldest_at) if each.oldest_at else "-"
        backed_off = span(each.retry_at - now) if each.retry_at > now else "-"
        rows.append(
            f"{each.domain[:24]:<24} {each.held.messages:>7} {oldest:>7} {each.failures:>7} "
            f"{backed_off:>9} {amount(each.sent):>6} {amount(each.received):>9}"
        )
    if len(ranked) > MOST_PARTNERS:
        rows.append(f"... {len(ranked) - MOST_PARTNERS} more relays")
    return rows


def _chain(chain: ChainState | None, now: float) -> list[str]:
    if chain is None:
        return []
    following = chain.following
    complaint = following.complaint(now)
    state = complaint or f"{following.lag_blocks} blocks behind, {following.url}"
    return ["", f"chain  block {following.head_height:,}, {state}"]


def _bound(seconds: float | None) -> str:
    """Format the upper bound of a bucket, in at most eight characters."""
    if seconds is None:
        return "-"
    if math.isinf(seconds):
        return "too slow"
    return f"{seconds * 1000:g} ms"
