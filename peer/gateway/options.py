"""The command line of `rmb-peer`: the reference gateway's options, and some additional ones.

A start script of the reference gateway works unchanged. The additional options keep secrets out of
the process list, use twins without a chain, and help to diagnose problems.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from chain import urls
from peer import arguments
from peer.arguments import Parser, UsageError, add_version
from peer.identity import Identity
from peer.modules.files_options import add_upload_options, limits_of, upload_folder
from proto.chain import relays as relay_texts
from proto.chain.errors import ChainFormatError
from proto.files.bounds import UploadLimits
from redispipe.address import RedisAddress, RedisAddressError

DEFAULT_REDIS: Final = "redis://localhost:6379"
MAX_PORT: Final = 65_535

_DEPRECATED: Final = ("mnemonics", "seed")
_SECRETS: Final = ("mnemonic", *_DEPRECATED, "secret_file")

_IN_FILE: Final = {
    **dict.fromkeys((*_DEPRECATED, "mnemonic"), "secret_file"),
    "secret_file": "secret_file",
    "key_type": "key_type",
    "redis": "redis",
    "relay": "relays",
    "substrate": "substrate",
    "twins": "twins",
    "no_update": "update",
    "uploads": "uploads",
    "module": "modules",
}
"""Options, and the fields that replace them in the file of --many."""
_NOT_WITH_MANY: Final = (*_IN_FILE, "dead_letters")

EPILOG: Final = """\
examples:
  rmb-peer --secret-file /etc/rmb/secret
  rmb-peer --secret-file secret --relay wss://r1.example.com wss://r2.example.com
  rmb-peer --secret-file secret --relay ws://localhost:8080 --twins http://127.0.0.1:8081
  rmb-peer --secret-file secret --check
  rmb-peer --dead-letters --json
  rmb-peer --many twins.toml

Programs of this host send requests by pushing to the Redis list msgbus.system.local and serve
commands by popping from msgbus.<command>. The secret may also come from the variable RMB_SECRET, or
from the file that RMB_SECRET_FILE names. SIGTERM stops the gateway; its next start continues with
the messages under way.

--many serves all twins of a TOML file in this process, over one connection to each relay:

  relays = ["wss://r1.example.com"]     # for all; a twin may have its own
  twins = "http://127.0.0.1:8081"
  redis = "redis://localhost:6379"

  [[twin]]
  secret_file = "secrets/alice"         # relative to the file
  database = 1                          # of Redis: the twin's own, with the usual lists

SIGHUP reads the file again. With --check, it checks all twins.

exit code: 0 stopped by a signal, or --check found no problem; 1 the start failed, or --check found
a problem; 2 invalid option
"""


class Action(Enum):
    """The action that a command line selects."""

    RUN = "run"
    MANY = "many"
    CHECK = "check"
    DEAD_LETTERS = "dead letters"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a valid command line."""

    action: Action
    identity: Identity | None
    """Keys; None if the action needs none."""
    relays: tuple[str, ...]
    substrate: tuple[str, ...]
    twins: str | None
    """File or URL of the twins; None: the chain."""
    redis_url: str
    uploads: Path | None
    """Folder for files from other twins; None: they are refused."""
    upload_limits: UploadLimits
    modules: tuple[str, ...]
    update: bool
    """Whether the own twin on the chain may be changed to match the options."""
    debug: int
    log_format: str
    metrics_listen: tuple[str, int] | None
    json: bool
    many: Path | None
    """File with many twins, if given."""
    warnings: tuple[str, ...]
    """Warnings to be logged at the start."""

    @property
    def domains(self) -> tuple[str, ...]:
        """The relay domains that the own twin should list."""
        return tuple(dict.fromkeys(map(arguments.domain, self.relays)))


def build_parser() -> Parser:
    """Return the parser, which also produces the text of `--help`."""
    parser = Parser(
        prog="rmb-peer",
        description="Connect the programs of this host to other twins, through Redis lists.",
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=EPILOG,
    )
    add_version(parser)
    _add_identity(parser.add_argument_group("identity"))
    _add_places(parser.add_argument_group("connections"))
    _add_work(parser.add_argument_group("behaviour"))
    add_upload_options(parser)
    return parser


def parse(argv: Sequence[str]) -> Options:
    """Parse a command line.

    Raises:
        UsageError: an option is unknown, or a value is invalid.
    """
    found = build_parser().parse(argv)
    action = _action(found)
    if found.json and action in (Action.RUN, Action.MANY):
        raise UsageError("--json needs --check or --dead-letters")
    if found.many is not None:
        _check_many(found)
    twins = found.twins
    if twins == "":
        raise UsageError("--twins: is empty; use a file or a URL")
    options = Options(
        action=action,
        identity=None if found.many or action is Action.DEAD_LETTERS else _identity(found),
        relays=arguments.relay_urls(found.relay or arguments.DEFAULT_RELAYS, domains=True),
        substrate=arguments.substrate_urls(found.substrate or arguments.DEFAULT_SUBSTRATE),
        twins=twins,
        redis_url=_redis(found.redis),
        uploads=_uploads(found.uploads),
        upload_limits=_upload_limits(found),
        modules=tuple(found.module or ()),
        update=not found.no_update and twins is None,
        debug=found.debug,
        log_format=found.log_format,
        metrics_listen=_listen(found.metrics_listen),
        json=found.json,
        many=None if found.many is None else arguments.at_home(found.many),
        warnings=_warnings(found),
    )
    _check_together(options, found)
    return options


