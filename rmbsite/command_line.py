"""Command line of the site: `manage.py` in a checkout, `rmb-manage` where it is installed.

A relay notes in its data folder which Redis it uses: a command with the same data folder and no
`redis.url` of its own uses that one, also while the relay is stopped, and never the default.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmbsite.config import Resolved

GC_THRESHOLD = 20_000
"""Objects made between two collections: with Python's own 700 a tenth of most commands' time goes
into looking through what was imported."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


def main() -> int:
    """Run one management command.

    A bad setting is one line on standard error and exit code 2, a database that cannot be used one
    line and exit code 1, as is that nobody reads what it says any more. Ctrl-C ends it without a
    word, also while it still imports what it needs.
    """
    try:
        return _run()
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        gc.freeze()  # a last look through what was imported takes a fifth of most commands' time


def _run() -> int:
    gc.set_threshold(GC_THRESHOLD)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "rmbsite.settings")
    if sys.argv[1:2] == ["runrelay"]:
        # Its options are settings, such as the data folder: read before Django loads them.
        from relay.server import cli

        return cli.run(sys.argv[2:], "runrelay")
    if sys.argv[1:] == ["--version"]:  # Django would tell its own
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
        # The reader, such as `head`, has seen enough; what the command was at may not be done. What
        # is left in the buffers goes nowhere.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.dup2(nowhere, sys.stderr.fileno())
        return 1
    return 0


def _join_relay(found: Resolved) -> None:
    """Use the Redis of the relay that was last started in the data folder, and the domains of the
    one that runs there, unless they are set."""
    from relay.server import embedded, running
    from rmbsite.config import ConfigError

    # What shows where each setting comes from must find them as they are.
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
