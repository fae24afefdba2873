"""Command line options of the relay: `manage.py runrelay` and the drop-in `rmb-relay`.

Options override the site's configuration. The defaults of each entry (command) are overridden by
everything that the operator wrote:

    configuration defaults < defaults of the entry < rmb.toml < RMB_SECTION__KEY < command line

The result is put into the environment, from which the relay's processes read it.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import ssl
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from relay.server.listen import OWN_LISTENERS, ListenError, parse_listen
from relay.twins.source import RELAY_SEPARATOR

CONFIG_MODULE: Final = "rmbsite.config"
"""The site's configuration, named by a string: the relay does not import the site."""

PACKAGE: Final = "rmb-relay-platform"

USAGE_ERROR: Final = 2
INTERRUPTED: Final = 130
"""Exit code after Ctrl-C during the start, as in shells."""

EPILOG: Final = """\
examples:
  {program} --embedded
  {program} --domain relay.example.com --redis redis://localhost:6379
  {program} --domain a.example b.example --twins registry --processes 4 --limit 600 10000000

Set everything else in rmb.toml or in variables RMB_SECTION__KEY; `rmb-manage rmb_configdoc` lists
all settings. SIGTERM stops the relay gracefully, SIGHUP replaces its workers one after another.

exit code: 0 stopped by a signal, 1 a process could not be started, 2 invalid option or setting
"""

EMBEDDED_LISTEN: Final = "127.0.0.1:8080"
EMBEDDED_DOMAIN: Final = "localhost"


class UsageError(Exception):
    """A bad option or setting; the text is for the operator, the exit code is 2."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the command line, before the configuration is read."""

    entry: str
    embedded: bool
    overrides: Mapping[str, str]
    """Configuration values by dotted key."""
    option_names: Mapping[str, str]
    """Option that each key came from, for error messages."""
    fork: bool = True
    """Whether a warm parent forks the relay's processes."""


@dataclass(frozen=True, slots=True)
class Settled:
    """Options merged with the configuration."""

    options: Options
    config: Any
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables with which child processes read the same configuration."""
    described: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What may be shown of each setting, and the option or file it comes from."""


