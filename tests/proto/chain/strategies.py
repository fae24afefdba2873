"""Hypothesis strategies for chain values."""

from __future__ import annotations

from hypothesis import strategies as st

from proto.chain.bounds import MAX_PK_BYTES, MAX_RELAY_BYTES, MAX_U32
from proto.chain.headers import Header
from proto.chain.twin import Entity, Twin

ids = st.integers(0, MAX_U32)
accounts = st.binary(min_size=32, max_size=32)
hashes = accounts
relay_texts = st.text("ab1-_.", max_size=12).map(str.encode) | st.binary(max_size=MAX_RELAY_BYTES)

twins = st.builds(
    Twin,
    ids,
    accounts,
    st.none() | relay_texts,
    st.lists(st.builds(Entity, ids, st.binary(max_size=80)), max_size=3).map(tuple),
    st.none() | st.binary(max_size=MAX_PK_BYTES),
)

headers = st.builds(
    Header, hashes, ids, hashes, hashes, st.lists(st.binary(max_size=40), max_size=3).map(tuple)
)
