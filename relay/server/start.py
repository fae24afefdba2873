"""Start a relay from settled options and run it until it is stopped.

    listeners -> (embedded: lock, bundled server) -> prepare -> summary -> workers and site -> ready
      -> background work

Listeners come first, so that a port in use is reported before anything was changed. Background work
comes last: a relay serves its clients without it, and messages for other relays wait. Whatever ends
the run, the supervisor stops every child on the way out.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib
import json
import logging.config
import os
import secrets
import socket
import sys
import time
from collections.abc import Coroutine
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from relay.demo import profiles
from relay.server import embedded, node_report, open_files, private_file, running
from relay.server.child import ChildSpec, launch, read_all
from relay.server.cli import CONFIG_MODULE, USAGE_ERROR, Settled
from relay.server.doorkeeper import Doorkeeper
from relay.server.listen import (
    OWN_LISTENERS,
    ListenError,
    bound_address,
    close_listeners,
    open_listeners,
    parse_listen,
)
from relay.server.output import say
from relay.server.redis_wait import wait_for_redis
from relay.server.summary import Summary
from relay.server.supervisor import StartError, Supervisor
from relay.server.warm import First, WarmParent, fork_first

LOGGING_MODULE: Final = "rmbsite.logging"
DATABASE_MODULE: Final = "rmbsite.database"
WORKER_MODULE: Final = "relay.server.worker_main"
SERVER_MODULE: Final = "relay.server.valkey_main"
PREPARE_MODULE: Final = "relay.server.prepare"
CELERY_MODULE: Final = "relay.server.celery_main"
COMPACTOR_MODULE: Final = "relay.analytics.compactor_main"
LATTICE_MODULE: Final = "relay.lattice.launch"

IMPORTS: Final = (
    *(WORKER_MODULE, PREPARE_MODULE),
    *("uvicorn.lifespan.on", "uvicorn.loops.uvloop" if find_spec("uvloop") else "asyncio"),
)
"""Modules that a warm parent imports while the relay opens its listeners: they need no settings."""
# Modules that several processes would otherwise each import, at the start or with the first task.
WORKER_IMPORTS: Final = ("relay.sessions.app", "relay.twins.registry", "channels_redis.core")
SITE_IMPORTS: Final = ()
CELERY_IMPORTS: Final = (
    *(CELERY_MODULE, "rmbsite.celery"),
    *("celery.apps.worker", "celery.worker.components", "celery.worker.consumer"),
    *("celery.worker.consumer.delayed_delivery", "celery.worker.strategy", "celery.app.amqp"),
    *("celery.app.control", "celery.app.log", "celery.app.routes", "kombu.transport.redis"),
    *("celery.backends.base", "celery.concurrency.thread", "celery.beat", "celery.events.receiver"),
    *("relay.alarms.tasks", "relay.analytics.tasks", "relay.federation.tasks", "relay.twins.tasks"),
)

CHAIN_THREADS: Final = 4
"""Threads for the queues chain and default: the follower takes one permanently, an import another;
the rest is for the watches."""

STOP_MARGIN_S: Final = 15.0
"""Seconds from the end of a drain to SIGKILL."""

START_FAILED: Final = 1

OTHER_PORTS: Final = {
    "--listen": "--listen 127.0.0.1:8090",
    "--admin-listen": "--admin-listen 127.0.0.1:8091",
}
"""Examples of options to suggest if a port is in use."""
ALL_PORTS: Final = " ".join(OTHER_PORTS.values())


class PrepareError(Exception):
    """The preparation failed; it has already printed the reason."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


def run(settled: Settled) -> int:
    """Run the relay, and return the exit code."""
    log = settled.config.log
    settings_of = importlib.import_module(LOGGING_MODULE).settings_of
    logging.config.dictConfig(settings_of(log.level, log.format))
    program = settled.options.entry
    config_error = importlib.import_module(CONFIG_MODULE).ConfigError
    first = fork_first(IMPORTS) if settled.options.fork else None
    try:
        return asyncio.run(Run(settled, first).run())
    except (ListenError, embedded.EmbeddedError, config_error) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return USAGE_ERROR
    except StartError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return START_FAILED
    except PrepareError as error:
        return error.exit_code


