#!/usr/bin/env python
"""Command line of the site in a checkout; in an installation it is `rmb-manage`."""

from __future__ import annotations

import sys

from rmbsite.command_line import main

if __name__ == "__main__":
    sys.exit(main())
