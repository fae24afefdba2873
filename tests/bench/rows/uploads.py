"""Row about uploads: a file of 200 MB from one gateway to another, all on the server cores."""

from __future__ import annotations

import base64
import json
import os
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.bench.bench import Bench
from tests.bench.figures import Figure, Row
from tests.bench.gateways import GatewayTarget, gateway, write_twins
from tests.bench.layout import busy_s, cpu_s, layout
from tests.bench.measure import DISTURBED_LIMIT
from tests.bench.targets import TargetError
from tests.bench.twins import FIRST_TWIN

MB = 1_000_000
SIZE_BYTES = 200 * MB
SENDER, RECEIVER = FIRST_TWIN, FIRST_TWIN + 1
TIMEOUT_S = 120.0
POLL_S = 0.05
WINDOW_MIB = 4.0
"""Size of the data in flight, in MiB: eight chunks of 512 KiB."""
COPIES = 10
"""Copies of the data in flight that a gateway may hold for a moment: read, encrypted, framed, in
the socket's buffer, and memory that the allocator does not return."""


@dataclass(frozen=True)
class Sample:
    """Figures of one upload."""

    seconds: float
    cpu_s: dict[str, float]
    sender_mib: float
    receiver_mib: float
    disturbed: float


def upload(bench: Bench) -> Row:
    """Measure uploads one after the other; each is a new file."""
    size_bytes = SIZE_BYTES // (10 if bench.quick else 1)
    twins = [SENDER, RECEIVER]
    cores = layout().server
    samples: list[Sample] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rmbb-")))
        uploads = folder / "uploads"
        uploads.mkdir()
        write_twins(folder / "twins.csv", twins)
        relay = stack.enter_context(bench.relay(twins))
        start = [
            gateway(cores, relay, SENDER, folder / "twins.csv"),
            gateway(cores, relay, RECEIVER, folder / "twins.csv", "--uploads", str(uploads)),
        ]
        sender, receiver = (stack.enter_context(each) for each in start)
        roots = {**relay.roots, **sender.roots, **receiver.roots}
        # The first one allocates buffers that remain; memory is measured after that.
        _upload(folder, "warm-up.bin", size_bytes // 10, sender, receiver, roots)
        while len(samples) < bench.most_rounds * bench.runs:
            name = f"{len(samples)}.bin"
            samples.append(_upload(folder, name, size_bytes, sender, receiver, roots))
            (uploads / str(SENDER) / name).unlink()
            if sum(each.disturbed <= DISTURBED_LIMIT for each in samples) >= bench.runs:
                break
    calm = sorted(samples, key=lambda each: each.disturbed)[: bench.runs]
    speed = statistics.median(size_bytes / MB / each.seconds for each in calm)
    cpu = statistics.median(sum(each.cpu_s.values()) for each in calm)
    memory = max(max(each.sender_mib, each.receiver_mib) for each in calm)
    figures = [
        Figure("MB per second", speed, must=25.0),
        Figure("memory that grew", memory, "MiB", must=COPIES * WINDOW_MIB, lower_is_better=True),
        Figure("MB per CPU second of all processes", size_bytes / MB / cpu),
        *(
            Figure(f"{name}: CPU", statistics.median(each.cpu_s[name] for each in calm), "s")
            for name in roots
        ),
    ]
    worst = max(each.disturbed for each in calm)
    notes = [f"others used up to {worst:.2f} cores meanwhile"] if worst > DISTURBED_LIMIT else []
    title = f"a file of {size_bytes // MB} MB from one gateway to another, encrypted and signed"
    return Row("upload", title, figures, {"ours": [asdict(each) for each in samples]}, notes)


def _upload(
    folder: Path,
    name: str,
    size_bytes: int,
    sender: GatewayTarget,
    receiver: GatewayTarget,
    roots: dict[str, int],
) -> Sample:
    """Send a file and measure the time from the program's request to the file's arrival."""
    source = folder / name
    source.write_bytes(os.urandom(size_bytes))
    memory = [_reset_peak(each) for each in (sender, receiver)]
    cpu_before, busy_before = {each: cpu_s(pid) for each, pid in roots.items()}, busy_s()
    began = time.monotonic()
    id = _ask(sender, receiver, "file.upload", {"path": str(source)})
    while (status := _ask(sender, receiver, "file.status", {"id": id}))["state"] == "sending":
        if time.monotonic() - began > TIMEOUT_S:
            raise TargetError(f"the upload stands still: {status}")
        time.sleep(POLL_S)
    seconds = time.monotonic() - began
    if status["state"] != "done":
        raise TargetError(f"the upload failed: {status}")
    cpu = {each: cpu_s(pid) - cpu_before[each] for each, pid in roots.items()}
    disturbed = max(0.0, busy_s() - busy_before - sum(cpu.values())) / seconds
    grown = [
        (_peak_bytes(each) - before) / 2**20
        for each, before in zip((sender, receiver), memory, strict=True)
    ]
    source.unlink()
    return Sample(seconds, cpu, grown[0], grown[1], disturbed)


def _ask(
    sender: GatewayTarget, receiver: GatewayTarget, command: str, fields: dict[str, Any]
) -> Any:
    """Send a request of a local program to the sender's gateway, and return the answer."""
    body = {
        "ver": 1,
        "ref": None,
        "cmd": command,
        "exp": int(TIMEOUT_S),
        "dat": base64.b64encode(json.dumps(fields).encode()).decode(),
        "dst": [receiver.twin],
        "ret": "bench",
        "shm": "application/json",
        "now": int(time.time()),
    }
    with sender.redis.client() as client:
        client.lpush("msgbus.system.local", json.dumps(body))
        found = client.brpop(["bench"], timeout=TIMEOUT_S)
    if found is None:
        raise TargetError(f"the gateway does not answer {command}")
    answer = json.loads(found[1])
    if answer.get("err"):
        raise TargetError(f"{command}: {answer['err']}")
    return json.loads(base64.b64decode(answer["dat"]))


def _reset_peak(target: GatewayTarget) -> int:
    """Reset the peak memory of a process, and return its present memory in bytes."""
    Path(f"/proc/{target.process.pid}/clear_refs").write_text("5")
    return _peak_bytes(target)


def _peak_bytes(target: GatewayTarget) -> int:
    for line in Path(f"/proc/{target.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise TargetError("the system tells no peak of memory")