class Run:
    """One run of a relay, from its options to its end."""

    def __init__(self, settled: Settled, first: First | None = None) -> None:
        """Prepare a run.

        Args:
            first: Warm parent of the other processes.
        """
        self._first = first
        self._warm: WarmParent | None = None
        self._config = settled.config
        self._described = settled.described
        self._embedded = settled.options.embedded
        self._began = time.monotonic()
        self._supervisor: Supervisor
        self._relay_listeners: list[socket.socket] = []
        self._admin_listeners: list[socket.socket] = []
        self._own_listeners: dict[str, list[socket.socket]] = {name: [] for name in OWN_LISTENERS}
        self._held_fds: list[int] = []
        """Inherited by every child: the data folder's lock, the users' end of the server's pipe."""
        self._own_fds: list[int] = []

    async def run(self) -> int:
        """Start everything, wait for the signal to stop, stop everything."""
        async with contextlib.AsyncExitStack() as cleanup:
            if self._first is not None:
                self._warm = WarmParent(self._first, IMPORTS)
                cleanup.push_async_callback(self._warm.close)
            self._supervisor = Supervisor(self._warm)
            open_files_text = open_files.raise_limit()
            cleanup.callback(self._close_listeners)
            self._open_listeners()
            public = [*self._relay_listeners, *self._all_own_listeners]
            doorkeeper = Doorkeeper(public, self._config.relay)
            cleanup.callback(doorkeeper.leave)
            self._own_fds.append(doorkeeper.accepting_fd)
            data_dir: Path = self._config.make_data_dir()
            cleanup.callback(self._close_held)
            await cleanup.enter_async_context(self._supervisor.handling_signals())
            if self._embedded:
                await self._start_server(data_dir)
            redis_url = os.environ["RMB_REDIS__URL"] if self._embedded else self._config.redis.url
            embedded.note_url(data_dir, redis_url)
            cleanup.callback(running.Note(data_dir, self._settings(redis_url)).close)
            prepared = await self._prepare()
            if prepared is None:
                return 0
            nodes = asyncio.create_task(self._tell_of_node(data_dir, redis_url))
            cleanup.push_async_callback(_ended, nodes)
            summary = Summary(
                config=self._config,
                relay=[bound_address(each) for each in self._relay_listeners],
                admin=[bound_address(each) for each in self._admin_listeners],
                own={
                    name: [bound_address(each) for each in several]
                    for name, several in self._own_listeners.items()
                },
                prepared=prepared,
                open_files=open_files_text,
            )
            say(summary.text())
            await self._start_processes(doorkeeper.accepting_fd)
            if prepared["redis_away"]:
                say(f"not ready: Redis does not answer ({prepared['redis_away']}); retrying")
                await self._unless_stopped(wait_for_redis(self._config.redis.url))
            if not self._supervisor.stopping:
                say(f"ready after {time.monotonic() - self._began:.1f} s")
                if self._embedded:
                    next_steps = summary.next_steps(self._peer_command(summary))
                    # Written last: programs that wait for this file may use all the others.
                    runtime = data_dir / embedded.RUNTIME_FILE
                    private_file.write(runtime, json.dumps(summary.runtime(), indent=2) + "\n")
                    cleanup.callback(runtime.unlink, missing_ok=True)
                    say(next_steps)
                await self._start_background()
                if self._config.lattice.enabled:
                    await self._start_lattice(summary.runtime())
            await self._supervisor.stopped()
            say("stopping")
            # From now on connections are refused, so that clients do not wait in the backlog.
            doorkeeper.leave()
            self._close_listeners()
        return 0

    async def _tell_of_node(self, data_dir: Path, redis_url: str) -> None:
        """Report what the processes and the data of this relay take, until cancelled."""
        events = self._config.analytics.dir
        folders = {
            "data folder": data_dir,
            "database": data_dir / importlib.import_module(DATABASE_MODULE).SQLITE_FILE,
            "events": Path(os.path.expanduser(events)) if events else data_dir / "analytics",
        }
        if self._config.database.url:
            del folders["database"]
        if self._embedded:
            folders["Redis"] = embedded.server_folder(data_dir)
        report = node_report.NodeReport(self._supervisor.processes, folders)
        await node_report.publish(report, redis_url)

    async def _unless_stopped(self, waiting: Coroutine[Any, Any, None]) -> None:
        """Wait for a coroutine, or for the signal to stop."""
        stopped = asyncio.create_task(self._supervisor.stopped())
        task = asyncio.create_task(waiting)
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        for each in (task, stopped):
            each.cancel()
        await asyncio.gather(task, stopped, return_exceptions=True)

    def _settings(self, redis_url: str) -> dict[str, Any]:
        """Return the settings that this relay uses, for `rmb_checkconfig`."""
        own = {"redis.url": {"value": redis_url, "origin": "--embedded"}} if self._embedded else {}
        return {**self._described, **own}

    def _peer_command(self, summary: Summary) -> str:
        if self._config.twins.source != "registry":
            return ""  # demo twins exist only in a registry
        written = profiles.write(self._config.data_dir, summary.runtime())
        return profiles.command(written[0]) if written else ""

    def _open_listeners(self) -> None:
        for option, text, opened in (
            ("--listen", self._config.relay.listen, self._relay_listeners),
            ("--admin-listen", self._config.admin.listen, self._admin_listeners),
            *(
                (f"--{name}-listen", text, opened)
                for name, opened in self._own_listeners.items()
                for text in self._own_addresses(name)
            ),
        ):
            if text:
                try:
                    opened += open_listeners(parse_listen(text), self._config.relay.backlog)
                except ListenError as error:
                    if getattr(error.__cause__, "errno", None) != errno.EADDRINUSE:
                        raise
                    raise ListenError(f"{error}; {self._other_ports(option)}") from None

    def _own_addresses(self, name: str) -> tuple[str, ...]:
        """Return the addresses that serve only one protocol."""
        section = getattr(self._config, name)
        return section.listen if section.enabled else ()

    @property
    def _all_own_listeners(self) -> list[socket.socket]:
        return [each for several in self._own_listeners.values() for each in several]

    def _other_ports(self, option: str) -> str:
        """Suggest what to do about a port that is in use."""
        found = running.read(self._config.data_dir)
        if found is None:
            return f"choose another port with {option}{self._by_make(OTHER_PORTS[option])}"
        return (
            f"this relay runs already (pid {found.pid}, data folder {self._config.data_dir}); for "
            f"a second one choose another folder and other ports: --data data2 {ALL_PORTS}"
            f"{self._by_make(ALL_PORTS, folder='DATA=data2 ')}"
        )

    def _by_make(self, options: str, folder: str = "") -> str:
        return f', as in make run {folder}ARGS="{options}"' if self._embedded else ""

    def _close_listeners(self) -> None:
        own = self._own_listeners.values()
        for listeners in (self._relay_listeners, self._admin_listeners, *own):
            close_listeners(listeners)
            listeners.clear()

    def _close_held(self) -> None:
        for fd in (*self._held_fds, *self._own_fds):
            os.close(fd)

    async def _start_server(self, data_dir: Path) -> None:
        """Start the bundled server and pass its address to the children."""
        lock = embedded.DataFolderLock(data_dir)
        self._held_fds.append(lock.fd)
        await lock.acquire(say)
        program = embedded.find_server_program()
        path = embedded.socket_path(data_dir)
        users_read, users_write = os.pipe()
        server = ChildSpec(
            name="the bundled Redis server",
            module=SERVER_MODULE,
            arguments=(
                *("--users-fd", str(users_read), "--socket", str(path)),
                *("--folder", str(embedded.server_folder(data_dir)), "--"),
                *embedded.server_command(program, data_dir, path),
            ),
            inherited_fds=(users_read, lock.fd),
            stop_grace_s=STOP_MARGIN_S,
        )
        # Held until this process ends: a server that died is restarted with its reading end.
        self._own_fds.append(users_read)
        self._held_fds.append(users_write)
        await self._supervisor.keep(server)
        os.environ["RMB_REDIS__URL"] = embedded.redis_url(path)

    async def _prepare(self) -> dict[str, Any] | None:
        """Run the preparation; return None if the relay was stopped meanwhile.

        Raises:
            PrepareError: The preparation failed.
        """
        if self._supervisor.stopping:
            return None
        reading, writing = os.pipe()
        try:
            process = await launch(
                PREPARE_MODULE,
                ["--embedded"] if self._embedded else [],
                fds=self._held_fds,
                stdout_fd=writing,
                imports=(),
                warm=self._warm,
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        outcome = asyncio.create_task(read_all(reading))
        stopped = asyncio.create_task(self._supervisor.stopped())
        await asyncio.wait({outcome, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not outcome.done():
            process.kill()
            await outcome
            await process.wait()
            return None
        if code := await process.wait():
            raise PrepareError(code if code > 0 else START_FAILED)
        prepared: dict[str, Any] = json.loads(outcome.result())
        return prepared

    async def _start_processes(self, accepting_fd: int) -> None:
        drain_s = self._config.relay.drain_s
        relay_fds = [listener.fileno() for listener in self._relay_listeners]
        admin_fds = [listener.fileno() for listener in self._admin_listeners]
        own_fds = [listener.fileno() for listener in self._all_own_listeners]

        def worker(slot: int) -> ChildSpec:
            return ChildSpec(
                name=f"worker {slot}",
                module=WORKER_MODULE,
                arguments=(
                    *("--role", "worker", "--slot", str(slot)),
                    *("--accepting-fd", str(accepting_fd), *_listen_arguments(relay_fds)),
                    *(
                        argument
                        for name, listeners in self._own_listeners.items()
                        for argument in _listen_arguments(
                            [each.fileno() for each in listeners], f"--{name}-listen-fd"
                        )
                    ),
                ),
                inherited_fds=(*relay_fds, *own_fds, accepting_fd, *self._held_fds),
                stop_grace_s=drain_s + STOP_MARGIN_S,
                imports=WORKER_IMPORTS,
            )

        starting = [self._supervisor.start_workers(self._config.relay.processes, worker)]
        if admin_fds:
            site = ChildSpec(
                name="the operator site",
                module=WORKER_MODULE,
                arguments=("--role", "admin", *_listen_arguments(admin_fds)),
                inherited_fds=(*admin_fds, *self._held_fds),
                stop_grace_s=STOP_MARGIN_S,
                imports=SITE_IMPORTS,
            )
            starting.append(self._supervisor.keep(site))
        await asyncio.gather(*starting)

    async def _start_background(self) -> None:
        holder = secrets.token_hex(8)

        def celery(queues: str, threads: int, *more: str) -> ChildSpec:
            return ChildSpec(
                name=f"Celery ({queues})",
                module=CELERY_MODULE,
                arguments=(
                    *("--queues", queues, "--threads", str(threads)),
                    *("--holder", f"{holder}/{queues}", *more),
                ),
                inherited_fds=self._held_fds,
                stop_grace_s=STOP_MARGIN_S,
                imports=CELERY_IMPORTS,
                vital=False,
            )

        children = []
        if self._config.analytics.record:
            # Started first and so stopped last: the other processes close their segments before.
            children.append(
                ChildSpec(
                    name="the compactor of events",
                    module=COMPACTOR_MODULE,
                    inherited_fds=self._held_fds,
                    stop_grace_s=STOP_MARGIN_S,
                    imports=(),
                    vital=False,
                )
            )
        if self._config.celery.embedded:
            children += [
                celery("federation", self._config.celery.federation_threads),
                celery("chain,default", CHAIN_THREADS, "--beat"),
            ]
        await asyncio.gather(*(self._supervisor.keep(child) for child in children))

    async def _start_lattice(self, runtime: dict[str, Any]) -> None:
        """Start the bridges and the monitor, preceded by a NATS server if none is configured."""
        lattice, embedded_too = self._config.lattice, ("--embedded",) * self._embedded
        in_registry = self._config.twins.source == "registry"
        where = ["--relay", runtime["relay_url"]]
        if in_registry and runtime["admin_url"]:
            where += ["--twins", runtime["admin_url"]]

        def child(name: str, kind: str, *more: str) -> ChildSpec:
            return ChildSpec(
                name=name,
                module=LATTICE_MODULE,
                arguments=(kind, *embedded_too, *more),
                inherited_fds=self._held_fds,
                stop_grace_s=STOP_MARGIN_S,
                vital=False,
            )

        if self._embedded and not lattice.servers:
            await self._supervisor.keep(child("the NATS server", "nats"))
        children = [
            child(f"bridge {number} to the lattice", "bridge", *where)
            for number in range(lattice.processes)
        ]
        if lattice.monitor:
            children.append(child("the monitor of the lattice", "monitor"))
        await asyncio.gather(*(self._supervisor.keep(each) for each in children))


async def _ended(task: asyncio.Task[None]) -> None:
    """Cancel a task that runs for ever, and wait for it."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _listen_arguments(fds: list[int], name: str = "--listen-fd") -> list[str]:
    return [argument for fd in fds for argument in (name, str(fd))]
