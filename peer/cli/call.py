"""`rmb call`: send a request to a twin and print its answer."""

from __future__ import annotations

import argparse
import json
import time
from typing import Final

from peer.cli import output
from peer.cli.inputs import Body, add_body, destination, read_body, seconds, utf8
from peer.cli.output import Progress
from peer.cli.session import Session
from peer.client import Client
from peer.client.bounds import TIMEOUT_S

EPILOG: Final = """\
examples:
  rmb call 102 calc.add '[1, 2]'
  rmb call 102 calc.add @numbers.json --timeout 5
  echo '{"name": "vm1"}' | rmb call 102 vm.start -
  rmb call 102 log.line 'any text' --raw --no-answer
  rmb call 102 status --json | jq .answer.json

The request is signed, and encrypted for the twin; the signature of the answer is verified. If the
output is not a terminal, the answer is written unchanged. --json prints an object: `answer`
contains `json`, `text` or `base64`, `source` is the twin that answered, `ms` the round-trip time.
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument(
        "twin", type=destination, metavar="TWIN", help="id, or id:session for one of its sessions"
    )
    parser.add_argument("cmd", type=utf8, metavar="CMD", help="the command, such as calc.add")
    add_body(parser)
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help=f"seconds to wait for the answer (default {TIMEOUT_S:g})",
    )
    parser.add_argument(
        "--tags", type=utf8, help="fail-fast: fail at once if the twin is disconnected"
    )
    parser.add_argument(
        "--no-answer",
        action="store_true",
        help="do not wait for an answer; end when the relay has accepted the request",
    )


async def run(options: argparse.Namespace, session: Session) -> int:
    """Send the request and print the answer."""
    body = read_body(options.body, options.raw)
    waiting = f"waiting for twin {options.twin}"
    with Progress(session.json) as progress:
        async with (
            progress.keep_waiting(waiting),
            session.client(timeout=options.timeout) as client,
        ):
            began = time.perf_counter()
            if options.no_answer:
                uid = await _tell(client, options, body)
            else:
                reply = await client.call(
                    options.twin, options.cmd, body.payload, schema=body.schema, tags=options.tags
                )
            took_ms = (time.perf_counter() - began) * 1e3
    if options.no_answer:
        output.show({"uid": uid}, session.json)
    elif session.json:
        answer = output.payload_fields(reply.payload)
        fields = {"source": str(reply.source), "ms": round(took_ms, 3), "schema": reply.schema}
        print(json.dumps({**fields, "answer": answer}))
    else:
        output.show_payload(reply.payload)
    return 0


async def _tell(client: Client, options: argparse.Namespace, body: Body) -> str:
    uid = await client.notify(
        options.twin, options.cmd, body.payload, schema=body.schema, tags=options.tags
    )
    await client.flush()
    return uid
