"""The package that is sent to the executors of a cluster."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

from relay.analytics import packaging
from relay.analytics.spark.catalogue import tables

PROGRAM = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    importlib.import_module("relay.analytics.spark.jobs." + name)
loaded = sys.modules.items()
ours = {name: its.__file__ for name, its in loaded if name.split(".")[0] == "relay"}
print(json.dumps({"ours": ours, "django": "django" in sys.modules}))
"""


def test_every_job_works_from_the_zip_alone(tmp_path: Path) -> None:
    package = packaging.package(tmp_path)
    names = [table.name for table in tables()]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(package), *names],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert not told["django"]
    assert len(told["ours"]) > len(names)
    assert {Path(file).is_relative_to(package) for file in told["ours"].values()} == {True}


def test_the_same_content_has_the_same_name(tmp_path: Path) -> None:
    first = packaging.package(tmp_path)
    written = first.stat().st_mtime_ns
    assert packaging.package(tmp_path) == first
    assert first.stat().st_mtime_ns == written
    assert packaging.package(tmp_path / "elsewhere").read_bytes() == first.read_bytes()
    with zipfile.ZipFile(first) as archive:
        assert "relay/analytics/spark/schema.py" in archive.namelist()
        assert not [name for name in archive.namelist() if "models" in name or "lake" in name]
