"""The rules of the alarms, as data; `docs/operate/runbook.md` is written from this table.

A rule watches one kind of reading (`relay.alarms.readings`). Where there are many of a kind, each
subject (a relay, a worker, a queue) has an alarm of its own. Numbers are the defaults: an operator
changes them with `relay.alarms.services.set_rule`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from relay.alarms.machine import Limits


class Severity(StrEnum):
    """How bad it is: `info` needs nobody, `warning` can wait for the morning, `critical` cannot."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """For comparing: the worse, the higher."""
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Attributes:
        key: its name in URLs, commands and events.
        title: what is the matter, in a few words.
        unit: of the readings; empty for those that are 0 or 1.
        threshold, clear, hold_s, clear_hold_s, rising: see `machine.Limits`.
        subject: what an alarm of it is about; empty where there is only one.
        starts: what it watches starts with the relay: it begins to fire no earlier than
            `keys.STARTING_S` after a start.
        meaning: what it says about the relay.
        runbook: what to do, one step each.
    """

    key: str
    title: str
    severity: Severity
    unit: str
    threshold: float
    clear: float
    hold_s: float
    clear_hold_s: float
    meaning: str
    runbook: tuple[str, ...]
    subject: str = ""
    rising: bool = True
    starts: bool = False

    @property
    def limits(self) -> Limits:
        """The defaults."""
        return Limits(self.threshold, self.clear, self.hold_s, self.clear_hold_s, self.rising)

    @property
    def runbook_text(self) -> str:
        """Meaning and steps, as sent with an alarm."""
        steps = [f"{number}. {step}" for number, step in enumerate(self.runbook, 1)]
        return "\n".join((self.meaning, *steps))


class Override(NamedTuple):
    """What an operator changed about a rule; None is the default."""

    threshold: float | None = None
    clear: float | None = None
    hold_s: float | None = None
    enabled: bool = True


def limits_of(rule: Rule, override: Override | None) -> Limits:
    """A rule's numbers with the operator's in place of some.

    With a threshold of its own and no clear threshold, that one keeps its proportion.
    """
    if override is None:
        return rule.limits
    threshold = rule.threshold if override.threshold is None else override.threshold
    clear = override.clear
    if clear is None:
        clear = rule.clear * threshold / rule.threshold
    hold_s = rule.hold_s if override.hold_s is None else override.hold_s
    return Limits(threshold, clear, hold_s, rule.clear_hold_s, rule.rising)


INFO: Final = Severity.INFO
WARNING: Final = Severity.WARNING
CRITICAL: Final = Severity.CRITICAL

