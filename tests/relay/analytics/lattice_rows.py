"""Synthetic events of the lattice for tests of the jobs."""

from __future__ import annotations

from pathlib import Path

from tests.relay.analytics import rows
from tests.relay.analytics.rows import DAY, HOUR, MINUTE, RELAYS, SECOND, Event

NOON = rows.midnight(rows.FIRST) + 8 * DAY + 12 * HOUR

NO_NAMES = (None, None, None)


def invoked(
    us: int,
    kind: str,
    *,
    src: str | None = "M1",
    dst: str | None = "V1",
    twin: int | None = 7,
    reason: str = "none",
    latency: int | None = None,
    size: int = 100,
    answer: int | None = None,
    names: tuple[str | None, str | None, str | None] = ("default", "a:kv", "Kv.Get"),
    host: str | None = "N1",
    uid: int = 0,
) -> Event:
    """Return a row of the lattice; `names` are link, contract and operation."""
    ends = (twin if kind == "lattice_out" else None, twin if kind == "lattice_in" else None)
    return Event(
        *(us, RELAYS[0], kind, *ends, "", size, latency, reason, None, uid, "lattice", src, dst),
        *(*names, host, answer),
    )


def write(folder: Path) -> None:
    """Add the events of a lattice to a day of a lake."""
    rows.write(folder, [*calls(NOON), *odd(NOON), *floods(NOON + HOUR)], name="lattice")


def calls(start: int) -> list[Event]:
    """Return calls over a bridge with each outcome, and what a monitor saw, some of it forged."""
    found = []
    for n in range(240):
        us, kind = start + n * MINUTE // 2, "lattice_in" if n % 3 == 0 else "lattice_out"
        names = (("", "", f"Op.{n % 7}"), ("default", "a:kv", "Kv.Get"))[n % 2]
        fate = ("none", "none", "timed_out", "remote_error", "no_responders", "rate")[n % 6]
        fate = "malformed" if n % 11 == 0 else fate
        found.append(
            invoked(
                us, kind, src=f"M{n % 5}", dst=f"V{n % 4}", twin=n % 9, names=names, reason=fate,
                latency=None if n % 13 == 0 else (n * 37_501) % (3 * SECOND), size=n,
                answer=n * 3 if fate == "none" else None, uid=n,
            )
        )  # fmt: skip
        verdict = ("none", "none", "replay", "signature")[n % 4]
        seen = {"names": names, "reason": verdict, "host": f"N{n % 2}"}
        found.append(invoked(us + 1, "lattice_seen", src=f"M{n % 6}", **seen))  # type: ignore[arg-type]
    return found


def odd(start: int) -> list[Event]:
    """Return rows with missing values."""
    found = [invoked(start, "lattice_in", reason="timed_out", names=("", "", "Never"))] * 2
    for kind in ("lattice_in", "lattice_out", "lattice_seen"):
        whole = invoked(start, kind, latency=5, answer=6)
        found += [whole._replace(**{name: None}) for name in Event._fields]
        for reason in ("none", "undecodable"):
            nobody = {"src": None, "dst": None, "twin": None, "host": None}
            found.append(invoked(start, kind, names=NO_NAMES, reason=reason, **nobody))  # type: ignore[arg-type]
    return found


def floods(start: int) -> list[Event]:
    """Return more slow operations, other operations and origins than the tables hold."""
    found = [
        invoked(start, "lattice_out", latency=SECOND, names=("", "", f"Slow.{n:03}"))
        for n in range(120)
    ]
    for n in range(1_050):
        found.append(invoked(start, "lattice_seen", src=f"X{n}", reason="issuer"))
        found.append(invoked(start, "lattice_seen", names=("", "", f"New.{n}")))
    return found
