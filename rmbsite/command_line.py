"""Command line of the site: `manage.py` in a checkout, `rmb-manage` in an installation.

A relay records in its data folder which Redis it uses. A command with the same data folder and no
`redis.url` of its own uses that Redis, even while the relay is stopped, and never the default.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmbsite.config import Resolved

GC_THRESHOLD = 20_000
"""Number of allocations between two garbage collections: with Python's default of 700, most
commands spend a tenth of their time scanning imported modules."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as in shells."""


def main() -> int:
    """Run one management command.

    A bad setting gives one line on standard error and exit code 2; a database that cannot be used
    gives one line and exit code 1. If the reader of the output has closed it, the exit code is 1.
    Ctrl-C ends the command without a message, even while it is still importing modules.
    """
    try:
        return _run()
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        gc.freeze()  # a final collection of imported modules takes a fifth of most commands' time


def _run() -> int:
    gc.set_threshold(GC_THRESHOLD)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "rmbsite.settings")
    if sys.argv[1:2] == ["runrelay"]:
        # Its options are settings, such as the data folder, and must be read before Django loads
        # them.
        from relay.server import cli

        return cli.run(sys.argv[2:], "runrelay")
    if sys.argv[1:] == ["--version"]:  # Django would print its own version
        from relay.server.cli import package_version

        print(f"rmb-manage {package_version()}")
        return 0
    from django.core.management import execute_from_command_line
    from django.db import DatabaseError

    from rmbsite import config

    try:
        _join_relay(config.resolve())
        execute_from_command_line(sys.argv)
        sys.stdout.flush()
    except config.ConfigError as error:
        print(f"configuration: {error}", file=sys.stderr)
        return 2
    except DatabaseError as error:
        if "--traceback" in sys.argv:
            raise
        text, folder = str(error).strip().partition("\n")[0], config.load().data_dir
        hint = "a start of the relay, or `migrate`, makes its tables"
        print(f"database: {text} (data folder {folder}; {hint})", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader, such as `head`, has closed its end, and the command may not have finished. The
        # rest of the buffers is discarded.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.dup2(nowhere, sys.stderr.fileno())
        return 1
    return 0


def _join_relay(found: Resolved) -> None:
    """Use the Redis of the relay that was last started in the data folder, and the domains of the
    relay that runs there, unless they are set.
    """
    from relay.server import embedded, running
    from rmbsite.config import ConfigError

    # The command that shows the origin of each setting must see the settings unchanged.
    if "redis.url" in found.origins or sys.argv[1:2] == ["rmb_checkconfig"]:
        return
    try:
        url = embedded.url_of_folder(found.config.data_dir)
    except embedded.EmbeddedError as error:
        raise ConfigError(str(error)) from None
    if url:
        os.environ["RMB_REDIS__URL"] = url
    relay = running.read(found.config.data_dir)
    if relay is not None and "relay.domains" not in found.origins:
        os.environ["RMB_RELAY__DOMAINS"] = " ".join(relay.settings["relay.domains"]["value"])
