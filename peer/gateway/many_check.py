"""`rmb-peer --many twins.toml --check`: test what the gateway of each twin depends on.

The text output shows only problems and the number of twins without failures; `--json` shows all
results. Relays are tested over the connections that would carry the sessions.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import Any, Final

from peer.arguments import FAILED
from peer.gateway import many_file
from peer.gateway.check import Finding, tried
from peer.gateway.many import options_of
from peer.gateway.many_file import ManyFile, TwinEntry
from peer.gateway.options import Options
from peer.gateway.parts import open_twins
from peer.hub import Carrier, StreamLink
from peer.link import Link
from peer.twins import TwinSource

AT_ONCE: Final = 16


async def run(options: Options) -> int:
    """Run all tests and print the results; return the exit code.

    Raises:
        UsageError: the file, or something that it names for all twins, cannot be used.
    """
    assert options.many is not None, "the options of many have a file"
    file = await asyncio.to_thread(many_file.read, options.many)
    common = dataclasses.replace(
        options, twins=file.twins, substrate=file.substrate, update=file.update
    )
    check = _Check(common, open_twins(common))
    try:
        return await check.run(file)
    finally:
        await check.aclose()


class _Check:
    def __init__(self, options: Options, source: TwinSource) -> None:
        self._options = options
        self._source = source
        self._places = asyncio.Semaphore(AT_ONCE)
        self._carriers: dict[str, Carrier] = {}

    async def run(self, file: ManyFile) -> int:
        found = await asyncio.gather(*map(self._try, file.entries))
        failed = sum(any(each.verdict == "FAIL" for each in findings) for findings in found)
        if self._options.json:
            named = [
                {"name": entry.name, "findings": [finding._asdict() for finding in findings]}
                for entry, findings in zip(file.entries, found, strict=True)
            ]
            print(json.dumps(named, indent=2))
        else:
            print(f"{len(found) - failed} of {len(found)} twins: ok")
        return FAILED if failed else 0

    async def aclose(self) -> None:
        await asyncio.gather(*(carrier.aclose() for carrier in self._carriers.values()))
        await self._source.aclose()

    async def _try(self, entry: TwinEntry) -> list[Finding]:
        if entry.identity is None:
            return self._shown(entry, [Finding("keys", "FAIL", entry.problem)])
        options = options_of(self._options, entry)
        async with self._places:
            tries = tried(options, entry.identity, self._source, self._link)
            return self._shown(entry, [finding async for finding in tries])

    def _shown(self, entry: TwinEntry, findings: list[Finding]) -> list[Finding]:
        for name, verdict, text in findings:
            if verdict != "ok" and not self._options.json:
                print(f"{entry.name}: {name:<8} {verdict:<5} {text}", flush=True)
        return findings

    def _link(self, url: str, *args: Any) -> Link:
        carrier = self._carriers.get(url)
        if carrier is None:
            carrier = self._carriers[url] = Carrier(url)
        return StreamLink(carrier, "check", *args)
