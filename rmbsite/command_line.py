"""Command line of the site: `manage.py` in a checkout, `rmb-manage` where it is installed."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Run one management command; a bad setting is one line on standard error and exit code 2."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "rmbsite.settings")
    if sys.argv[1:2] == ["runrelay"]:
        # Its options are settings, such as the data folder: read before Django loads them.
        from relay.server import cli

        return cli.run(sys.argv[2:], "runrelay")
    from django.core.management import execute_from_command_line

    from rmbsite.config import ConfigError

    try:
        execute_from_command_line(sys.argv)
    except ConfigError as error:
        print(f"configuration: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough. What is left in the buffer goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
