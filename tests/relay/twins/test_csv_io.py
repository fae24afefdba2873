"""`relay.twins.csv_io` and the command `rmb_twin`: import and export of twins."""

from __future__ import annotations

import dataclasses
import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from relay.access.actor import SYSTEM
from relay.queues import keys
from relay.twins import csv_io
from relay.twins.csv_io import ImportRefusedError, LineError, import_twins
from relay.twins.models import Twin
from tests.relay.twins.test_fields import values
from tests.support.redis_servers import RedisServer
from tests.support.relay_process import run_command

HEADER = "id,account,pk,relays\n"


def account(number: int) -> str:
    return "0x" + number.to_bytes(32, "big").hex()


def pk(number: int) -> str:
    return "0x02" + number.to_bytes(32, "big").hex()


def lines(*rows: str) -> StringIO:
    return StringIO(HEADER + "".join(f"{row}\n" for row in rows))


def refused(file: StringIO) -> list[str]:
    with pytest.raises(ImportRefusedError) as caught:
        import_twins(file, actor=SYSTEM)
    return [str(error) for error in caught.value.report.errors]


@pytest.mark.django_db
class TestImport:
    def test_twins_are_added_and_changed(self) -> None:
        first = lines(f"7,{account(7)},{pk(7)},a_b", f"8,{account(8)},,")
        report = import_twins(first, actor=SYSTEM)
        assert (report.rows, report.added, report.changed, report.error_count) == (2, 2, 0, 0)
        second = lines(
            f"7,{account(7)},{pk(7)},a_b",
            f"8,{account(8)},{pk(8)},",
            f"9,{account(9)},,c",
        )
        report = import_twins(second, actor=SYSTEM)
        assert (report.rows, report.added, report.changed) == (3, 1, 1)
        stored = {twin.id: twin for twin in Twin.objects.all()}
        assert stored[7].record().relays == ("a", "b")
        assert (stored[7].version, stored[8].version, stored[9].version) == (1, 2, 1)
        assert stored[8].record().pk == bytes.fromhex(pk(8)[2:])
        # The new row has neither key nor relays.
        report = import_twins(lines(f"7,{account(7)},,"), actor=SYSTEM)
        assert report.changed == 1
        assert Twin.objects.get(pk=7).record()[2:] == (None, (), 2)
        assert Twin.objects.count() == 3, "twins that are not in the file stay"

    def test_twins_of_the_chain_become_those_of_the_registry(self) -> None:
        """Also those that the file does not change."""
        import_twins(lines(f"7,{account(7)},,here"), actor=SYSTEM)
        Twin.objects.update(source=Twin.Source.CHAIN, height=70, stale_since=80)
        report = import_twins(lines(f"7,{account(7)},,here"), actor=SYSTEM)
        row = Twin.objects.get(id=7)
        assert (row.source, row.height, row.stale_since) == (Twin.Source.REGISTRY, None, None)
        assert report.changed == 1

    def test_errors_have_line_numbers_and_nothing_is_changed(self) -> None:
        file = lines(
            f"1,{account(1)},,here",
            f"x,{account(2)},,here",
            "",
            f"3,{account(3)[:-1]},,here",
            f"4,{account(4)},0x00,here",
            f"5,{account(5)},",
            f"1,{account(6)},,here",
            f'7,{account(7)},,"a\x07"',
            f"8,0x{'00' * 32},,here",
            f"9,{account(8)},,r.example/",
        )
        assert refused(file) == [
            "line 3: id: must be a number, not 'x'",
            "line 5: account: must be 0x and 64 hexadecimal digits",
            "line 6: pk: must be 0x and 66 hexadecimal digits",
            "line 7: 3 fields, there must be 4",
            "line 8: id: twin 1 is on line 2 already",
            "line 9: relays: must not contain control characters",
            "line 10: account: anybody can sign for this account (a key of small order)",
            "line 11: relays: 'r.example/' is neither a host name nor host:port with a port up to "
            "65535; did you mean r.example?",
        ]
        assert Twin.objects.count() == 0

    def test_keep_going_imports_the_good_lines(self) -> None:
        report = import_twins(
            lines(f"1,{account(1)},,", "nonsense", f"2,{account(2)},,"),
            keep_going=True,
            actor=SYSTEM,
        )
        assert (report.added, report.error_count) == (2, 1)

    @pytest.mark.parametrize(
        "text",
        ["", "id,account,relays\n", "7,0x00,,\n", "\x00", '"id\n', "x" * 100_000],
        ids=["empty", "columns", "no-header", "nul", "quote", "long"],
    )
    def test_a_file_that_is_no_such_file(self, text: str) -> None:
        assert len(refused(StringIO(text))) == 1

    def test_header_case_spaces_and_quotes(self) -> None:
        report = import_twins(
            StringIO(f'ID, Account ,pk,relays\r\n"1","{account(1)}",,"a_b"\r\n'), actor=SYSTEM
        )
        assert report.added == 1

    def test_an_endless_line_ends_the_import(self) -> None:
        file = lines(f"1,{account(1)},," + "x" * csv_io.MAX_LINE_CHARS, f"2,{account(2)},,")
        assert refused(file) == ["line 2: longer than 16384 characters"]

    def test_errors_are_counted_beyond_those_kept(self) -> None:
        with pytest.raises(ImportRefusedError, match="250 lines are wrong") as caught:
            import_twins(lines(*(["x"] * 250)), actor=SYSTEM)
        assert len(caught.value.report.errors) == csv_io.MAX_ERRORS

    def test_rows_are_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(csv_io, "MAX_ROWS", 2)
        file = lines(*(f"{n},{account(n)},," for n in range(1, 5)))
        assert refused(file) == ["line 4: more than 2 twins in one file"]

    def test_progress_and_stages(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(csv_io, "STAGE_ROWS", 7)
        monkeypatch.setattr(csv_io, "PROGRESS_ROWS", 10)
        seen: list[int] = []
        file = lines(*(f"{n},{account(n)},," for n in range(1, 26)))
        assert import_twins(file, progress=seen.append, actor=SYSTEM).added == 25
        assert seen == [10, 20]


class TestAnyFile(TestCase):
    @given(st.text())
    def test_any_text_is_read_to_its_end(self, text: str) -> None:
        for found in csv_io.read(StringIO(HEADER + text, newline="")):
            assert isinstance(found, LineError) or found[0] > 1

    @given(st.lists(values, max_size=20, unique_by=lambda each: each.id))
    def test_an_export_is_imported_as_it_was(self, twins: list) -> None:  # type: ignore[type-arg]
        Twin.objects.all().delete()
        for each in twins:
            Twin.objects.create(
                id=each.id,
                account=each.account,
                encryption_key=each.pk,
                relays="_".join(each.relays),
            )
        records = {twin.id: twin.record() for twin in Twin.objects.all()}
        exported = StringIO(newline="")
        assert csv_io.export_twins(exported) == len(twins)
        Twin.objects.all().delete()
        exported.seek(0)
        assert import_twins(exported, actor=SYSTEM).added == len(twins)
        assert {twin.id: twin.record() for twin in Twin.objects.all()} == records


@pytest.mark.django_db
class TestCommand:
    def run(self, *arguments: str) -> tuple[str, str]:
        stdout, stderr = StringIO(), StringIO()
        call_command("rmb_twin", *arguments, stdout=stdout, stderr=stderr)
        return stdout.getvalue(), stderr.getvalue()

    def test_add_list_remove(self) -> None:
        assert self.run("add", "7", account(7), "--relays", "a_b")[0] == "twin 7 added\n"
        assert self.run("add", "7", account(7), "--pk", pk(7))[0] == "twin 7 changed\n"
        assert Twin.objects.get(pk=7).version == 2
        assert json.loads(self.run("list", "--json")[0]) == [
            {"id": "7", "account": Twin.objects.get(pk=7).address, "pk": pk(7), "relays": ""}
        ]
        assert self.run("list", "7", "8")[1] == "1 of 1 twins shown\n"
        with pytest.raises(CommandError, match="no such twins: 8, 9; nothing was removed"):
            self.run("remove", "9", "7", "8")
        assert self.run("remove", "7")[0] == "1 twin removed\n"

    def test_add_lists_this_relay_unless_told_otherwise(self, settings: Any) -> None:
        _, told = self.run("add", "7", account(7))
        assert "twin 7: it lists no relay, so no message reaches it" in told
        own = dataclasses.replace(settings.RMB.relay, domains=("here.example", "too.example"))
        settings.RMB = dataclasses.replace(settings.RMB, relay=own)
        assert self.run("add", "7", account(7)) == ("twin 7 changed\n", "")
        assert Twin.objects.get(pk=7).relays == "here.example"
        assert "it lists no relay" in self.run("add", "7", account(7), "--relays", "")[1]
        with pytest.raises(CommandError, match=r"'wss://a'.*did you mean a"):
            self.run("add", "7", account(7), "--relays", "wss://a")
        assert Twin.objects.get(pk=7).relays == ""

    def test_list_finds_what_rest_finds(self) -> None:
        for number, relays in ((7, "a.example"), (8, "b.example_a.example"), (9, "aa.example")):
            Twin.objects.create(id=number, account=bytes([number]) * 32, relays=relays)
        stale = {"source": Twin.Source.CHAIN, "stale_since": 5}
        Twin.objects.create(id=10, account=bytes([10]) * 32, **stale)

        def found(*arguments: str) -> list[str]:
            return [each["id"] for each in json.loads(self.run("list", *arguments, "--json")[0])]

        assert found("--relay", "a.example") == ["7", "8"]
        assert found("--text", "B.EXAMPLE") == ["8"]
        assert found("--source", "chain") == found("--stale", "true") == ["10"]
        assert found("--order=-id", "--limit", "2") == ["10", "9"]
        assert found("7", "10", "--stale", "false") == ["7"]
        with pytest.raises(CommandError, match="relay: is not a relay name"):
            found("--relay", "a_b")

    def test_changes_for_programs(self, tmp_path: Path) -> None:
        added = self.run("add", "7", account(7), "--json")[0]
        assert json.loads(added) == {"id": 7, "added": True}
        file = tmp_path / "twins.csv"
        file.write_text(lines(f"7,{account(7)},,a", "8,x,,").getvalue())
        document = json.loads(self.run("import", str(file), "--keep-going", "--json")[0])
        assert (document["changed"], document["errors"][0]["line"]) == (1, 3)
        assert json.loads(self.run("remove", "7", "--json")[0]) == {"removed": 1}

    def test_import_and_export_files(self, tmp_path: Path) -> None:
        file = tmp_path / "twins.csv"
        # Some spreadsheets write a byte order mark.
        file.write_text("\ufeff" + lines(f"7,{account(7)},,a").getvalue(), encoding="utf-8")
        assert self.run("import", str(file))[0].startswith("1 rows read: 1 twins added")
        self.run("export", str(tmp_path / "out.csv"))
        assert (tmp_path / "out.csv").read_text().splitlines()[1].startswith("7,5")
        assert self.run("import", str(tmp_path / "out.csv"))[0].startswith("1 rows read: 0 twins")

    def test_a_file_stays_where_nothing_can_be_read(self, tmp_path: Path) -> None:
        file = tmp_path / "twins.csv"
        file.write_text("precious")
        ended = run_command(tmp_path, "rmb_twin", "export", "twins.csv")
        assert ended.returncode == 1 and "no such table" in ended.stderr
        assert file.read_text() == "precious"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "twins.csv"]
        with pytest.raises(CommandError, match="No such file or directory"):
            self.run("export", str(tmp_path / "missing" / "twins.csv"))

    def test_a_bad_file(self, tmp_path: Path) -> None:
        file = tmp_path / "twins.csv"
        file.write_bytes(lines(f"7,{account(7)},,").getvalue().encode() + b"8,\xff,,\n")
        with pytest.raises(CommandError, match="1 lines are wrong, nothing was imported"):
            self.run("import", str(file))
        stdout, stderr = self.run("import", str(file), "--keep-going")
        assert "1 twins added" in stdout
        assert stderr.startswith("line 3: account: ")

    @pytest.mark.parametrize(
        ("arguments", "complaint"),
        [
            (("add", "x", "y"), "id: must be a number"),
            (("add", "1", "y"), "account: "),
            (("import", "/no/such/file"), "No such file"),
            (("list", "x"), "id: must be"),
        ],
    )
    def test_bad_arguments(self, arguments: tuple[str, ...], complaint: str) -> None:
        with pytest.raises(CommandError, match=complaint):
            self.run(*arguments)


@pytest.mark.django_db(transaction=True)
def test_workers_hear_of_an_import_that_changed_something(site_redis: RedisServer) -> None:
    site_redis.run("HSET", keys.TWINS, "7", "old")
    with site_redis.client() as client, client.pubsub(ignore_subscribe_messages=True) as news:
        news.subscribe(keys.TWINS_CHANNEL)
        news.get_message(timeout=5)
        for _ in range(2):
            import_twins(lines(f"7,{account(7)},,here"), actor=SYSTEM)
        message = news.get_message(timeout=5)
        assert message is not None and message["data"] == b"1 *"
        assert news.get_message(timeout=0) is None
    assert site_redis.run("GET", keys.TWINS_VERSION) == b"1"
    assert site_redis.run("EXISTS", keys.TWINS) == 0
