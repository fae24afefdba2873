"""Tests of parsers of foreign texts: any text is understood or refused with the parser's error."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lattice import credentials
from lattice.bridge.refusals import FailedError
from lattice.bridge.to_lattice import find_target
from lattice.errors import ConnectError, ObjectLostError
from lattice.objects import Description
from lattice.options import LatticeOptions
from tests.lattice.test_bridge import Known
from tests.proto.lattice.identities import ACTOR, PROVIDER

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda values: st.lists(values, max_size=3),
    max_leaves=4,
)
DESCRIPTIONS = st.dictionaries(
    st.sampled_from(["nuid", "size", "digest", "deleted", "x"]),
    JSON_VALUES | st.just("SHA-256=AAAA") | st.just("nuid"),
)
LINES = st.sampled_from(
    ["-----BEGIN NATS USER JWT-----", "------END NATS USER JWT------", "abc", "SUA", "", "é",
     "-----BEGIN USER NKEY SEED-----", "------END USER NKEY SEED------"]
)  # fmt: skip
NAMES = st.sampled_from([ACTOR.public, PROVIDER.public, "echo", "main", "A", "", "é", "\0"])


@given(st.binary(max_size=20) | DESCRIPTIONS.map(lambda value: json.dumps(value).encode()))
def test_any_description_of_an_object(data: bytes) -> None:
    with contextlib.suppress(ObjectLostError):
        found = Description.read(data)
        assert found.size >= 0 and "." not in found.nuid


@given(st.lists(NAMES, max_size=5).map(".".join) | st.text(max_size=80))
def test_any_command_of_a_twin(command: str) -> None:
    with contextlib.suppress(FailedError):
        target = find_target(f"lattice.{command}", Known())
        assert target.operation and target.entity.public_key


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield tmp_path_factory.mktemp("credentials") / "user.creds"


@given(st.lists(LINES, max_size=9).map("\n".join) | st.text(max_size=30))
def test_any_file_of_credentials(file: Path, text: str) -> None:
    file.write_text(text)
    with contextlib.suppress(ConnectError):
        found = credentials.read(LatticeOptions(credentials_file=str(file)))
        assert found is not None
        found.signer()
