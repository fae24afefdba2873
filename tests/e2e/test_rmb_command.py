"""`rmb` with a real relay: calls, services and pings, as typed on a command line."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.identities import Twin
from tests.support.peer_process import CLI, Program, environment, run_program, write_secret
from tests.support.relay_process import RelayProcess
from tests.support.started import embedded
from tests.support.waiting import eventually
from tests.support.world import fresh_twins

Rmb = Callable[..., Any]
StartService = Callable[..., Program]


@pytest.fixture
def rmb(relay: RelayProcess, tmp_path: Path) -> Rmb:
    """Return a function that runs `rmb` as a twin: `rmb(twin, "call", ...)`."""

    def run(who: Twin, *arguments: str, stdin: bytes | None = None) -> Any:
        return run_program(
            CLI, tmp_path, *arguments, stdin=stdin, more=_environment(relay, who, tmp_path)
        )

    return run


@pytest.fixture
def serve(relay: RelayProcess, tmp_path: Path) -> Iterator[StartService]:
    """Return a function that starts `rmb serve` as a twin."""
    started: list[Program] = []

    def start(who: Twin, *arguments: str) -> Program:
        more = _environment(relay, who, tmp_path)
        started.append(Program(CLI, tmp_path, "serve", *arguments, more=more))
        return started[-1]

    yield start
    for each in started:
        each.stop()
        print(each.log())


def _environment(relay: RelayProcess, who: Twin, folder: Path) -> dict[str, str]:
    return {
        "RMB_RELAY": relay.url,
        "RMB_TWINS": f"http://127.0.0.1:{relay.admin_port}",
        "RMB_SECRET_FILE": str(write_secret(folder, who)),
    }


PYTHON = sys.executable
FAIL = f"fail={PYTHON} -c 'raise SystemExit(3)'"
WHO = f'who={PYTHON} -c \'import os; print(os.environ["RMB_SOURCE"], os.environ["RMB_COMMAND"])\''
FLOOD = f"flood={PYTHON} -c 'print(20_000_000 * str(1))'"
DEAF = f"deaf={PYTHON} -c 'print(1)'"
READS_STANDARD_INPUT = (["0", "0x0"], ["63", "0x0"])  # read(0), on x86-64 and on others
SLOW = f"slow={PYTHON} -c 'import time; time.sleep(600)'"


async def test_a_program_that_says_too_much_is_ended(rmb: Rmb, serve: StartService) -> None:
    asker, server = fresh_twins(2)
    service = serve(server, FLOOD)
    await service.says("serving flood")
    done = rmb(asker, "call", str(server.id), "flood", "--timeout", "20")
    assert done.returncode == 1
    assert "the program wrote more than 16711680 bytes" in done.stderr.decode()


def test_requests_are_answered_when_nobody_reads_of_them_any_more(
    rmb: Rmb, relay: RelayProcess, tmp_path: Path
) -> None:
    """Requests are answered after the output is closed, as in `rmb serve echo=cat | head -1`."""
    asker, server = fresh_twins(2)
    with subprocess.Popen(
        [sys.executable, "-m", CLI, "serve", "echo=cat"],
        cwd=tmp_path,
        env=environment(_environment(relay, server, tmp_path)),
        stdout=subprocess.PIPE,
    ) as service:
        assert service.stdout is not None
        try:
            assert service.stdout.readline().startswith(b"serving echo")
            service.stdout.close()
            for _ in range(2):
                done = rmb(asker, "call", str(server.id), "echo", "[1]")
                assert (done.returncode, done.stdout, done.stderr) == (0, b"[1]", b"")
        finally:
            service.terminate()
    assert service.returncode == 0


async def test_a_call_gets_what_a_program_answers(rmb: Rmb, serve: StartService) -> None:
    asker, server = fresh_twins(2)
    service = serve(server, "echo=cat", FAIL, WHO, DEAF)
    await service.says("serving echo fail who deaf rmb.* as twin")
    done = rmb(asker, "call", str(server.id), "echo", '{"a": "ä"}')
    assert (done.returncode, done.stdout.decode(), done.stderr) == (0, '{"a": "ä"}', b"")
    done = rmb(asker, "call", str(server.id), "echo", "-", "--json", stdin=b"[1, 2]")
    answer = json.loads(done.stdout)
    assert answer["answer"] == {"json": [1, 2]}
    assert (answer["source"], answer["schema"]) == (str(server.id), "application/json")
    assert answer["ms"] > 0
    done = rmb(asker, "call", str(server.id), "echo", "no json", "--raw", "--json")
    assert json.loads(done.stdout)["answer"] == {"text": "no json"}
    done = rmb(asker, "call", str(server.id), "echo", "-", "--raw", stdin=bytes(range(256)))
    assert done.stdout == bytes(range(256))
    # A program need not read its input, however large it is.
    done = rmb(asker, "call", str(server.id), "deaf", "-", "--raw", stdin=bytes(2**20))
    assert done.stdout == b"1\n"
    source, command = rmb(asker, "call", str(server.id), "who").stdout.decode().split()
    assert source.startswith(f"{asker.id}:") and command == "who"
    done = rmb(asker, "call", str(server.id), "fail")
    assert done.returncode == 1
    assert done.stderr.decode() == (
        f"rmb: twin {server.id} answers: the program ended with code 3 (code 500)\n"
    )
    done = rmb(asker, "call", str(server.id), "fail", "--json")
    assert json.loads(done.stdout)["error"] == {
        "kind": "RemoteError",
        "message": "the program ended with code 3",
        "code": 500,
        "twin": server.id,
    }
    log = service.log()
    assert f"{asker.id}:" in log and "echo  10 B -> 10 B" in log.replace("11 B", "10 B")
    assert service.stop() == 0


async def test_a_call_from_a_file_and_one_without_an_answer(
    rmb: Rmb, serve: StartService, tmp_path: Path
) -> None:
    asker, server = fresh_twins(2)
    service = serve(server, "echo=cat", "--json")
    await service.says('"serving": ["echo", "rmb.*"]')
    (tmp_path / "body.json").write_text("[3]")
    done = rmb(asker, "call", str(server.id), "echo", "@body.json")
    assert done.stdout == b"[3]"
    done = rmb(asker, "call", str(server.id), "echo", '"x"', "--no-answer")
    assert done.returncode == 0 and done.stdout.startswith(b"uid  ")
    await service.says('"outcome": "3 B"')


async def test_a_request_that_expires_ends_its_program(rmb: Rmb, serve: StartService) -> None:
    asker, server = fresh_twins(2)
    service = serve(server, SLOW, "--jobs", "1")
    await service.says("serving slow")
    done = rmb(asker, "call", str(server.id), "slow", "--timeout", "2")
    assert done.returncode == 1
    assert b"rmb: " in done.stderr
    await service.says("slow  0 B -> cancelled")


def _lives(program: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(program.status() != psutil.STATUS_ZOMBIE)
    return False


async def test_a_program_ends_with_all_that_it_has_started(rmb: Rmb, serve: StartService) -> None:
    asker, server = fresh_twins(2)
    service = serve(server, "slow=sh -c 'sleep 600 & sleep 600; true'")
    await service.says("serving slow")
    asked = asyncio.to_thread(rmb, asker, "call", str(server.id), "slow", "--timeout", "3")
    asking = asyncio.create_task(asked)
    own = psutil.Process(service.process.pid)
    programs = await eventually(lambda: (all_of := own.children(recursive=True))[2:] and all_of)
    await service.says("slow  0 B -> cancelled")
    await eventually(lambda: not [each for each in programs if _lives(each)])
    assert (await asking).returncode == 1


async def test_a_call_that_waits_for_its_body_is_interrupted(
    relay: RelayProcess, tmp_path: Path
) -> None:
    (asker,) = fresh_twins(1)
    with subprocess.Popen(
        [sys.executable, "-m", CLI, "call", "7", "echo", "-"],
        cwd=tmp_path,
        env=environment(_environment(relay, asker, tmp_path)),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as call:
        state = Path(f"/proc/{call.pid}/syscall")
        await eventually(lambda: state.read_text().split()[:2] in READS_STANDARD_INPUT)
        call.send_signal(signal.SIGINT)
        assert await asyncio.to_thread(call.wait, 10) == 130
        assert call.stderr is not None
        assert b"Traceback" not in call.stderr.read()


async def test_a_service_that_is_stopped_leaves_no_program(rmb: Rmb, serve: StartService) -> None:
    asker, server = fresh_twins(2)
    service = serve(server, SLOW)
    await service.says("serving slow")
    rmb(asker, "call", str(server.id), "slow", "--no-answer")
    own = psutil.Process(service.process.pid)
    (program,) = await eventually(own.children)
    assert service.stop() == 0
    assert not program.is_running()


async def test_files_are_taken_where_a_folder_is_named(
    rmb: Rmb, serve: StartService, tmp_path: Path
) -> None:
    sender, taker = fresh_twins(2)
    source, folder, note = tmp_path / "report.txt", tmp_path / "files", tmp_path / "note"
    source.write_text("all is well")
    arrived = f"arrived=tee {note}"
    done = rmb(taker, "serve", "--uploads", str(folder))
    assert (done.returncode, done.stderr) == (
        2,
        f"rmb: --uploads {folder}: not a folder\n".encode(),
    )
    folder.mkdir()
    service = serve(taker, arrived, "--uploads", str(folder), "--upload-max", "1K")
    await service.says("serving arrived rmb.* file.* as twin")
    done = rmb(sender, "upload", str(taker.id), str(source), "--cmd", "arrived")
    assert done.returncode == 0, done.stderr
    assert (folder / str(sender.id) / source.name).read_text() == "all is well"
    await eventually(note.exists)
    source.write_bytes(bytes(1025))
    done = rmb(sender, "upload", str(taker.id), str(source), "--name", "large")
    assert done.returncode == 1 and b"1024" in done.stderr


async def test_sessions_have_names(rmb: Rmb, serve: StartService) -> None:
    asker, server = fresh_twins(2)
    await serve(server, "echo=cat", "--sid", "one").says(f"as twin {server.id}:one")
    done = rmb(asker, "call", f"{server.id}:one", "echo", "7", "--json")
    assert json.loads(done.stdout)["source"] == f"{server.id}:one"
    done = rmb(asker, "call", str(server.id), "echo", "7", "--tags", "fail-fast")
    assert done.returncode == 1
    assert done.stderr == b"rmb: destination offline\n"


async def test_pings(rmb: Rmb, serve: StartService, relay: RelayProcess) -> None:
    asker, server = fresh_twins(2)
    done = rmb(asker, "ping")
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().startswith(f"{relay.url}  ok  signed in after ")
    found = json.loads(rmb(asker, "ping", "--json").stdout)
    assert found["twin"] == asker.id
    assert [each["relay"] for each in found["relays"]] == [relay.url]
    done = rmb(asker, "ping", str(server.id))
    assert done.returncode == 1
    assert f"{server.id}  FAIL  destination offline" in done.stdout.decode()
    await serve(server, "echo=cat").says("serving")
    found = json.loads(rmb(asker, "ping", str(server.id), "-c", "3", "--json").stdout)
    assert [set(each) for each in found["answers"]] == [{"version", "ms"}] * 3


def test_a_relay_that_refuses_is_named(rmb: Rmb) -> None:
    (asker,) = fresh_twins(1)
    done = rmb(asker, "ping", "--relay", "ws://127.0.0.1:1")
    assert done.returncode == 1
    assert done.stdout.decode().startswith("ws://127.0.0.1:1  FAIL  ")
    done = rmb(asker, "call", "1", "echo", "--relay", "ws://127.0.0.1:1", "--timeout", "2")
    assert done.returncode == 1
    meanwhile, ended = done.stderr.decode().splitlines()
    assert meanwhile.startswith("rmb: cannot connect to a relay yet (ws://127.0.0.1:1: ")
    assert ended.startswith("rmb: cannot connect to a relay: ")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("call", "seven", "echo"), "the id of a twin, from 1 to 4294967295, or id:session"),
        (("call", "0", "echo"), "the id of a twin, from 1 to 4294967295, or id:session"),
        (("call", "7:", "echo"), "the id of a twin, from 1 to 4294967295, or id:session"),
        (("call", "7", "echo", "hello"), "the body is not valid JSON"),
        (("call", "7", "echo", "@nowhere"), "nowhere: No such file or directory"),
        (("call", "7", "echo", "--timeout", "0"), "above 0 and at most 1800 seconds"),
        (("call", "7"), "the following arguments are required: CMD"),
        (("serve",), "nothing to serve: add CMD=PROGRAM, --module or --uploads"),
        (("serve", "echo"), "a command must have the form CMD=PROGRAM"),
        (("serve", "echo=cat", "echo=tac"), "echo: given twice"),
        (("serve", "echo=no-such-program-here x"), "program no-such-program-here not found"),
        (("serve", "echo='"), "echo=': No closing quotation"),
        (("serve", "--module", "json:dumps"), "--module json:dumps: "),
        (("serve", "echo=cat", "--sid", "x" * 200), "--sid: at most 128 bytes"),
        (("serve", "echo=cat", "--jobs", "0"), "must be from 1 to 256"),
        (("ping", "7", "-c", "0"), "must be from 1 to 1000000"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, arguments: tuple[str, ...], text: str) -> None:
    done = run_program(CLI, tmp_path, *arguments, "-m", f"0x{'01' * 32}", "--twins", "x.csv")
    assert done.returncode == 2
    assert text in done.stderr.decode() and done.stderr.count(b"\n") == 1


async def test_the_first_five_minutes(start: Any) -> None:
    """The README's example works: demo twins of an embedded relay, by their profiles."""
    relay = await start(*embedded(), fresh=True).ready()
    folder = relay.data_dir.parent
    profiles = {name: f"data/{name}.toml" for name in ("alice", "bob")}
    assert f"rmb ping -p {profiles['alice']}" in relay.output()
    done = run_program(CLI, folder, "ping", "-p", profiles["alice"])
    assert done.returncode == 0, done.stderr
    service = Program(CLI, folder, "serve", "echo=cat", "-p", profiles["bob"])
    try:
        await service.says("serving echo")
        done = run_program(CLI, folder, "call", "102", "echo", '"hello"', "-p", profiles["alice"])
        assert (done.stdout, done.stderr) == (b'"hello"', b"")
        done = run_program(CLI, folder, "twin", "102", "--json", "-p", profiles["alice"])
        assert json.loads(done.stdout)["relays"] == ["localhost"]
    finally:
        service.stop()
