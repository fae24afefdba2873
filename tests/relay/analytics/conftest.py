"""One Spark session for all tests of the jobs: starting it takes as long as many of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from relay.analytics.spark.session import open_session
from tests.support import frugal_spark


@pytest.fixture(autouse=True)
def _frugal_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(frugal_spark.JAVA_OPTIONS, frugal_spark.JAVA)


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Start a local session with two threads."""
    session = open_session(
        "local[2]",
        tmp_path_factory.mktemp("spark"),
        cores=1,
        driver_memory="1g",
        settings={"spark.driver.extraJavaOptions": frugal_spark.JAVA},
    )
    yield session
    session.stop()
