"""`manage.py rmb_bench`: how fast is the relay that runs here."""

from __future__ import annotations

import asyncio
import json
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError

from relay.demo import identities
from relay.demo.__main__ import DemoError, find_relay
from relay.demo.load import MIN_SIZE_BYTES, Load, LoadError, Outcome
from relay.ops.arguments import whole_number
from relay.ops.command import RelayCommand

DESCRIPTION = """\
Send messages between sessions of the demo twins through the embedded relay that runs on the data
folder, and print rate and latency. The relay stores these messages like all others; at the end all
of them are delivered and removed.

The bench shares the machine with the relay. It prints the share of a core that it used itself; near
1.0, the bench and not the relay was the limit. To compare the relay with a bare forwarder, each on
cores of its own, run `make bench` in a checkout.

exit code: 0 done, 1 a message was lost, duplicated, out of order or refused, 2 usage
"""


class Command(RelayCommand):
    """Run the bench once and print one table."""

    help = "Measure the relay that runs on the data folder."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.formatter_class = RawDescriptionHelpFormatter
        parser.description = DESCRIPTION
        parser.add_argument(
            "--pairs", type=whole_number(1, 500), default=50, help="pairs of sessions (50)"
        )
        parser.add_argument(
            "--window",
            type=whole_number(1, 100),
            default=8,
            help="messages of each pair that are sent and not yet received (8)",
        )
        parser.add_argument(
            "--size",
            type=whole_number(MIN_SIZE_BYTES, 1 << 20),
            default=256,
            help="bytes of payload (256)",
        )
        parser.add_argument(
            "--seconds", type=whole_number(1, 600), default=5, help="duration in seconds (5)"
        )
        parser.add_argument("--json", action="store_true", help="one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            outcome = asyncio.run(_measure(options))
        except (DemoError, LoadError) as error:
            raise CommandError(str(error)) from None
        except KeyboardInterrupt:
            raise CommandError("interrupted") from None
        if options["json"]:
            self.stdout.write(json.dumps(_document(outcome), indent=2))
        else:
            self.stdout.write("\n".join(_lines(outcome)))
        if outcome.lost or outcome.doubled or outcome.disordered or outcome.errors:
            sys.exit(1)


async def _measure(options: dict[str, Any]) -> Outcome:
    folder = settings.RMB.data_dir
    url = find_relay(folder)
    try:
        twins = identities.load(folder)
    except OSError:
        raise DemoError(f"{folder} has no demo twins: start the relay with --embedded") from None
    load = Load(url, twins[:2], options["pairs"], options["window"], options["size"])
    return await load.run(options["seconds"])


def _document(outcome: Outcome) -> dict[str, Any]:
    found = asdict(outcome)
    del found["latencies_s"]
    parts = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
    latencies = {name: outcome.latency_s(part) for name, part in parts.items()}
    return {"messages_per_s": outcome.rate, "latency_s": latencies, **found}


def _lines(outcome: Outcome) -> list[str]:
    lines = [
        f"messages per second    {outcome.rate:>12,.0f}",
        f"latency p50            {outcome.latency_s(0.5) * 1000:>9.2f} ms",
        f"latency p99            {outcome.latency_s(0.99) * 1000:>9.2f} ms",
        f"latency p99.9          {outcome.latency_s(0.999) * 1000:>9.2f} ms",
        f"messages               {len(outcome.latencies_s):>12,}",
        f"lost, doubled, out of order {outcome.lost}, {outcome.doubled}, {outcome.disordered}",
        f"this program           {outcome.own_cores:>9.2f} cores",
    ]
    return lines + [f"refused {count:,} times: {text}" for text, count in outcome.errors.items()]
