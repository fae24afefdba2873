"""One Spark session for all tests of the jobs: its start takes as long as many of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from relay.analytics.spark.session import open_session

FRUGAL_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
"""Jobs of tests end before what a better compiler makes of them would be worth its work: so they
take 27 s of processor time in place of 72. Room for what is compiled is less in this mode, and
once it is full nothing more is."""


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session of two threads."""
    session = open_session(
        "local[2]",
        tmp_path_factory.mktemp("spark"),
        cores=1,
        driver_memory="1g",
        settings={"spark.driver.extraJavaOptions": FRUGAL_JAVA},
    )
    yield session
    session.stop()
