"""The alarm rules, as data; `docs/operate/runbook.md` is generated from this table.

A rule watches one kind of reading (`relay.alarms.readings`). If a kind has several subjects
(relays, workers, queues), each has its own alarm. The numbers are defaults: operators change them
with `relay.alarms.services.set_rule`.
"""

from __future__ import annotations

from typing import Final

from relay.alarms import lattice_rules
from relay.alarms.rule import CRITICAL, INFO, WARNING, Override, Rule, Severity, limits_of

__all__ = ["BY_KEY", "RULES", "Override", "Rule", "Severity", "limits_of"]

RULES: Final[tuple[Rule, ...]] = (
    Rule(
        "redis_away", "Redis does not answer", CRITICAL, "", 1, 0, 10, 10,
        "Queues, the session directory and background work need Redis. Sessions stay "
        "connected, but the relay delivers no messages and accepts no sign-ins until "
        "Redis answers.",
        (
            "See the error: `curl -s localhost:8081/ready`.",
            "Test the server: `redis-cli -u $RMB_REDIS__URL ping`. The log of an "
            "embedded server is `valkey/server.log` in the data folder.",
            "`LOADING`: the server reads its file after a start. Wait.",
            "If the server has ended, start it again. Workers reconnect by themselves; "
            "you need not restart them.",
        ),
    ),
    Rule(
        "database_away", "The database does not answer", CRITICAL, "", 1, 0, 10, 10,
        "Sessions and queues work without the database. Workers cannot look up new twins "
        "in the registry, session history is lost, and the operator site does not work.",
        (
            "See the error: `curl -s localhost:8081/ready`.",
            "PostgreSQL: `systemctl status postgresql`, `psql $RMB_DATABASE__URL -c 'select 1'`. "
            "Too many connections: `select count(*) from pg_stat_activity`.",
            "SQLite: `df -h` on the data folder; `fuser -v relay.sqlite3` shows a "
            "command that locks the file (a backup, an import).",
        ),
    ),
    Rule(
        "redis_memory", "Redis is almost out of memory", CRITICAL, "%", 85, 75, 30, 60,
        "At 100 % of `maxmemory` Redis refuses messages, and senders get `storage_full`. "
        "Without `maxmemory`, the reading is the share of the machine's memory.",
        (
            "Find what uses the memory: `redis-cli -u $RMB_REDIS__URL --bigkeys` and "
            "`info memory`.",
            "Find long queues: `manage.py rmb_queue list`. Queues of banned or removed "
            "twins can be purged.",
            "The outbox grows while a partner relay does not answer: see `partner_down`.",
            "Raise the limit: `redis-cli -u $RMB_REDIS__URL config set maxmemory 4gb`, and "
            "set the same in the configuration file of Redis. Keep a third of the memory free: "
            "Redis needs it to rewrite its file.",
        ),
    ),
    Rule(
        "redis_policy", "Redis may delete queues", CRITICAL, "", 1, 0, 5, 10,
        "With a `maxmemory-policy` other than `noeviction`, Redis deletes queues when "
        "its memory is full. Workers are not ready until the policy is changed.",
        (
            "`redis-cli -u $RMB_REDIS__URL config set maxmemory-policy noeviction`, and "
            "set the same in the configuration file of Redis.",
            "Do not use a hosted server that does not allow this policy.",
        ),
    ),
    Rule(
        "redis_persistence", "Redis cannot save its data", CRITICAL, "", 1, 0, 30, 60,
        "The last write or rewrite of the append-only file, or the last snapshot, "
        "failed. Queued messages are lost if the server ends. With snapshots, Redis also "
        "refuses writes (`MISCONF`).",
        (
            "`redis-cli -u $RMB_REDIS__URL info persistence` shows which of the three is "
            "not `ok`.",
            "Check its disk: `df -h` on `redis-cli -u $RMB_REDIS__URL config get dir`.",
            "A rewrite needs memory: `dmesg | grep -i oom`; `sysctl "
            "vm.overcommit_memory` should be 1.",
            "Try again: `redis-cli -u $RMB_REDIS__URL bgrewriteaof`.",
        ),
    ),
    Rule(
        "redis_went_back", "Redis lost confirmed writes", CRITICAL, "times", 1, 0, 0, 300,
        "A worker reconnected, and Redis does not have the last batch that it had "
        "confirmed: Redis restarted with an older file, or failed over to a replica that "
        "was behind. Messages are lost.",
        (
            "Find the reason: the log of the server, `redis-cli -u $RMB_REDIS__URL info "
            "server` (`uptime_in_seconds`).",
            "Use `appendonly yes`. With `appendfsync everysec`, two seconds may be lost when the "
            "machine fails, or when the server is killed while its disk is busy; with `always`, "
            "nothing is lost.",
            "Twins that wait for answers send their requests again. Inform the owners of the "
            "other twins.",
        ),
    ),
    Rule(
        "redis_restarted", "Redis restarted", INFO, "times", 1, 0, 0, 300,
        "A worker reconnected and found that Redis had restarted or failed over. Each "
        "worker checks that Redis still has the last batch it had confirmed; if not, "
        "`redis_went_back` fires as well.",
        ("If you restarted Redis, do nothing. Otherwise see the log of the server.",),
    ),
    Rule(
        "worker_silent", "A worker sends no heartbeats", CRITICAL, "s", 10, 5, 5, 10,
        "The event loop of the worker hangs, the machine swaps, or the worker ended and the "
        "relay cannot restart it. The worker does not serve its sessions.",
        (
            "See the page Workers of the operator site, or `curl -s "
            "localhost:8081/metrics | grep relay_worker`.",
            "Read the relay's log: `worker N (pid P) ...; starting it again`, and the "
            "lines before.",
            "If the process exists but hangs: `top -H -p PID`, `cat /proc/PID/stack`. "
            "Then `kill PID`: the supervisor starts a new worker, and clients reconnect "
            "by themselves.",
        ),
        subject="worker",
    ),
    Rule(
        "worker_restarts", "A worker died and was replaced", WARNING, "times", 1, 0, 0, 300,
        "A worker ended unexpectedly within the last 15 minutes. Its clients "
        "reconnected; no confirmed message is lost.",
        (
            "Find the reason in the relay's log near `starting it again`. `ended by "
            "SIGKILL` often means that memory ran out: `dmesg | grep -i 'out of memory'`.",
            "If it happens repeatedly, report it, with the version and the last lines of the log.",
        ),
        subject="worker",
    ),
    Rule(
        "background_down", "Background work has stopped", CRITICAL, "", 1, 0, 15, 10,
        "No Celery worker serves this queue. `federation`: the relay sends no messages "
        "to partner relays. `chain`: the relay does not follow changes of twins. "
        "`default`: only the operator site evaluates alarms, and old data is not deleted.",
        (
            "With `celery.embedded`, the relay's log has `Celery (...) ...; starting it "
            "again` and the reason.",
            "With separate units: `systemctl status` of the units, or start a worker: "
            "`celery -A rmbsite worker -Q federation,chain,default -c 8`.",
        ),
        subject="Celery queue", starts=True,
    ),
    Rule(
        "queue_near_full", "A queue is almost full", WARNING, "%", 80, 60, 30, 60,
        "Many messages wait for one session: its client is not connected, or reads too "
        "slowly. At 100 % of `queue.max_messages` or `queue.max_bytes` the relay refuses "
        "messages for it (`queue_full`).",
        (
            "The subject is `twin` or `twin:session`. The page Sessions of the operator "
            "site shows whether it is connected.",
            "See its queues: `manage.py rmb_queue list TWIN`.",
            "If the twin will not return: ban it, then `manage.py rmb_queue purge TWIN`. "
            "Otherwise the messages expire after `queue.retention_s`.",
        ),
        subject="queue",
    ),
    Rule(
        "twin_waiting", "A twin has too many waiting messages", WARNING, "%", 80, 60, 30, 60,
        "The messages that wait for one twin, or that one twin has sent, are near "
        "`queue.twin_messages`, `queue.twin_bytes`, `queue.twin_queues` or "
        "`queue.unknown_queues`. At 100 % the relay refuses further messages that would "
        "have to wait (`twin_full`, `source_full`); connected sessions that read still "
        "get messages.",
        (
            "The alarm says whether messages for the twin or from the twin wait; the "
            "page of the twin shows both and their limits.",
            "If it floods others: `manage.py rmb_ban set TWIN`, or limit it: `manage.py "
            "rmb_limit set TWIN COUNT SIZE`.",
            "If others flood it: `manage.py rmb_queue show KEY` shows the senders of a queue.",
            "If it needs a higher limit: `manage.py rmb_limit waiting TWIN MESSAGES "
            "BYTES QUEUES`.",
        ),
        subject="twin",
    ),
    Rule(
        "outbox_age", "Messages for partner relays wait", WARNING, "s", 300, 60, 60, 60,
        "The reading is the age of the oldest message in the outbox. Messages expire "
        "after `queue.retention_s`.",
        (
            "See the page Outbox of the operator site, and `partner_down`.",
            "If no Celery worker sends the messages: `background_down`, queue `federation`.",
            "If messages are sent, but slowly: `federation_delivery_seconds` in "
            "`/metrics`, and the latency of each relay on the page Relays.",
        ),
        starts=True,
    ),
    Rule(
        "partner_down", "A partner relay does not answer", WARNING, "failures", 5, 0, 30, 60,
        "The reading is the number of failed delivery attempts in a row. Messages for "
        "it wait here; this relay retries at least once a minute. Messages expire after "
        "`queue.retention_s`.",
        (
            "The page of the partner relay, below Relays of the operator site, shows its "
            "answers and the next attempt.",
            "Test from this machine: `curl -v https://RELAY/` shows an expired "
            "certificate, a name that does not resolve or a closed port.",
            "If the partner relay works again, use Reset on its page, or wait for the "
            "next attempt. If it is gone permanently, Pause or Block ends the alarm.",
        ),
        subject="relay",
    ),
    Rule(
        "chain_lag", "Twins are behind the chain", CRITICAL, "s", 120, 60, 60, 60,
        "The relay is this far behind the newest block of the chain, or has seen no "
        "block for this time. Known twins work; the relay does not see new twins, or "
        "changes of keys and relays.",
        (
            "`manage.py rmb_chain status` shows the node, its block and the error.",
            "If no node works: test them with `curl -s -o /dev/null -w '%{http_code}' "
            "https://NODE`, and add others to `substrate.urls`.",
            "If no Celery worker follows the chain: `background_down`, queue `chain`.",
        ),
        starts=True,
    ),
    Rule(
        "limit_storm", "Many messages are refused over limits", WARNING, "messages", 1000, 500, 30,
        120,
        "The relay refused this many messages within a minute because twins exceeded "
        "their limits. The cause is a program in a loop, or limits that are too low.",
        (
            "The relay's log has a line for each twin and minute (`is over its limit`).",
            "If it is one twin: inform its owner, or ban it for a limited time on the page Limits "
            "and bans.",
            "If there are many: raise `limits.count` and `limits.size`.",
        ),
    ),
    Rule(
        "sbd_auth_failures", "Many SBD clients fail to sign in", WARNING, "failures", 100, 50, 30,
        120,
        "This many SBD clients failed to sign in within a minute: their signature was wrong, their "
        "token was missing or unknown, or the hook server refused them or did not answer. The "
        "relay relays no packets for them.",
        (
            "The alarm lists the reasons; `sbd_ended_bad_signature_total` and "
            "`sbd_auth_failures_*_total` in `/metrics` count them.",
            "`hook_failed`: the hook server does not answer, or its answer is invalid. Test it: "
            "`manage.py rmb_doctor`, `curl -v -X PUT HOOK_URL`.",
            "`no_token`, `bad_token`: clients have no token, or one that expired because it was "
            "not used for `sbd.idle_ms`.",
            "`bad_signature`, `refused`: someone may be guessing. Ban the address: `manage.py "
            "rmb_ban set ADDRESS`.",
        ),
    ),
    Rule(
        "sbd_slow_readers", "SBD clients are dropped because they do not read", WARNING, "clients",
        20, 10, 30, 120,
        "The relay dropped this many SBD clients within a minute because more than "
        "`sbd.receiver_bytes` waited for them. The packets that waited are lost; their senders are "
        "not slowed down.",
        (
            "Check whether they get more than their connection can carry: "
            "`sbd_delivered_bytes_total` and `sbd_lost_slow_reader_total` in `/metrics`.",
            "If one sender floods others, limit it: `manage.py rmb_limit sbd --key=KEY KBIT`, or "
            "ban it: `manage.py rmb_ban set --key=KEY`.",
            "If normal clients on slow connections get bursts, raise `sbd.receiver_bytes`. Each "
            "client that does not read may use this much memory.",
        ),
    ),
    *lattice_rules.RULES,
    Rule(
        "commit_latency", "Redis is slow to store messages", WARNING, "ms", 100, 50, 60, 60,
        "One in twenty commits of this worker took longer in the last minute. Each "
        "message waits for its commit before it is delivered.",
        (
            "Check the server: `redis-cli -u $RMB_REDIS__URL --latency-history`, "
            "`slowlog get 20`.",
            "Check its disk, if `appendfsync` is `always` or a rewrite runs: `iostat -x "
            "5`, `info persistence` (`aof_delayed_fsync`).",
            "Check its CPU: a Redis server uses only one core. `top`, `info cpu`.",
            "If the worker itself is slow, `loop_lag` fires as well.",
        ),
        subject="worker",
    ),
    Rule(
        "loop_lag", "A worker is too busy", WARNING, "ms", 250, 100, 15, 60,
        "The event loop of the worker was late by this time within a second: the worker "
        "needs more than one core, or the machine is overloaded.",
        (
            "Check the machine: `uptime`, `top`, `vmstat 5` (columns `si`, `so`, `st`).",
            "If all workers are busy: raise `relay.processes`, up to the number of cores.",
            "If only one worker is busy: see its sessions on the page Sessions; Drain "
            "moves its clients to other workers.",
        ),
        subject="worker",
    ),
    Rule(
        "check_found", "The periodic check found missed messages", WARNING, "messages", 1, 0, 0,
        300,
        "Within the last 10 minutes the periodic check found messages in the queue of a "
        "connected session that had not been delivered. They are delivered now, but "
        "late. This may happen after a worker died or Redis did not answer; otherwise it "
        "never does.",
        (
            "Check whether one of these alarms fired: `worker_restarts`, `redis_away`, "
            "`redis_went_back`.",
            "If not: report it, with `the check found` from the relay's log and the lines before.",
        ),
        subject="worker",
    ),
    Rule(
        "events_lost", "Recorded events are lost", WARNING, "events", 1, 0, 0, 300,
        "This many events for analytics were lost within the last 10 minutes. "
        "`pressure`: the disk of `analytics.dir` was too slow, and all eight buffers "
        "were full. `disk`: the disk refused writes until a process ended, waiting files "
        "exceeded `analytics.segments_max_bytes`, or `rmb_analytics check --repair` "
        "moved a file away. Messages are not delayed; the delivery audit counts messages "
        "of this time separately.",
        (
            "Find process and time: `relay_analytics_lost_total` in `/metrics`, and the "
            "newest file in `gaps/` in the folder of events.",
            "`disk`: `df -h` on that folder, and the relay's log: `events cannot be written`.",
            '`pressure`: `iostat -x 5`. Use `analytics.fsync = "segment"` instead of '
                "`flush`, or another disk for `analytics.dir`.",
            "If files waited for too long, see `events_waiting`.",
        ),
        subject="reason",
    ),
    Rule(
        "events_waiting", "Recorded events do not reach the lake", WARNING, "s", 300, 60, 30,
        60,
        "The oldest closed file of events on this machine has waited for this time, "
        "although a compactor normally processes a file within a second, or no compactor "
        "has reported for this time. Jobs do not see these events yet. No events are "
        "lost until the waiting files exceed `analytics.segments_max_bytes`.",
        (
            "`manage.py rmb_doctor` on that machine shows what is missing. If Arrow is "
            "not installed: `make setup-analytics`, and restart.",
            "Read the lines of `relay.analytics.compactor` in the relay's log: a full "
            "disk, or a folder without write permission.",
            "If workers run without `runrelay`, or the relay does not record any more, "
            "no compactor runs: let cron run `manage.py rmb_analytics compact` each "
            "minute.",
            "If the compactor is too slow, `relay_analytics_waiting_bytes` in `/metrics` "
            "grows. It needs one core for a million events per second, and a disk that "
            "is not busy.",
        ),
        subject="machine", starts=True,
    ),
    Rule(
        "certificate_expiry", "The TLS certificate expires soon", WARNING, "days", 21, 22, 0, 0,
        "The certificate in `relay.tls_cert` expires in this many days.",
        (
            "`openssl x509 -noout -enddate -in CERT`.",
            "If the certificate should renew automatically: `systemctl list-timers`, "
            "`certbot renew --dry-run`.",
            "When the file is renewed, send SIGHUP to the relay (`kill -HUP PID`): a rolling "
            "restart loads it.",
        ),
        subject="file", rising=False,
    ),
    Rule(
        "certificate_expired", "The TLS certificate is expiring", CRITICAL, "days", 2, 3, 0, 0,
        "The certificate in `relay.tls_cert` expires within two days, or has expired. "
        "Clients and partner relays cannot connect with an expired certificate.",
        (
            "Renew it now: `certbot renew --force-renewal`, or as your certificate "
            "authority describes.",
            "`kill -HUP PID` of the relay, then `openssl s_client -connect HOST:443 </dev/null | "
            "openssl x509 -noout -enddate`.",
        ),
        subject="file", rising=False,
    ),
    Rule(
        "clock_step", "The clock was set, or is wrong", WARNING, "s", 2, 1, 0, 60,
        "The clock of this machine jumped within the last 5 minutes, or differs from the "
        "clock of Redis. Tokens, deadlines and limits depend on the clock.",
        (
            "`timedatectl` and `chronyc tracking` show whether the clock is synchronised.",
            "If a virtual machine was paused or moved once, do nothing.",
            "If Redis is on another machine, its clock may be wrong (`redis-cli -u "
            "$RMB_REDIS__URL time`).",
        ),
        subject="clock",
    ),
    Rule(
        "disk", "The data folder's disk is almost full", CRITICAL, "%", 90, 85, 30, 60,
        "The database, and an embedded Redis, write to this disk. They fail when it is full.",
        (
            "`df -h`; find large files: `du -xh --max-depth=2 DATA | sort -h | tail`.",
            "`redis-cli -u $RMB_REDIS__URL bgrewriteaof` makes the file of Redis "
            "smaller; while it runs, it needs the same space again.",
            "A lower `sessions.keep_closed_days` makes the database smaller.",
        ),
        subject="folder",
    ),
    Rule(
        "receiver_failing", "Alarms do not arrive", WARNING, "s", 600, 0, 0, 60,
        "The oldest notice for this receiver has waited for this time: the receiver does "
        "not answer, or refuses notices. Other receivers are not affected. When the "
        "receiver answers again, it gets waiting notices in order; notices expire after "
        "a day.",
        (
            "`manage.py rmb_alarms receivers` shows the last error.",
            "`manage.py rmb_alarms test RECEIVER` sends a test notice and shows the answer.",
        ),
        subject="receiver", starts=True,
    ),
    Rule(
        "reading_unknown", "Readings are missing", WARNING, "s", 60, 0, 0, 30,
        "The relay could not take readings of this kind for this time. Alarms that need "
        "them neither fire nor end.",
        (
            "`manage.py rmb_alarms rules` shows what is unknown, and the reason.",
            "If Redis or the database does not answer, another alarm fires for it.",
        ),
        subject="reading",
    ),
)  # fmt: skip

BY_KEY: Final[dict[str, Rule]] = {rule.key: rule for rule in RULES}
