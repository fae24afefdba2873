"""Settings that all verbs of `rmb` share: the identity, the relays, and the source of twins.

Each value comes from the first place that has it: the options, the environment (RMB_SECRET or
RMB_SECRET_FILE, RMB_KEY_TYPE, RMB_RELAY, RMB_TWINS, RMB_SUBSTRATE), a profile, a default. A profile
is a TOML file with any of these:

    secret_file = "secret"      # or: secret = "12 or 24 words, or 0x and 64 digits"
    key_type = "sr25519"
    relays = ["wss://relay.example.com"]
    twins = "http://127.0.0.1:8081"
    substrate = ["wss://tfchain.grid.tf:443"]

Names of files in it are relative to its folder.
"""

from __future__ import annotations

import argparse
import os
import sys
import tomllib
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from peer import arguments
from peer.arguments import UsageError
from peer.errors import PeerError, TwinsAwayError
from peer.identity import Identity
from peer.twins import Twin, TwinSource, open_source
from proto.identity import ss58
from proto.identity.signing import KeyType

if TYPE_CHECKING:
    from peer.client import Client

PROFILE_VARIABLE: Final = "RMB_PROFILE"
IDENTITY, RELAYS, TWINS = "identity", "relays", "twins"
ALL: Final = (IDENTITY, RELAYS, TWINS)
"""Groups of values that a verb may read; a verb that reads fewer lists them as `READS`."""
MAX_PROFILE_BYTES: Final = 64 * 1024

_LISTS: Final = ("relays", "substrate")
_TEXTS: Final = ("secret", "secret_file", "key_type", "twins")
_OTHERS: Final = 0o077


class NoTwinError(PeerError):
    """The twin that was looked up does not exist."""


def add_options(parser: argparse.ArgumentParser, reads: Collection[str] = ALL) -> None:
    """Add the options that verbs share; they may precede or follow the verb.

    Args:
        parser: parser of the program or of a verb.
        reads: groups of values that the verb reads, of `ALL`.
    """
    # No defaults: the verb's parser would overwrite options given before the verb.
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")
    parser.add_argument(
        "-d", "--debug", action="count", default=argparse.SUPPRESS, help="log to standard error"
    )
    if not reads:
        return
    group = parser.add_argument_group(
        "identity and connections (options, or variables, or a profile)"
    )

    def add(*names: str, **details: Any) -> None:
        group.add_argument(*names, default=argparse.SUPPRESS, **details)

    add("-p", "--profile", metavar="FILE", help="TOML file with the values below (RMB_PROFILE)")
    if IDENTITY in reads:
        _add_identity(add)
    if RELAYS in reads:
        add(
            "--relay",
            action="append",
            metavar="URL",
            help=f"relay; repeatable; default {' '.join(arguments.DEFAULT_RELAYS)} (RMB_RELAY)",
        )
    if TWINS in reads:
        _add_twins(add)


def _add_identity(add: Callable[..., None]) -> None:
    add(
        "-m",
        "--mnemonic",
        metavar="SECRET",
        help="secret; visible in the list of processes (RMB_SECRET)",
    )
    add(
        "--secret-file",
        metavar="FILE",
        help="file that contains only the secret (RMB_SECRET_FILE)",
    )
    add("-k", "--key-type", metavar="TYPE", help="sr25519 (default) or ed25519 (RMB_KEY_TYPE)")


def _add_twins(add: Callable[..., None]) -> None:
    add(
        "--twins",
        metavar="FILE|URL",
        help="look twins up in this CSV file or relay's operator site, not on the chain "
        "(RMB_TWINS)",
    )
    add(
        "-s",
        "--substrate",
        action="append",
        metavar="URL",
        help=f"node of the chain; default {' '.join(arguments.DEFAULT_SUBSTRATE)} (RMB_SUBSTRATE)",
    )


