"""The page of nodes: resources that the relay uses on each host, and the memory use of Redis."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from relay.dashboard.figures import Kind
from relay.dashboard.pages import page
from relay.dashboard.states import State, Tone
from relay.dashboard.tables import Ask, Cell, Column, Row, Table, respond_all
from relay.ops import nodes as services
from relay.ops import redis_use
from relay.ops.nodes import Disk, Node, Process
from relay.ops.paging import Page, one_of, page_of

MACHINES: Final = (
    Column("host", "Machine", Cell.TEXT, hint="host name and process id of the supervisor"),
    Column(
        "load",
        "Load",
        Cell.LINE,
        hint="average number of runnable processes over 1, 5 and 15 minutes",
    ),
    Column("cores", "Cores", Kind.NUMBER),
    Column(
        "relay_bytes",
        "Relay",
        Kind.BYTES,
        hint="memory of all processes of the relay; shared memory counts several times",
    ),
    Column("memory_free_bytes", "Free", Kind.BYTES, hint="memory available to new processes"),
    Column("memory_bytes", "Memory", Kind.BYTES, hint="of the machine, or of the container"),
    Column(
        "at", "Seen", Cell.MOMENT, hint="time of the last report; supervisors report every 10 s"
    ),
)
PROCESSES: Final = (
    Column("name", "Process", Cell.TEXT, order="name"),
    Column("host", "Machine", Cell.TEXT),
    Column("rss_bytes", "Memory", Kind.BYTES, order="memory",
           hint="resident memory, including memory shared with other processes"),
    Column("uss_bytes", "Private", Kind.BYTES,
           hint="memory not shared with other processes; not measured above 1 GiB"),
    Column("cpu", "CPU", Kind.SHARE, order="cpu", hint="share of one core, over the last 10 s"),
    Column("files", "Open files", Kind.NUMBER, order="files", hint="files and sockets"),
    Column("files_limit", "File limit", Kind.NUMBER, hint="most files it may open; -: no limit"),
    Column("pid", "Process id", Cell.LINE, optional=True),
)  # fmt: skip
DISKS: Final = (
    Column("use", "Data", Cell.TEXT),
    Column("host", "Machine", Cell.TEXT),
    Column("used_bytes", "Used", Kind.BYTES, hint="checked every minute"),
    Column("state", "Note", Cell.STATE),
    Column("free_bytes", "Free", Kind.BYTES, hint="free space on this disk"),
    Column("size_bytes", "Disk", Kind.BYTES),
    Column("path", "Path", Cell.CODE),
)
REDIS: Final = (
    Column("use", "Used for", Cell.TEXT),
    Column("bytes", "Memory", Kind.BYTES, hint="estimate from a sample of the keys"),
    Column("share", "Share", Kind.SHARE),
)
ALL: Final = 1000
"""Maximum rows of tables that show all of them."""
PARTIAL: Final = State("at least", Tone.INFO, "there are more files than were counted")
ORDERS: Final[dict[str, Callable[[tuple[Node, Process]], float | str]]] = {
    "name": lambda each: f"{each[0].name} {each[1].name}",
    "memory": lambda each: each[1].rss_bytes or 0,
    "cpu": lambda each: each[1].cpu or 0.0,
    "files": lambda each: each[1].files or 0,
}


@page("worker.view")
def nodes(request: HttpRequest) -> HttpResponseBase:
    """Show all hosts with their processes and disks, and Redis."""
    told = functools.cache(services.list_nodes)

    def machines(ask: Ask) -> Page[Row]:
        return Page([_machine(each) for each in told()], "")

    def processes(ask: Ask) -> Page[Row]:
        listed = [(node, process) for node in told() for process in node.processes]
        value = ORDERS[one_of(ask.order, tuple(ORDERS))[0]]
        found, following = page_of(
            listed,
            lambda each: (value(each), f"{each[0].name} {each[1].pid}"),
            ask.order, ask.limit, ask.cursor,
        )  # fmt: skip
        return Page([_process(*each) for each in found], following)

    def disks(ask: Ask) -> Page[Row]:
        rows = [_disk(node, each) for node in told() for each in node.disks]
        file_bytes = redis_use.look().file_bytes
        if file_bytes:
            rows.append(Row({"use": "append-only file", "host": "Redis", "used_bytes": file_bytes}))
        return Page(rows, "")

    def redis(ask: Ask) -> Page[Row]:
        found = redis_use.look()
        uses = {"all": found.used_bytes, **found.uses}
        whole = found.used_bytes or 1
        rows = [
            Row({"use": name, "bytes": size, "share": size / whole}) for name, size in uses.items()
        ]
        return Page(rows, "")

    empty = "No supervisor has reported within a minute."
    tables = (
        Table(request, "nodes", MACHINES, machines, title="Machines", live=True, prefix="m-",
              short=ALL, empty=empty),
        Table(request, "processes", PROCESSES, processes, order="name", title="Processes",
              live=True, empty=empty),
        Table(request, "redis-use", REDIS, redis, title="Memory of Redis, an estimate",
              live=True, prefix="r-", short=ALL),
        Table(request, "disks", DISKS, disks, title="Disks", live=True, prefix="d-", short=ALL,
              empty=empty),
    )  # fmt: skip
    return respond_all(request, tables, "relay_dashboard/tables.html", "Nodes")


def _machine(node: Node) -> Row:
    return Row(
        {
            "host": node.name,
            "load": " ".join(f"{each:.2f}" for each in node.load),
            "cores": node.cores,
            "relay_bytes": sum(each.rss_bytes or 0 for each in node.processes) or None,
            "memory_free_bytes": node.memory_free_bytes,
            "memory_bytes": node.memory_bytes,
            "at": node.at,
        }
    )


def _process(node: Node, process: Process) -> Row:
    names = ("name", "rss_bytes", "uss_bytes", "cpu", "files", "files_limit", "pid")
    return Row({"host": node.host, **{name: getattr(process, name) for name in names}})


def _disk(node: Node, disk: Disk) -> Row:
    names = ("use", "used_bytes", "free_bytes", "size_bytes", "path")
    values = {name: getattr(disk, name) for name in names}
    return Row({"host": node.host, "state": PARTIAL if disk.partial else None, **values})
