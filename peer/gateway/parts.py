"""Parts that the options select: twins, modules, and tokens for the relays."""

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
    """Open the source of twins; the caller closes it.

    Raises:
        UsageError: the source does not exist or is invalid.
    """
    try:
        return open_source(options.twins, options.substrate)
    except (ValueError, TwinsAwayError) as error:
        raise UsageError(f"--twins: {error}") from None


def token_maker(identity: Identity, twin: Twin, sid: str | None = None) -> Callable[[], str]:
    """Return a function that issues tokens of the own twin's session, by default without an id."""

    def make() -> str:
        return tokens.issue(identity.key, twin.id, sid, int(time.time()))

    return make


def load_modules(options: Options) -> list[Module]:
    """Load the modules that answer commands in the gateway's process: its own, then those of users.

    Raises:
        UsageError: a module cannot be loaded, or its prefix is taken.
    """
    own = [version_module(), Uploads(options.uploads, options.upload_limits)]
    try:
        modules = own + load(options.modules)
        Modules.of(*modules)
    except (ModuleError, ValueError) as error:
        raise UsageError(str(error)) from None
    return modules