class Session:
    """The settings, read when they are first needed.

    Args:
        options: the parsed command line.

    Raises:
        UsageError: the profile cannot be used.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        name = getattr(options, "profile", None) or os.environ.get(PROFILE_VARIABLE)
        self._folder, self._profile = (
            _read_profile(arguments.at_home(name)) if name else (Path(), {})
        )
        self.json: bool = getattr(options, "json", False)
        self.debug: int = getattr(options, "debug", 0)

    @cached_property
    def identity(self) -> Identity:
        """The own keys.

        Raises:
            UsageError: no secret is given, or it is invalid.
        """
        return arguments.identity(self.secret, self.key_type)

    @property
    def key_type(self) -> KeyType:
        """Type of the own signing key.

        Raises:
            UsageError: the key type is unknown.
        """
        return arguments.key_type(self._text("key_type", "sr25519"))

    @cached_property
    def secret(self) -> str:
        """The own secret.

        Raises:
            UsageError: no secret is given, or it cannot be read.
        """
        text = getattr(self._options, "mnemonic", None)
        file = getattr(self._options, "secret_file", None)
        environment = (arguments.SECRET_VARIABLE, arguments.SECRET_FILE_VARIABLE)
        if text is None and file is None and not any(map(os.environ.get, environment)):
            text = self._profile.get("secret")
            if "secret_file" in self._profile:
                file = str(self._folder / arguments.at_home(self._profile["secret_file"]))
        return arguments.secret(text, file)

    @cached_property
    def relays(self) -> tuple[str, ...]:
        """Addresses of the relays to use.

        Raises:
            UsageError: an address is invalid.
        """
        return arguments.relay_urls(
            self._list("relay", "relays", arguments.DEFAULT_RELAYS), domains=False
        )

    async def own_twin(self) -> Twin:
        """Return the twin of the own account.

        Raises:
            UsageError: no secret is given, or the source of twins is invalid.
            PeerError: the twin does not exist, or the source is unavailable.
        """
        identity = self.identity
        source = self.open_twins()
        try:
            twin = await source.by_account(identity.account)
        finally:
            await source.aclose()
        if twin is None:
            raise NoTwinError(
                f"no twin found with given key (account {ss58.encode(identity.account)})"
            )
        return twin

    def client(self, **details: Any) -> Client:
        """Return an unopened client of the own twin; details are arguments of `peer.client.Client`.

        Raises:
            UsageError: a required setting is missing or invalid.
        """
        # Imported here: verbs that show keys and twins do not need it.
        from peer.client import Client
        from peer.client.bounds import CONNECT_TIMEOUT_S, TIMEOUT_S

        timeout_s = min(details.get("timeout", TIMEOUT_S), CONNECT_TIMEOUT_S)
        place = self.open_twins()
        return Client(self.identity, self.relays, place, connect_timeout=timeout_s, **details)

    def open_twins(self) -> TwinSource:
        """Open the source of twins; the caller closes it.

        Raises:
            UsageError: the source does not exist or is invalid.
        """
        spec = self._text("twins", "")
        if spec and spec == self._profile.get("twins") and "://" not in spec:
            spec = str(self._folder / arguments.at_home(spec))
        nodes = self._list("substrate", "substrate", arguments.DEFAULT_SUBSTRATE)
        try:
            return open_source(spec or None, () if spec else arguments.substrate_urls(nodes))
        except (ValueError, TwinsAwayError) as error:
            raise UsageError(f"--twins: {error}") from None

    def _text(self, name: str, default: str) -> str:
        given = getattr(self._options, name, None) or os.environ.get(f"RMB_{name.upper()}")
        found: str = given or self._profile.get(name, default)
        return found

    def _list(self, option: str, key: str, default: Sequence[str]) -> Sequence[str]:
        given: Sequence[str] = getattr(self._options, option, None) or ()
        return (
            given
            or os.environ.get(f"RMB_{option.upper()}", "").split()
            or (self._profile.get(key, default))
        )


def _read_profile(path: Path) -> tuple[Path, dict[str, Any]]:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_PROFILE_BYTES + 1)
            readable = bool(os.fstat(file.fileno()).st_mode & _OTHERS)
    except OSError as error:
        raise UsageError(f"profile {path}: {error.strerror}") from None
    if len(data) > MAX_PROFILE_BYTES:
        raise UsageError(f"profile {path}: more than {MAX_PROFILE_BYTES} bytes")
    try:
        values = tomllib.loads(data.decode())
    except ValueError as error:
        # Only the position of the error, never the line itself: it may contain the secret.
        where = str(error).rpartition("(")[2].rstrip(")")
        raise UsageError(f"profile {path}: not valid TOML ({where})") from None
    for name, value in values.items():
        values[name] = _checked(path, name, value)
    if "secret" in values and "secret_file" in values:
        raise UsageError(f"profile {path}: set secret or secret_file, not both")
    if "secret" in values and readable:
        print(
            f"rmb: profile {path}: other users can read its secret; run chmod 600", file=sys.stderr
        )
    return path.parent, values


def _checked(path: Path, name: str, value: Any) -> Any:
    if name in _LISTS:
        texts = [value] if isinstance(value, str) else value
        if isinstance(texts, list) and all(isinstance(each, str) for each in texts):
            return texts
        raise UsageError(f"profile {path}: {name} must be a list of strings")
    if name in _TEXTS:
        if isinstance(value, str) and value:
            return value
        raise UsageError(f"profile {path}: {name} must be a string")
    known = ", ".join((*_TEXTS, *_LISTS))
    raise UsageError(f"profile {path}: unknown key {name!r:.40}; known keys: {known}")