def _add_identity(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "-m",
        "--mnemonic",
        metavar="SECRET",
        help="12 or 24 words, or 0x and 64 hexadecimal digits; visible in the list of processes: "
        "prefer --secret-file",
    )
    add("--secret-file", metavar="FILE", help="file that contains only the secret")
    add("--mnemonics", metavar="SECRET", help="deprecated: use --mnemonic")
    add("--seed", metavar="SECRET", help="deprecated: use --mnemonic")
    add("-k", "--key-type", default="sr25519", metavar="TYPE", help="sr25519 (default) or ed25519")


def _add_places(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "-r",
        "--redis",
        default=DEFAULT_REDIS,
        metavar="URL",
        help=f"Redis 6.2 or newer for the queues: {DEFAULT_REDIS} (default), rediss:// or unix://",
    )
    add(
        "--relay",
        action="extend",
        nargs="+",
        metavar="URL",
        help="URLs of one to four relays, with domain names (default "
        f"{' '.join(arguments.DEFAULT_RELAYS)})",
    )
    add(
        "-s",
        "--substrate",
        action="extend",
        nargs="+",
        metavar="URL",
        help=f"nodes of the chain (default {' '.join(arguments.DEFAULT_SUBSTRATE)})",
    )
    add(
        "--twins",
        metavar="FILE|URL",
        help="look twins up in a file of `rmb_twin export`, or at the operator site of a relay, "
        "such as http://127.0.0.1:8081, not on the chain",
    )
    add(
        "--no-update",
        action="store_true",
        help="do not update this twin on the chain if its relays or key differ",
    )


def _add_work(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("-u", "--uploads", metavar="DIR", help="accept files from other twins into this folder")
    add(
        "--module",
        action="append",
        metavar="PACKAGE:NAME",
        help="Python module that answers commands in this process; repeatable",
    )
    add("--metrics-listen", metavar="HOST:PORT", help="serve Prometheus metrics at /metrics")
    add("--log-format", default="text", choices=("text", "json"), help="text (default) or json")
    add(
        "-d",
        "--debug",
        action="count",
        default=0,
        help="log debug lines; -dd: also those of libraries",
    )
    add(
        "--many",
        metavar="FILE",
        help="serve all twins of this TOML file, over one connection to each relay; see below",
    )
    add("--check", action="store_true", help="check keys, twin, chain, relays and Redis, then end")
    add("--dead-letters", action="store_true", help="print malformed requests, then end")
    add("--json", action="store_true", help="print JSON (with --check or --dead-letters)")


def _action(found: argparse.Namespace) -> Action:
    if found.many is not None and not found.check:
        return Action.MANY
    if found.check and found.dead_letters:
        raise UsageError("use --check or --dead-letters, not both")
    if found.check:
        return Action.CHECK
    return Action.DEAD_LETTERS if found.dead_letters else Action.RUN


def _check_many(found: argparse.Namespace) -> None:
    """Reject options that are set in the file instead."""
    usual = build_parser().parse([])
    for name in _NOT_WITH_MANY:
        if getattr(found, name) != getattr(usual, name):
            option = f"--{name.replace('_', '-')}"
            field = _IN_FILE.get(name)
            remedy = f"; set {field} in the file" if field else ""
            raise UsageError(f"{option} cannot be used with --many{remedy}")


def _identity(found: argparse.Namespace) -> Identity:
    given = [name for name in _SECRETS if getattr(found, name) is not None]
    if len(given) > 1:
        options = " and ".join(f"--{name.replace('_', '-')}" for name in given)
        raise UsageError(f"use only one of {options}")
    text = next((getattr(found, name) for name in given if name != "secret_file"), None)
    secret = arguments.secret(text, found.secret_file)
    return arguments.identity(secret, arguments.key_type(found.key_type))


def _warnings(found: argparse.Namespace) -> tuple[str, ...]:
    deprecated = [name for name in _DEPRECATED if getattr(found, name) is not None]
    return tuple(f"--{name} is deprecated: use --mnemonic" for name in deprecated)


def _check_together(options: Options, found: argparse.Namespace) -> None:
    if options.twins is not None and found.substrate:
        raise UsageError("use --twins or --substrate, not both")
    if options.update:
        try:
            relay_texts.check(relay_texts.join(options.domains))
        except ChainFormatError as error:
            names = " ".join(options.domains)
            raise UsageError(f"--relay: the chain does not accept {names}: {error}") from None


def _redis(url: str) -> str:
    try:
        return RedisAddress.parse(url).url
    except RedisAddressError as error:
        raise UsageError(f"--redis: {error}") from None


def _uploads(text: str | None) -> Path | None:
    try:
        return None if text is None else upload_folder(text)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _upload_limits(found: argparse.Namespace) -> UploadLimits:
    try:
        return limits_of(found)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _listen(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    digits = port.isascii() and port.isdigit() and len(port) <= len(str(MAX_PORT))
    if not host or not digits or int(port) > MAX_PORT:
        raise UsageError(f"--metrics-listen {text}: must be HOST:PORT, such as 127.0.0.1:9100")
    host = host.removeprefix("[").removesuffix("]")
    try:
        urls.check_host(host)
    except ValueError:
        raise UsageError(f"--metrics-listen {text}: the host is invalid; use host:port") from None
    return host, int(port)
