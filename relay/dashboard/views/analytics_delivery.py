"""The delivery audit: the results of the messages that relays accepted."""

from __future__ import annotations

from typing import Final

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from relay.analytics import listing, summaries
from relay.analytics.models import DeliveryAudit
from relay.dashboard import analytics, spans
from relay.dashboard.bars import bars
from relay.dashboard.figures import Kind
from relay.dashboard.pages import page
from relay.dashboard.states import State, Tone
from relay.dashboard.tables import Ask, Cell, Column, Row, Table, respond
from relay.ops.paging import Page

TITLE: Final = "Delivery audit"

COLUMNS: Final = (
    Column("period", "Day", Cell.LINE, order="period", hint="day of acceptance (UTC)"),
    Column("relay", "Relay", hint="relay that accepted the messages"),
    Column("state", "State", Cell.STATE, hint="whether every message is accounted for"),
    Column("uids", "Messages", Kind.NUMBER, order="uids"),
    Column("accepted", "Accepted", Kind.NUMBER, optional=True, hint="with an accepted row"),
    Column("delivered_once", "Once", Kind.NUMBER, order="once", hint="delivered once"),
    Column("duplicated", "Repeated", Kind.NUMBER, order="duplicated",
           hint="delivered more than once, for example after a lost connection"),
    Column("extra_deliveries", "Extra", Kind.NUMBER, optional=True,
           hint="deliveries beyond the first of each message"),
    Column("late", "Late", Kind.NUMBER, order="late", hint="delivered after more than a minute"),
    Column("dropped", "Dropped", Kind.NUMBER, order="dropped", hint="with a reason"),
    Column("expired", "Expired", Kind.NUMBER, hint="dropped because they expired"),
    Column("conflicting", "Both", Kind.NUMBER, optional=True, hint="delivered and dropped"),
    Column("handed_over", "Handed", Kind.NUMBER,
           hint="accepted by a partner relay that is not recorded here"),
    Column("in_flight", "In flight", Kind.NUMBER,
           hint="without a result, and younger than twice the retention of queues"),
    Column("in_gap", "In gap", Kind.NUMBER,
           hint="without a result, while a recorder lost rows"),
    Column("unaccounted", "Unaccounted", Kind.NUMBER, order="unaccounted",
           hint="without a result for any other reason; must be 0"),
    Column("gap_estimate", "Lost rows", Kind.NUMBER,
           hint="estimated rows lost in gaps of recorders; messages without any row are not "
               "counted anywhere"),
    Column("gap_at_most", "At most", Kind.NUMBER, optional=True,
           hint="highest number of rows that gaps can have lost"),
    Column("gaps", "Gaps", Kind.NUMBER, optional=True,
           hint="periods in which a recorder lost rows, or may have lost rows"),
    Column("gaps_unknown", "Unknown", Kind.NUMBER, optional=True,
           hint="gaps without an estimate"),
    Column("gap_events", "Known", Kind.NUMBER, optional=True,
           hint="rows known to be lost in gaps"),
)  # fmt: skip
ORDERS: Final = {
    "period": "period",
    "uids": "uids",
    "once": "delivered_once",
    "duplicated": "duplicated",
    "late": "late",
    "dropped": "dropped",
    "unaccounted": "unaccounted",
}
NOT_ACCEPTED: Final = "(never accepted)"
UNNAMED: Final = "unknown"
WHOLE: Final = State("all", Tone.GOOD, "every message is accounted for")
LOST: Final = State("not all", Tone.BAD, "messages are lost without a record")
UNSURE: Final = State("gap", Tone.WARNING, "a recorder lost rows, or may have lost rows")
REFUSED: Final = State("apart", Tone.IDLE, "messages without an accepted row, such as refused ones")

ENDS: Final = (
    ("delivered once", "delivered_once"),
    ("delivered more than once", "duplicated"),
    ("dropped", "dropped"),
    ("handed over", "handed_over"),
    ("in flight", "in_flight"),
    ("in a gap", "in_gap"),
    ("unaccounted", "unaccounted"),
)


@page(analytics.VIEW)
def delivery(request: HttpRequest) -> HttpResponseBase:
    """Show the sums of some days, and each day and relay."""
    days = spans.days(request, "audit")
    if days is None:
        return analytics.nothing(request, TITLE, "audit")

    def fetch(ask: Ask) -> Page[Row]:
        rows = listing.rows("audit", days.first, days.last)
        if ask.filters["relay"]:
            rows = rows.filter(relay=ask.filters["relay"])
        found = ask.page(rows, ORDERS)
        return Page([_row(each) for each in found.items], found.next)

    table = Table(
        request, "delivery", COLUMNS, fetch, order="-period",
        filters=[analytics.RELAY], empty="No message was accepted on these days.",
    )  # fmt: skip
    sums = summaries.audited(listing.rows("audit", days.first, days.last))
    context = {
        "days": days,
        "sums": sums,
        "state": state_of(sums["unaccounted"], sums["gaps"] + sums["in_gap"]),
        "bars": bars(((label, sums[name]) for label, name in ENDS if sums[name]), Kind.NUMBER),
    }
    context = analytics.frame(request, context)
    return respond(request, table, "relay_dashboard/analytics_delivery.html", TITLE, context)


def state_of(unaccounted: int, gaps: int) -> State:
    """Return whether every message is accounted for.

    Args:
        unaccounted: number of messages that are not.
        gaps: number of gaps of recorders, plus the messages without a result in them.
    """
    if unaccounted:
        return LOST
    return UNSURE if gaps else WHOLE


def _row(found: DeliveryAudit) -> Row:
    values = {each.key: getattr(found, each.key) for each in COLUMNS if each.key != "state"}
    if found.relay is None:
        return Row({**values, "relay": NOT_ACCEPTED, "state": REFUSED})
    state = state_of(found.unaccounted, found.gaps + found.in_gap)
    return Row({**values, "relay": found.relay or UNNAMED, "state": state})