class _Parser(argparse.ArgumentParser):
    """Parser that suggests the nearest option for an unknown one, and never abbreviates options."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)

    def parse_or_explain(self, arguments: Sequence[str]) -> argparse.Namespace:
        options, unknown = self.parse_known_args(arguments)
        if unknown:
            name = unknown[0].partition("=")[0]
            known = [text for action in self._actions for text in action.option_strings]
            nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
            hint = f"; did you mean {nearest[0]}?" if nearest else " (see --help)"
            if not name.startswith("-"):
                raise UsageError(f"unexpected argument {name} (see --help)")
            raise UsageError(f"unknown option {name}{hint}")
        return options


class _ShowVersion(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        print(f"{parser.prog} {package_version()}")
        parser.exit()


def package_version() -> str:
    """Return the version of the installed package; `unknown` if only its sources exist."""
    # Imported here: it takes longer than reading the options.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(PACKAGE)
    except PackageNotFoundError:
        return "unknown"


def _program(entry: str) -> str:
    return "manage.py runrelay" if entry == "runrelay" else entry


def build_parser(entry: str) -> _Parser:
    """Return the parser of one entry: `runrelay` or `rmb-relay`."""
    program = _program(entry)
    parser = _Parser(
        prog=program,
        description="Run a relay of the Reliable Message Bus.",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=EPILOG.format(program=program),
    )
    many: dict[str, Any] = {"action": "extend", "nargs": "+"}
    add = parser.add_argument
    add(
        "-m",
        "--domain",
        **many,
        metavar="NAME",
        help="names of this relay; required (with --embedded: default localhost)",
    )
    add(
        "-l",
        "--listen",
        metavar="ADDRESS",
        help="host:port (default [::]:8080; with --embedded 127.0.0.1:8080) or unix:/path",
    )
    add(
        "-r",
        "--redis",
        metavar="URL",
        help="Redis 6.2 or newer: redis://localhost:6379 (default), rediss:// or unix://",
    )
    add(
        "-s",
        "--substrate",
        **many,
        metavar="URL",
        help="nodes of the chain (default wss://tfchain.grid.tf:443)",
    )
    add(
        "--twins",
        metavar="SOURCE",
        help="where twins come from: tfchain (default) or registry (default with --embedded)",
    )
    add(
        "--database",
        metavar="URL",
        help="postgres://… or sqlite:///path (default: SQLite in the data folder)",
    )
    add("--data", metavar="DIR", help="folder of this installation's files (default ./data)")
    add("--embedded", action="store_true", help="start a Redis-compatible server; use SQLite")
    add("--processes", metavar="N", help="number of relay worker processes (default 1)")
    add("--server", metavar="NAME", help="uvicorn (default) or daphne, which is slower")
    add(
        "--admin-listen",
        metavar="ADDRESS",
        help="operator site (default 127.0.0.1:8081); `none`: no operator site",
    )
    add(
        "--sbd-listen",
        **many,
        metavar="ADDRESS",
        help="addresses that also serve SBD: host:port or unix:/path",
    )
    add(
        "--mux-listen",
        **many,
        metavar="ADDRESS",
        help="addresses that also serve sessions over streams: host:port or unix:/path",
    )
    add("--tls-cert", metavar="FILE", help="certificate; the relay then serves TLS itself")
    add("--tls-key", metavar="FILE", help="key of --tls-cert")
    add(
        "--trusted-proxy",
        **many,
        metavar="NETWORK",
        help="proxies whose X-Forwarded-For is trusted, such as 10.0.0.0/8",
    )
    add(
        "--limit",
        **many,
        metavar=("COUNT", "SIZE"),
        help="messages and bytes a twin may send per minute; also COUNT,SIZE (default: no limit)",
    )
    add(
        "-w",
        "--workers",
        metavar="N",
        help="first factor of the capacity: N times -u sessions (default 500)",
    )
    add("-u", "--user-per-worker", metavar="N", help="second factor; see -w (default 1000)")
    add(
        "-p",
        "--ranker-period",
        "--ranker_period",
        metavar="SECONDS",
        help="seconds a failed delivery counts against a partner relay (default 3600)",
    )
    add(
        "--catchup-threshold",
        metavar="BLOCKS",
        help="maximum number of chain blocks to replay after an outage (default 600)",
    )
    add(
        "--record",
        action="store_true",
        help="record what happens to each message for analytics",
    )
    add(
        "--no-fork",
        action="store_true",
        help="do not fork processes from a warm parent: takes more memory and time",
    )
    add(
        "--lattice",
        action="store_true",
        help="run a bridge to a wasmCloud lattice; with --embedded also start a NATS server",
    )
    add("-d", "--debug", action="count", default=0, help="log debug lines too")
    add("--version", action=_ShowVersion, nargs=0, help="show the version and exit")
    return parser


_PLAIN_KEYS: Final = {
    "listen": "relay.listen",
    "redis": "redis.url",
    "twins": "twins.source",
    "database": "database.url",
    "data": "data.dir",
    "processes": "relay.processes",
    "server": "relay.server",
    "tls_cert": "relay.tls_cert",
    "tls_key": "relay.tls_key",
    "workers": "relay.workers",
    "user_per_worker": "relay.user_per_worker",
    "ranker_period": "federation.ranker_period_s",
    "catchup_threshold": "substrate.catchup_threshold",
}
_LIST_KEYS: Final = {
    "domain": "relay.domains",
    "substrate": "substrate.urls",
    "trusted_proxy": "relay.trusted_proxies",
}


def parse_options(arguments: Sequence[str], entry: str) -> Options:
    """Read a command line.

    Raises:
        UsageError: An option is unknown, or a value cannot be understood.
    """
    found = build_parser(entry).parse_or_explain(arguments)
    overrides: dict[str, str] = {}
    names: dict[str, str] = {}

    def put(key: str, name: str, value: str) -> None:
        overrides[key] = value
        names[key] = f"--{name.replace('_', '-')}"

    for name, key in _PLAIN_KEYS.items():
        if (value := getattr(found, name)) is not None:
            put(key, name, value)
    for name, key in _LIST_KEYS.items():
        if (values := getattr(found, name)) is not None:
            put(key, name, " ".join(values))
    if found.admin_listen is not None:
        put(
            "admin.listen",
            "admin_listen",
            "" if found.admin_listen == "none" else found.admin_listen,
        )
    for name in OWN_LISTENERS:
        if (addresses := getattr(found, f"{name}_listen")) is not None:
            put(f"{name}.enabled", f"{name}_listen", "1")
            put(f"{name}.listen", f"{name}_listen", " ".join(addresses))
    if found.record:
        put("analytics.record", "record", "1")
    if found.lattice:
        put("lattice.enabled", "lattice", "1")
    if found.debug:
        put("log.level", "debug", "debug")
    if found.limit is not None:
        count, size = _limit(found.limit)
        put("limits.count", "limit", count)
        put("limits.size", "limit", size)
    return Options(entry, found.embedded, overrides, names, fork=not found.no_fork)


def _limit(values: Sequence[str]) -> tuple[str, str]:
    numbers = [number for value in values for number in value.split(",") if number]
    if len(numbers) != 2:
        raise UsageError(
            "--limit needs a count and a size, such as --limit 100 100000, not "
            f"{' '.join(values)!r}"
        )
    return numbers[0], numbers[1]


def settle(options: Options, environ: Mapping[str, str]) -> Settled:
    """Merge options, environment, file and the entry's defaults.

    Raises:
        UsageError: A setting is unknown, impossible, or missing.
    """
    site = importlib.import_module(CONFIG_MODULE)
    try:
        resolved = site.resolve(options.overrides, environ)
        overrides = dict(options.overrides)
        for key, value in _entry_defaults(options).items():
            if key not in resolved.origins:
                overrides[key] = value
        found = site.resolve(overrides, environ)
        config = found.config
        overrides["data.dir"] = str(config.data_dir)
        if config.analytics.dir:
            overrides["analytics.dir"] = str(
                Path(os.path.expanduser(config.analytics.dir)).absolute()
            )
    except site.ConfigError as error:
        raise UsageError(_name_option(str(error), options)) from None
    _check(options, config, resolved.origins)
    origins = {
        key: options.option_names.get(key, options.entry) if origin == site.COMMAND_LINE else origin
        for key, origin in found.origins.items()
    }
    described = site.describe(found._replace(origins=origins))
    return Settled(options, config, _as_environment(overrides), described)


def _entry_defaults(options: Options) -> dict[str, str]:
    if options.embedded:
        return {
            "relay.listen": EMBEDDED_LISTEN,
            "relay.domains": EMBEDDED_DOMAIN,
            "twins.source": "registry",
            "sbd.enabled": "1",
        }
    return {"twins.source": "tfchain"}


def _check(options: Options, config: Any, origins: Mapping[str, str]) -> None:
    if not config.relay.domains:
        raise UsageError(
            "--domain (or RMB_RELAY__DOMAINS) is missing: the name under which twins list this "
            f"relay, such as {_program(options.entry)} --domain relay.example.com; to try a relay "
            f"without other services: {_program(options.entry)} --embedded; all options: --help"
        )
    for name, address in (
        ("--listen", config.relay.listen),
        ("--admin-listen", config.admin.listen),
        *(
            (f"--{own}-listen", address)
            for own in OWN_LISTENERS
            for address in getattr(config, own).listen
        ),
    ):
        try:
            if address or name == "--listen":
                parse_listen(address)
        except ListenError as error:
            raise UsageError(f"{name}: {error}") from None
    for domain in config.relay.domains:
        if RELAY_SEPARATOR in domain:
            raise UsageError(f"--domain {domain}: a name must not contain an underscore")
    if options.embedded and "redis.url" in origins:
        raise UsageError(
            f"--embedded starts its own Redis, but {origins['redis.url']} names another one; "
            "remove one of them"
        )
    for name, path in (("--tls-cert", config.relay.tls_cert), ("--tls-key", config.relay.tls_key)):
        if path and not os.access(path, os.R_OK):
            raise UsageError(f"{name}: cannot read {path}")
    if config.relay.tls_cert:
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(config.relay.tls_cert, config.relay.tls_key, _no_passphrase)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(
                f"cannot use --tls-cert with --tls-key; use a PEM certificate and its key: {error}"
            ) from None


def _no_passphrase() -> str:
    """Refuse an encrypted key: otherwise OpenSSL in each worker would prompt on the terminal."""
    raise UsageError("--tls-key: the key is encrypted; use an unencrypted key file")


def _name_option(text: str, options: Options) -> str:
    """Replace `relay.processes (command line)` in a message with the option, `--processes`."""
    for key, name in options.option_names.items():
        text = text.replace(f"{key} (command line)", name)
    return text


def _as_environment(overrides: Mapping[str, str]) -> dict[str, str]:
    return {f"RMB_{key.upper().replace('.', '__')}": value for key, value in overrides.items()}


def export(environment: Mapping[str, str], environ: MutableMapping[str, str]) -> None:
    """Put the settled values into the environment that child processes inherit."""
    for variable, value in environment.items():
        environ[variable] = value
        # `<secret>_FILE` would take precedence over the value.
        environ.pop(f"{variable}_FILE", None)


def run(arguments: Sequence[str], entry: str) -> int:
    """Run a relay until it is stopped, and return the exit code."""
    # Imported here so that `--help` and bad options are answered at once.
    from relay.server import start

    program = "runrelay" if entry == "runrelay" else entry
    try:
        settled = settle(parse_options(arguments, entry), os.environ)
        export(settled.environment, os.environ)
        return start.run(settled)
    except UsageError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return USAGE_ERROR


def main() -> int:
    """Run the console script `rmb-relay`; return the exit code."""
    try:
        return run(sys.argv[1:], "rmb-relay")
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
