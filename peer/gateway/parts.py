"""What the options name, opened: twins, modules, and tokens for the relays."""

from __future__ import annotations

import time
from collections.abc import Callable

from peer.arguments import UsageError
from peer.errors import TwinsAwayError
from peer.gateway.options import Options
from peer.identity import Identity
from peer.modules.api import Module, Modules
from peer.modules.files import Uploads
from peer.modules.loading import ModuleError, load
from peer.modules.version import version_module
from peer.twins import Twin, TwinSource, open_source
from proto.identity import tokens


def open_twins(options: Options) -> TwinSource:
    """Where twins are looked up; the caller closes it.

    Raises:
        UsageError: there is nothing there.
    """
    try:
        return open_source(options.twins, options.substrate)
    except (ValueError, TwinsAwayError) as error:
        raise UsageError(f"--twins: {error}") from None


def token_maker(identity: Identity, twin: Twin, sid: str | None = None) -> Callable[[], str]:
    """Makes tokens of the own twin's session, by default the one without an id."""

    def make() -> str:
        return tokens.issue(identity.key, twin.id, sid, int(time.time()))

    return make


def load_modules(options: Options) -> list[Module]:
    """The modules that answer commands in the gateway's process: its own, then those of users.

    Raises:
        UsageError: one cannot be loaded, or has a prefix that another one has.
    """
    own = [version_module(), Uploads(options.uploads, options.upload_limits)]
    try:
        modules = own + load(options.modules)
        Modules.of(*modules)
    except (ModuleError, ValueError) as error:
        raise UsageError(str(error)) from None
    return modules
