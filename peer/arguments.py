"""Command lines of the peer's programs: what they share.

A mistake on the command line is one line on standard error and exit code 2; it names the option,
and the nearest one where there is none of that name. Option names are not shortened: an option that
comes later would change what a short form means.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn
from urllib.parse import urlsplit

from chain.urls import at_behind_slash, host_and_port, shown
from peer.identity import Identity, read_secret
from peer.relay_names import distinct
from proto.chain import relays as relay_texts
from proto.federation.domains import is_address, spelled
from proto.identity.errors import SecretError
from proto.identity.signing import KeyType

USAGE_ERROR: Final = 2
"""Exit code: nothing was tried."""

FAILED: Final = 1
"""Exit code: it was tried, and did not work."""

SECRET_VARIABLE: Final = "RMB_SECRET"
SECRET_FILE_VARIABLE: Final = "RMB_SECRET_FILE"

DEFAULT_RELAYS: Final = ("wss://relay.grid.tf",)
DEFAULT_SUBSTRATE: Final = ("wss://tfchain.grid.tf:443",)

MAX_RELAYS: Final = 4
"""More than the reference takes; senders try them one after another."""

MAX_URL_CHARS: Final = 1024

_MISSING: Final = "the following arguments are required"
_CHOICE: Final = re.compile(r"invalid choice: .* \(choose from (?=[^(]*\)$)", re.DOTALL)


class UsageError(Exception):
    """A bad option; the text is for whoever typed it."""


def at_home(text: str) -> Path:
    """The path that somebody typed: `~` is a home folder, and a `~name` that is none stays so."""
    return Path(os.path.expanduser(text))


class Parser(argparse.ArgumentParser):
    """Raises `UsageError` instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        # What was given is not repeated: it may be a word of a secret that was not quoted.
        hint = " (see --help)" if message.startswith(_MISSING) else ""
        raise UsageError(_CHOICE.sub("must be one of ", message).removesuffix(")") + hint)

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Read a command line.

        Raises:
            UsageError: it cannot be understood.
        """
        found, unknown = self.parse_known_args(arguments)
        self.refuse(unknown)
        return found

    def refuse(self, unknown: Sequence[str]) -> None:
        """Say what is wrong with what was left over, if there is any.

        Raises:
            UsageError: there is.
        """
        if unknown:
            raise UsageError(self._explain(unknown[0]))

    def _explain(self, argument: str) -> str:
        name = argument.partition("=")[0]
        known = [text for action in self._actions for text in action.option_strings]
        if not argument.startswith("-") or name in known:  # a known one stands behind a `--`
            return "too many arguments (see --help); put a text with spaces in quotes"
        nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
        hint = f"; did you mean {nearest[0]}?" if nearest else " (see --help)"
        return f"unknown option {name:.60}{hint}"


class ShowVersion(argparse.Action):
    """`--version`: print the program and its version, and end."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        # Not at the top: reading the package's data takes longer than most of a short command.
        from peer.modules.version import package_version

        print(f"{parser.prog} {package_version()}")
        parser.exit()


def add_version(parser: argparse.ArgumentParser) -> None:
    """Add `--version`."""
    parser.add_argument("--version", action=ShowVersion, nargs=0, help="show the version and exit")


def whole_number(least: int, most: int, what: str = "") -> Callable[[str], int]:
    """A type for argparse: a number in digits.

    Args:
        least, most: from which to which.
        what: what it is, for whoever gives another one, with a comma and a space behind it.
    """

    def read(text: str) -> int:
        if text.isascii() and text.isdigit() and len(text) <= len(str(most)):
            number = int(text)
            if least <= number <= most:
                return number
        # What was given is not repeated: it may be a word of a secret that was not quoted.
        raise argparse.ArgumentTypeError(f"must be {what}from {least} to {most}")

    return read


def key_type(name: str) -> KeyType:
    """The key type of a name.

    Raises:
        UsageError: there is no such one.
    """
    try:
        return KeyType[name.upper()]
    except KeyError:
        raise UsageError(f"key type {name!r:.40}: must be sr25519 or ed25519") from None


def secret(text: str | None, file: str | None) -> str:
    """The secret of an option or a file; of `RMB_SECRET` or `RMB_SECRET_FILE` when both are None.

    Raises:
        UsageError: there is none, or it cannot be read. The text never repeats it.
    """
    if text is None and file is None:
        file, there = os.environ.get(SECRET_FILE_VARIABLE), os.environ.get(SECRET_VARIABLE)
        if file and there:
            raise UsageError(f"set {SECRET_VARIABLE} or {SECRET_FILE_VARIABLE}, not both")
        if not file and not there:
            raise UsageError(
                "the secret is missing: use --secret-file or --mnemonic, "
                f"or set {SECRET_VARIABLE} or {SECRET_FILE_VARIABLE}"
            )
    try:
        return read_secret(text, file or None, SECRET_VARIABLE)
    except SecretError as error:
        raise UsageError(str(error)) from None


def identity(secret: str, key_type: KeyType) -> Identity:
    """The keys of a secret.

    Raises:
        UsageError: it is none. The text does not repeat it.
    """
    try:
        return Identity.from_secret(secret, key_type)
    except SecretError as error:
        raise UsageError(f"the secret: {error}") from None


def relay_urls(urls: Sequence[str], *, domains: bool) -> tuple[str, ...]:
    """The addresses of relays, checked, and one of each relay.

    Args:
        urls: as given.
        domains: each must have a domain, as twins list relays by it.

    Raises:
        UsageError: too many, or one that is no address of a relay.
    """
    found = tuple(dict.fromkeys(urls))
    if not 1 <= len(found) <= MAX_RELAYS:
        raise UsageError(f"--relay: must be 1 to {MAX_RELAYS} relays, not {len(found)}")
    for url in found:
        problem = _relay_problem(url, domains)
        if problem:
            raise UsageError(f"--relay {shown(url)}: {problem}")
    return distinct(found)


def domain(url: str) -> str:
    """The name by which twins list the relay of an address."""
    return spelled(urlsplit(url).hostname or "")


def substrate_urls(urls: Sequence[str]) -> tuple[str, ...]:
    """The addresses of nodes, checked.

    Raises:
        UsageError: none, too many, or one that is none.
    """
    # Not at the top: it brings a websocket client, which who names no node does not need.
    from chain.rpc import check_urls

    try:
        return check_urls(urls)
    except ValueError as error:
        raise UsageError(f"--substrate: {error}") from None


def _relay_problem(url: str, domains: bool) -> str:
    try:
        host_and_port(url)
    except ValueError as error:
        return f"not an address: {error}"
    parts = urlsplit(url)
    if parts.scheme not in ("ws", "wss"):
        return "must begin with ws:// or wss://"
    if len(url) > MAX_URL_CHARS:
        return f"longer than {MAX_URL_CHARS} characters"
    if not parts.hostname:
        return "has no host"
    if "?" in url or "#" in url:
        return "must not have a query or a fragment"
    if parts.username is not None or at_behind_slash(url):
        return "must not have a user name or a password"
    return _domain_problem(parts.hostname) if domains else ""


def _domain_problem(host: str) -> str:
    """Why twins on a chain cannot list a host; empty: they can."""
    if relay_texts.SEPARATOR in host:
        return f"the host name must not contain {relay_texts.SEPARATOR!r}"
    if is_address(host):
        return "relay URL must contain a domain name, not an IP address"
    return ""