RULES: Final[tuple[Rule, ...]] = (
    Rule(
        "redis_away", "Redis does not answer", CRITICAL, "", 1, 0, 10, 10,
        "Queues, the session directory and background work live in Redis. Sessions stay connected "
        "and wait; nothing is delivered and nobody can sign in until it answers.",
        (
            "See who says what: `curl -s localhost:8081/ready`.",
            "Ask the server itself: `redis-cli -u $RMB_REDIS__URL ping` (a relay started with "
            "`--embedded` logs to `valkey/server.log` in its data folder).",
            "`LOADING` means that it reads its file after a start: wait.",
            "Start it again if it ended. Workers reconnect by themselves and settle what was in "
            "doubt; none has to be restarted.",
        ),
    ),
    Rule(
        "database_away", "The database does not answer", CRITICAL, "", 1, 0, 10, 10,
        "Sessions and queues go on without the database. Twins that no worker knows yet cannot be "
        "looked up in the registry, history is dropped and counted, and the operator site is down.",
        (
            "See the error: `curl -s localhost:8081/ready`.",
            "PostgreSQL: `systemctl status postgresql`, `psql $RMB_DATABASE__URL -c 'select 1'`. "
            "Too many connections: `select count(*) from pg_stat_activity`.",
            "SQLite: `df -h` on the data folder; a command that holds the file for long (a backup, "
            "an import) shows in `fuser -v relay.sqlite3`.",
        ),
    ),
    Rule(
        "redis_memory", "Redis is almost out of memory", CRITICAL, "%", 85, 75, 30, 60,
        "At 100 % of `maxmemory` Redis refuses messages: senders are told `storage_full`. Without "
        "a `maxmemory` the reading is the part of the machine's memory.",
        (
            "What it is spent on: `redis-cli -u $RMB_REDIS__URL --bigkeys` and `info memory`.",
            "Whose messages wait: `manage.py rmb_queue list --help`; "
            "queues of banned or removed twins can be purged.",
            "Federation's outbox grows while a partner is down: see `partner_down`.",
            "Give it more: `redis-cli -u $RMB_REDIS__URL config set maxmemory 4gb`, and the same "
            "in its configuration file. Keep a third free for the rewrite of its file.",
        ),
    ),
    Rule(
        "redis_policy", "Redis may throw queues away", CRITICAL, "", 1, 0, 5, 10,
        "With a `maxmemory-policy` other than `noeviction` Redis deletes queues without a word "
        "when its memory is full. Workers are not ready until it is changed.",
        (
            "`redis-cli -u $RMB_REDIS__URL config set maxmemory-policy noeviction`, and the same "
            "in its configuration file.",
            "A hosted server that does not allow it is not fit for a relay.",
        ),
    ),
    Rule(
        "redis_persistence", "Redis cannot save its data", CRITICAL, "", 1, 0, 30, 60,
        "The last write or rewrite of the append-only file, or the last snapshot, failed. What is "
        "queued now is lost if the server ends; with snapshots it refuses writes (`MISCONF`).",
        (
            "`redis-cli -u $RMB_REDIS__URL info persistence`: which of the three is not `ok`.",
            "Room on its disk: `df -h` on `redis-cli -u $RMB_REDIS__URL config get dir`.",
            "A rewrite needs memory for what changes meanwhile: `dmesg | grep -i oom`; "
            "`sysctl vm.overcommit_memory` should be 1.",
            "Try again: `redis-cli -u $RMB_REDIS__URL bgrewriteaof`.",
        ),
    ),
    Rule(
        "redis_went_back", "Redis lost what it had acknowledged", CRITICAL, "times", 1, 0, 0, 300,
        "A worker reconnected, and Redis lacks the last batch that it had confirmed: a restart "
        "from an older file, or a fail-over to a replica that was behind. Messages are lost.",
        (
            "What happened to the server: its log, `redis-cli -u $RMB_REDIS__URL info server` "
            "(`uptime_in_seconds`).",
            "Use `appendonly yes`; `appendfsync everysec` may lose two seconds when the machine "
            "dies, or when the server is killed while its disk is busy; `always` loses nothing.",
            "Twins ask again by themselves where they wait for answers; tell them otherwise.",
        ),
    ),
    Rule(
        "redis_restarted", "Redis restarted", INFO, "times", 1, 0, 0, 300,
        "A worker reconnected to another run of Redis: a restart or a fail-over. Each worker "
        "compares the last batch that was confirmed to it with what Redis holds: if that is "
        "missing, `redis_went_back` fires as well.",
        ("Nothing, if it was you. Otherwise read the log of the server for the reason.",),
    ),
    Rule(
        "worker_silent", "A worker gives no sign of life", CRITICAL, "s", 10, 5, 5, 10,
        "Its event loop hangs, the machine swaps, or it ended and its successor does not come up. "
        "Its sessions are served by nobody.",
        (
            "The page Workers of the operator site, or `curl -s localhost:8081/metrics | grep "
            "relay_worker`.",
            "The relay's log: `worker N (pid P) ...; starting it again`, and what came before.",
            "It is there and does nothing: `top -H -p PID`, `cat /proc/PID/stack`. Then "
            "`kill PID`: the supervisor starts another, clients come back by themselves.",
        ),
        subject="worker",
    ),
    Rule(
        "worker_restarts", "A worker died and was replaced", WARNING, "times", 1, 0, 0, 300,
        "A worker ended without being asked to, within the last 15 minutes. Its clients "
        "reconnected; nothing that was confirmed is lost.",
        (
            "Why: the relay's log around `starting it again`; `ended by SIGKILL` is often the "
            "kernel's: `dmesg | grep -i 'out of memory'`.",
            "It comes again and again: note the version and the last lines of the log, and report "
            "it.",
        ),
        subject="worker",
    ),
    Rule(
        "background_down", "Background work stands still", CRITICAL, "", 1, 0, 15, 10,
        "No Celery worker takes tasks from this queue. `federation`: nothing leaves for other "
        "relays. `chain`: twins are not followed. `default`: alarms are evaluated by the operator "
        "site alone, and nothing is cleaned up.",
        (
            "The relay's own children (`celery.embedded`): the log says `Celery (...) ...; "
            "starting it again` and why it ended.",
            "Started beside it: `systemctl status` of those units, or start one: `celery -A "
            "rmbsite worker -Q federation,chain,default -c 8`.",
        ),
        subject="Celery queue", starts=True,
    ),
    Rule(
        "queue_near_full", "A queue is almost full", WARNING, "%", 80, 60, 30, 60,
        "Messages for one session pile up: its twin is away, or reads too slowly. At 100 % of "
        "`queue.max_messages` or `queue.max_bytes` senders are refused (`queue_full`).",
        (
            "Whose it is: the subject is `twin` or `twin:session`. Is it connected? See the page "
            "Sessions of the operator site.",
            "How much waits: `manage.py rmb_queue list TWIN`.",
            "Away for good: ban the twin, then `manage.py rmb_queue purge TWIN`. Otherwise the "
            "messages expire after `queue.retention_s`.",
        ),
        subject="queue",
    ),
    Rule(
        "twin_waiting", "A twin has almost as much waiting as it may", WARNING, "%", 80, 60, 30, 60,
        "What waits for all sessions of a twin, or of one source twin in all queues, comes near "
        "`queue.twin_messages`, `queue.twin_bytes`, `queue.twin_queues` or "
        "`queue.unknown_queues`. At 100 % its messages that would wait are refused (`twin_full`, "
        "`source_full`); sessions that read are reached.",
        (
            "Which way: the alarm says what waits for it or of it; the page of the twin shows "
            "both beside its bounds.",
            "It floods others: `manage.py rmb_ban set TWIN`, or a limit: `manage.py rmb_limit set "
            "TWIN COUNT SIZE`.",
            "It is flooded: `manage.py rmb_queue show KEY` names the senders of one of its queues.",
            "It needs more: `manage.py rmb_limit waiting TWIN MESSAGES BYTES QUEUES`.",
        ),
        subject="twin",
    ),
    Rule(
        "outbox_age", "Messages for partner relays wait", WARNING, "s", 300, 60, 60, 60,
        "The oldest message in federation's outbox is this old. Messages expire after an hour.",
        (
            "For whom: the page Outbox of the operator site, and `partner_down`.",
            "Nobody drains it: `background_down`, queue `federation`.",
            "Everything leaves, but slowly: `federation_delivery_seconds` in `/metrics`, and the "
            "latency of each relay on the page Relays.",
        ),
        starts=True,
    ),
    Rule(
        "partner_down", "A partner relay does not answer", WARNING, "failures", 5, 0, 30, 60,
        "This many tries in a row failed. Messages for it wait here, are tried at least once a "
        "minute, and expire after an hour.",
        (
            "What it answers: its own page, below Relays of the operator site, has its last tries "
            "and the next one.",
            "From here: `curl -v https://RELAY/`. A certificate that ran out, a name that does not "
            "resolve and a closed port each say so.",
            "It is back: the relay notices when it hears from it, or use Reset on the page. It is "
            "gone for good: Pause or Block ends the alarm.",
        ),
        subject="relay",
    ),
    Rule(
        "chain_lag", "Twins are behind the chain", CRITICAL, "s", 120, 60, 60, 60,
        "The follower of the chain is this far behind its newest block, or has seen no block for "
        "this time. Known twins go on working; new twins and changes of keys or relays are not "
        "seen.",
        (
            "`manage.py rmb_chain status`: node, height, and what is wrong.",
            "No node can be followed: try them, `curl -s -o /dev/null -w '%{http_code}' "
            "https://NODE`; put others into `substrate.urls`.",
            "Nobody follows: `background_down`, queue `chain`.",
        ),
        starts=True,
    ),
    Rule(
        "limit_storm", "Many messages are refused over limits", WARNING, "messages", 1000, 500, 30,
        120,
        "This many messages of clients were refused within a minute because their twins exceed "
        "their limit. The cause is a program in a loop, or limits that are too low.",
        (
            "Who: the relay's log has one line for each twin and window (`is over its limit`).",
            "One twin: tell its owner, or ban it with an end on the page Limits and bans.",
            "Everybody: `limits.count` and `limits.size` are too low for what your twins do.",
        ),
    ),
    Rule(
        "sbd_auth_failures", "Many SBD clients fail to sign in", WARNING, "failures", 100, 50, 30,
        120,
        "This many SBD clients failed to sign in within a minute: wrong signatures, missing or "
        "unknown tokens, and material that the hook server refused or did not answer for. Nothing "
        "is relayed for them.",
        (
            "Which: the alarm says the reasons; `sbd_ended_bad_signature_total` and "
            "`sbd_auth_failures_*_total` in `/metrics` are their counts.",
            "`hook_failed`: the hook server is away or answers wrongly: `manage.py rmb_doctor`, "
            "`curl -v -X PUT HOOK_URL`.",
            "`no_token`, `bad_token`: clients without a token, or with one that was not used for "
            "`sbd.idle_ms`.",
            "`bad_signature`, `refused`: somebody is trying. Ban the address: `manage.py rmb_ban "
            "set ADDRESS`.",
        ),
    ),
    Rule(
        "sbd_slow_readers", "SBD clients are dropped because they do not read", WARNING, "clients",
        20, 10, 30, 120,
        "The relay dropped this many SBD clients within a minute because more than "
        "`sbd.receiver_bytes` waited for them. Their senders are not slowed; what waited is lost.",
        (
            "Are they sent more than their line takes? `sbd_delivered_bytes_total` and "
            "`sbd_lost_slow_reader_total` in `/metrics`.",
            "One sender floods others: limit it, `manage.py rmb_limit sbd --key=KEY KBIT`, or ban "
            "it, `manage.py rmb_ban set --key=KEY`.",
            "Bursts for good clients on slow lines: raise `sbd.receiver_bytes`. Each client that "
            "does not read may take so much memory.",
        ),
    ),
    Rule(
        "commit_latency", "Redis is slow to store messages", WARNING, "ms", 100, 50, 60, 60,
        "One commit in twenty of this worker took longer within the last minute. Each message "
        "waits for its commit before it is delivered.",
        (
            "The server: `redis-cli -u $RMB_REDIS__URL --latency-history`, `slowlog get 20`.",
            "Its disk, where `appendfsync` is `always` or a rewrite runs: `iostat -x 5`, `info "
            "persistence` (`aof_delayed_fsync`).",
            "Its CPU: one server takes what one core can. `top`, `info cpu`.",
            "The worker itself: `loop_lag` fires as well.",
        ),
        subject="worker",
    ),
    Rule(
        "loop_lag", "A worker is too busy", WARNING, "ms", 250, 100, 15, 60,
        "The worker's event loop came so late within a second: it has more to do than a core can, "
        "or the machine has less to give.",
        (
            "The machine: `uptime`, `top`, `vmstat 5` (columns `si`, `so`, `st`).",
            "All workers alike: `relay.processes` up to the number of cores.",
            "One alone: whom it serves, on the page Sessions; Drain moves its clients.",
        ),
        subject="worker",
    ),
    Rule(
        "check_found", "The sweep found messages that were missed", WARNING, "messages", 1, 0, 0,
        300,
        "Within the last 10 minutes the periodic check found messages in a queue whose session did "
        "not know of them. They are delivered now, but late. This may happen after a worker died "
        "or Redis was away; otherwise it never does.",
        (
            "Did one of the two happen? `worker_restarts`, `redis_away`, `redis_went_back`.",
            "If not: the relay's log has `the check found`; report it with the lines before.",
        ),
        subject="worker",
    ),
    Rule(
        "events_lost", "Recorded events are lost", WARNING, "events", 1, 0, 0, 300,
        "This many events for analytics were lost within the last 10 minutes. `pressure`: more "
        "happened than the disk of `analytics.dir` takes, and eight buffers were full. `disk`: it "
        "refused until a process ended, files that waited went beyond "
        "`analytics.segments_max_bytes`, or `rmb_analytics check --repair` put one aside. No "
        "message is held up; the delivery audit counts apart what falls into such a time.",
        (
            "Which process, and when: `relay_analytics_lost_total` in `/metrics`, and the newest "
            "of `gaps/` in the folder of events.",
            "`disk`: `df -h` on that folder, and the relay's log: `events cannot be written`.",
            "`pressure`: `iostat -x 5`. `analytics.fsync` of `segment` asks less of a disk than "
            "`flush`; `analytics.dir` may be on another one.",
            "Files that waited for too long: `events_waiting`.",
        ),
        subject="reason",
    ),
    Rule(
        "events_waiting", "Recorded events do not come into the lake", WARNING, "s", 300, 60, 30,
        60,
        "The oldest closed file of events on this machine has waited for this time; a compactor "
        "that works takes one within a second. Or no compactor was seen there for this time. Jobs "
        "do not see these events yet. Nothing is lost before `analytics.segments_max_bytes` wait.",
        (
            "`manage.py rmb_doctor` on that machine says what is missing; without Arrow files only "
            "wait: `make setup-analytics`, and restart.",
            "The log of the relay, lines of `relay.analytics.compactor`: a full disk, a folder "
            "that it may not write to.",
            "Workers that run without `runrelay` have no compactor of their own, nor has a relay "
            "that does not record any more: `manage.py rmb_analytics compact`, each minute by "
            "cron.",
            "It works, and does not keep up: `relay_analytics_waiting_bytes` in `/metrics` grows. "
            "It needs one core for a million events a second, and a disk that is not busy.",
        ),
        subject="machine", starts=True,
    ),
    Rule(
        "certificate_expiry", "The TLS certificate expires soon", WARNING, "days", 21, 22, 0, 0,
        "The certificate in `relay.tls_cert` expires in this many days.",
        (
            "`openssl x509 -noout -enddate -in CERT`.",
            "Should it renew itself? `systemctl list-timers`, `certbot renew --dry-run`.",
            "After the file is new: `kill -HUP` of the relay (a rolling restart loads it).",
        ),
        subject="file", rising=False,
    ),
    Rule(
        "certificate_expired", "The TLS certificate is about to end", CRITICAL, "days", 2, 3, 0, 0,
        "The certificate in `relay.tls_cert` ends within two days, or has ended: then no client "
        "and no relay connects any more.",
        (
            "Renew it now: `certbot renew --force-renewal`, or your authority's way.",
            "`kill -HUP` of the relay, then `openssl s_client -connect HOST:443 </dev/null | "
            "openssl x509 -noout -enddate`.",
        ),
        subject="file", rising=False,
    ),
    Rule(
        "clock_step", "The clock was set, or is wrong", WARNING, "s", 2, 1, 0, 60,
        "The clock of this machine jumped within the last 5 minutes, or differs from that of "
        "Redis. Tokens, deadlines and limits go by it.",
        (
            "`timedatectl`, `chronyc tracking`: is it synchronised?",
            "A virtual machine that was paused or moved: once is harmless.",
            "Redis on another machine: its clock may be the wrong one (`redis-cli -u "
            "$RMB_REDIS__URL time`).",
        ),
        subject="clock",
    ),
    Rule(
        "disk", "The data folder's disk is almost full", CRITICAL, "%", 90, 85, 30, 60,
        "The database, and Redis in embedded mode, write there. When it is full both fail.",
        (
            "`df -h`, and what is large: `du -xh --max-depth=2 DATA | sort -h | tail`.",
            "Redis' file shrinks with `redis-cli -u $RMB_REDIS__URL bgrewriteaof`; it needs as "
            "much room again while it runs.",
            "The database: `sessions.keep_closed_days` lower keeps less history.",
        ),
        subject="folder",
    ),
    Rule(
        "receiver_failing", "Alarms do not arrive", WARNING, "s", 600, 0, 0, 60,
        "The oldest notice for this receiver has waited for this time: the receiver does not "
        "answer, or refuses. Other receivers get theirs. Waiting notices are sent in order when it "
        "is back, and given up after a day.",
        (
            "`manage.py rmb_alarms receivers`: the last error.",
            "`manage.py rmb_alarms test RECEIVER`: what it answers now.",
        ),
        subject="receiver", starts=True,
    ),
    Rule(
        "reading_unknown", "Something cannot be measured", WARNING, "s", 60, 0, 0, 30,
        "Readings of this kind could not be taken for this time. Alarms that need them neither "
        "begin nor end.",
        (
            "`manage.py rmb_alarms rules` says what is unknown, and why.",
            "Where Redis or the database is away, that is the reason, and has an alarm of its own.",
        ),
        subject="reading",
    ),
)  # fmt: skip

BY_KEY: Final[dict[str, Rule]] = {rule.key: rule for rule in RULES}
