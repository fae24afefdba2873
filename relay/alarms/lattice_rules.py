"""Alarm rules for the lattice; see `relay.alarms.rules`."""

from __future__ import annotations

from typing import Final

from relay.alarms.rule import CRITICAL, WARNING, Rule

RULES: Final[tuple[Rule, ...]] = (
    Rule(
        "lattice_forged", "Forged or replayed calls in the lattice", CRITICAL, "calls", 1, 0, 0,
        300,
        "The monitor saw calls within the last 10 minutes that a receiver must not execute: "
        "somebody forged, changed or replayed them, or a program or a clock is wrong. Hosts and "
        "providers check less than the monitor: they execute what is replayed.",
        (
            "The subject is the reason; `manage.py rmb_lattice findings` and the page Lattice "
            "list the calls.",
            "`signature`, `issuer`: the sender has no trusted cluster key. If the cluster is "
            "yours, add its public key to `lattice.issuers`; otherwise, find the NATS user that "
            "may publish there and revoke it.",
            "`replay`, `hash`, `target_url`, `origin_url`, `target`: somebody who can read "
            "the calls sends them again or changes them. Restrict who may subscribe to and "
            "publish on `wasmbus.rpc.>`.",
            "`issued_at`, `expired`, `not_yet`: compare the clocks of the hosts with this "
            "machine's. If they agree, it is a replay of an old call.",
            "`undecodable`, `size`, `host_id`, `token`: a program of another version, or "
            "somebody who probes hosts: a short `host_id` ends the actor that receives it.",
            "If a cluster key leaked: remove it from `lattice.issuers` and from the issuers of "
            "all hosts, and restart hosts and providers.",
        ),
        subject="reason",
    ),
    Rule(
        "lattice_unknown", "Calls of unknown origin in the lattice", WARNING, "calls", 1, 0, 120,
        120,
        "For two minutes the monitor has seen calls that a member of the cluster signed, but "
        "whose origin, host or link the lattice does not know. Every host and provider of the "
        "cluster can sign calls in the name of any actor.",
        (
            "The subject is the reason; `manage.py rmb_lattice findings` lists the calls.",
            "`origin_unknown`: no claims are registered. Programs that take part without a host "
            "must register their claims.",
            "`host_unknown`, `host_origin`: the named host does not answer, or does not run the "
            "origin. Compare `manage.py rmb_lattice hosts` and `actors`.",
            "`unlinked`: `manage.py rmb_lattice links`; put the link, or stop the caller.",
        ),
        subject="reason",
    ),
    Rule(
        "lattice_unlooked", "The monitor of the lattice does not check all calls", WARNING, "calls",
        1, 0, 0, 120,
        "In one minute, the monitor could not check this many calls, because they came too fast: "
        "one core is not enough for the calls of the lattice, or somebody sends many to hide some.",
        (
            "`lattice_judged_total` and `lattice_unjudged_total` in `/metrics` show the rates.",
            "Check the machine: `top`. The monitor uses one core.",
            "If `lattice_forged` fires as well, it is a flood of forgeries: find the NATS user "
            "that sends them (`nats server report connections`).",
        ),
    ),
    Rule(
        "lattice_missing", "A process of the lattice does not run", CRITICAL, "", 1, 0, 30, 10,
        "`lattice.enabled` or `lattice.monitor` is set, but no such process reports. Without a "
        "bridge, twins and actors cannot call each other; without a monitor, nobody notices "
        "forged calls.",
        (
            "Read the relay's log: `bridge ... ; starting it again`, or `the monitor of the "
            "lattice`, and the lines before: a missing setting, or a file that cannot be read.",
            "`manage.py rmb_doctor` checks settings, keys and servers of the lattice.",
            "If these processes run elsewhere: `manage.py rmb_lattice processes`; each needs the "
            "Redis of this relay.",
        ),
        subject="process", starts=True,
    ),
    Rule(
        "lattice_nats_lost", "No connection to NATS", CRITICAL, "processes", 1, 0, 15, 30,
        "This many bridges or monitors are not connected to the NATS servers of the lattice. "
        "They reconnect by themselves; until then calls fail, and the monitor sees nothing.",
        (
            "`manage.py rmb_lattice processes` shows which of them; the alarm has the last error.",
            "Test the servers of `lattice.servers`: `nc -vz HOST 4222`, `nats server ping`.",
            "`authorization violation`: see `lattice.credentials_file`, and whether the user was "
            "revoked. A TLS error: `lattice.ca_file`, `lattice.cert_file`.",
        ),
        subject="process", starts=True,
    ),
)  # fmt: skip
