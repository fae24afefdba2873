"""The mirror of the chain: block heights decide which answer is kept, on a real database."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from proto.chain.twin import Twin as ChainTwin
from relay.access.actor import SYSTEM
from relay.twins import mirror, services
from relay.twins.fields import TwinValues
from relay.twins.models import Twin

ACCOUNT = bytes(range(32))
KEY = b"\2" + bytes(32)

pytestmark = pytest.mark.django_db


def twin(relay: bytes | None, number: int = 7, pk: bytes | None = KEY) -> ChainTwin:
    return ChainTwin(number, ACCOUNT, relay, (), pk)


def relays(number: int = 7) -> tuple[str, ...] | None:
    found = mirror.records([number]).get(number)
    return found.relays if found else None


def test_a_twin_is_kept_with_its_height() -> None:
    assert mirror.keep_changed([(twin(b"b.example_a.example"), 40)]) == 1
    row = Twin.objects.get(id=7)
    assert (row.source, row.height, row.stale_since) == (Twin.Source.CHAIN, 40, None)
    record = mirror.records([7])[7]
    assert record == (7, ACCOUNT, KEY, ("a.example", "b.example"), 40)
    assert record == mirror.record_of(twin(b"b.example_a.example"), 40)
    assert mirror.highest_id() == 7


def test_an_event_wins_unless_a_later_block_is_known() -> None:
    mirror.keep_changed([(twin(b"old"), 40), (twin(b"new"), 40)])
    assert relays() == ("new",)
    mirror.keep_changed([(twin(b"same"), 40)])
    assert relays() == ("same",), "in one block the later event is told later"
    mirror.keep_changed([(twin(b"before"), 39)])
    assert relays() == ("same",)


def test_what_was_read_wins_only_from_a_later_block() -> None:
    mirror.keep_changed([(twin(b"event"), 40)])
    for height in (39, 40):
        mirror.keep_read([twin(b"read")], height)
        assert relays() == ("event",)
    mirror.keep_read([twin(b"read")], 41)
    assert relays() == ("read",)


def test_a_stale_row_gives_way_to_what_was_read_from_the_flush_on() -> None:
    mirror.keep_changed([(twin(b"event"), 90)])
    mirror.mark_stale(60)  # another branch, and lower
    mirror.keep_read([twin(b"too old")], 59)
    assert relays() == ("event",), "stale, and still the best there is"
    mirror.keep_read([twin(b"read")], 60)
    assert relays() == ("read",)
    mirror.mark_stale(60)
    mirror.keep_changed([(twin(b"event"), 50)])
    assert relays() == ("event",), "events are told in order: it is news"


def test_a_fork_that_was_left_takes_its_changes_along() -> None:
    mirror.keep_changed([(twin(b"fork"), 40), (twin(b"fork", 8), 40)])
    mirror.keep_reverted({7: twin(b"before"), 8: None}, 41)
    assert (relays(7), relays(8)) == (("before",), None)
    mirror.keep_read([twin(b"fork")], 40)
    assert relays() == ("before",)


def test_a_twin_that_anybody_can_sign_for_is_not_kept() -> None:
    weak = [ChainTwin(7, account, b"here", (), None) for account in (bytes(32), b"\1" + bytes(31))]
    for each in weak:
        assert mirror.keep_changed([(each, 40)]) == 0
        mirror.keep_read([each], 41)
        assert relays() is None
    Twin.objects.create(id=7, account=bytes(32), source=Twin.Source.CHAIN, height=1)
    mirror.keep_reverted({7: weak[0]}, 42)
    assert relays() is None, "what an earlier release kept goes"


def test_rows_of_the_registry_give_way() -> None:
    services.put_twin(TwinValues(7, ACCOUNT, None, ("registry",)), actor=SYSTEM)
    assert relays() is None
    assert mirror.highest_id() == 0
    mirror.mark_stale(5)
    assert Twin.objects.get(id=7).stale_since is None
    mirror.keep_read([twin(b"chain")], 1)
    assert relays() == ("chain",)


def test_a_look_up_is_compared_with_the_mirror() -> None:
    mirror.keep_changed([(twin(b"seven", 7), 40), (twin(b"eight", 8), 40), (twin(b"nine", 9), 40)])
    # The node lags: it has an older twin 7, does not have twin 8 yet, and knows twin 10.
    found, stale = mirror.reconcile([7, 8, 10], {7: twin(b"older", 7), 10: twin(b"ten", 10)}, 39)
    assert not stale
    assert {number: each.relays for number, each in found.items()} == {
        **{7: ("seven",), 8: ("eight",), 10: ("ten",)}
    }
    # The node is ahead of the mirror.
    found, _ = mirror.reconcile([7, 8], {7: twin(b"newer", 7)}, 41)
    assert {number: each.relays for number, each in found.items()} == {7: ("newer",)}
    assert relays(8) is None
    assert relays(9) == ("nine",), "nobody asked for it"


def test_an_answer_that_is_no_news_is_not_written() -> None:
    mirror.keep_changed([(twin(b"here"), 40)])
    before = Twin.objects.get(id=7)
    assert mirror.reconcile([7], {7: twin(b"here")}, 50).records[7].version == 40
    assert Twin.objects.get(id=7).updated == before.updated
    mirror.mark_stale(45)
    assert mirror.reconcile([7], {7: twin(b"here")}, 50).records[7].version == 50
    assert Twin.objects.get(id=7).stale_since is None


def test_a_node_behind_the_flush_does_not_make_a_row_fresh() -> None:
    mirror.keep_changed([(twin(b"here"), 40)])
    mirror.mark_stale(60)
    assert mirror.reconcile([7], {7: twin(b"here")}, 59).stale
    assert not mirror.reconcile([7], {7: twin(b"here")}, 60).stale


def test_what_an_import_did_not_see_is_dropped() -> None:
    mirror.keep_read([twin(b"a", 7), twin(b"b", 8), twin(b"c", 9)], 10)
    mirror.mark_stale(20)
    mirror.keep_read([twin(b"a", 7)], 21)
    Twin.objects.filter(id=9).update(stale_since=25)  # a flush while the import ran
    assert mirror.drop_unseen(21) == 1
    assert sorted(Twin.objects.values_list("id", flat=True)) == [7, 9]


@pytest.mark.parametrize(
    ("relay", "expected"),
    [
        (None, ()),
        (b"", ()),
        (b"_", ()),
        (b"b_a_b", ("a", "b")),
        (b"a\xff", ("a\ufffd",)),
        (b"a\0b", ("a\ufffdb",)),
    ],
)
def test_any_relay_text_is_kept(relay: bytes | None, expected: tuple[str, ...]) -> None:
    mirror.keep_changed([(twin(relay), 1)])
    assert relays() == expected


def test_a_key_that_is_none_is_left_out() -> None:
    for pk in (None, b"", b"\2" * 32, b"\2" * 128):
        mirror.keep_reverted({7: twin(b"a", pk=pk)}, 1)
        assert mirror.records([7])[7].pk is None
    assert mirror.reconcile([7], {7: twin(b"a", pk=b"\2" * 128)}, 9).records[7].version == 1


def test_many_at_once() -> None:
    every = [twin(b"r%d" % number, number) for number in range(1, 1201)]
    mirror.keep_read(every, 5)
    assert len(mirror.records(range(1, 2000))) == 1200
    mirror.keep_reverted(dict.fromkeys(range(1, 1201)), 6)
    assert Twin.objects.count() == 0


WRITE = st.tuples(st.sampled_from(["changed", "read"]), st.integers(1, 9))


class AnyOrder(TestCase):
    """The value of the greatest height is kept, in whatever order the answers arrive."""

    @given(st.lists(WRITE, min_size=1, max_size=8))
    def test_the_greatest_height_stays(self, writes: list[tuple[str, int]]) -> None:
        Twin.objects.all().delete()
        for kind, height in writes:
            value = twin(b"at%d" % height)
            if kind == "changed":
                mirror.keep_changed([(value, height)])
            else:
                mirror.keep_read([value], height)
        assert relays() == (f"at{max(height for _, height in writes)}",)
