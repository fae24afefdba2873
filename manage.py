#!/usr/bin/env python
"""Command line of the site."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Run one management command; a bad setting is one line on standard error and exit code 2."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "rmbsite.settings")
    from django.core.management import execute_from_command_line

    from rmbsite.config import ConfigError

    try:
        execute_from_command_line(sys.argv)
    except ConfigError as error:
        print(f"configuration: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
