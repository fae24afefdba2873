"""A host of a lattice, reduced to its control interface: links, claims, inventory."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from nats.aio.msg import Msg

from lattice.connection import LatticeConnection
from proto.lattice.messages import LinkDefinition
from proto.lattice.nkeys import KeyKind, KeyPair
from proto.lattice.subjects import (
    SubjectKind,
    control_subject,
    event_subject,
    provider_subject,
)

HOST_KEY = KeyPair.of_random(KeyKind.HOST, b"h" * 32)  # TEST KEY


class ControlHost:
    """Host that answers the control interface, and notifies providers of links.

    Attributes:
        links: links that were put, by actor, contract and link name.
        claims: claims of actors and providers, in the form of `.get.claims`.
        actors: public keys of the actors that it runs.
    """

    def __init__(self, connection: LatticeConnection) -> None:
        self.links: dict[tuple[str, str, str], LinkDefinition] = {}
        self.claims: list[dict[str, str]] = []
        self.actors: list[str] = []
        self._connection = connection
        self._lattice = connection.options.lattice
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Answer requests from now on."""
        host = HOST_KEY.public
        for parts, answer in (
            (("ping", "hosts"), self._host),
            (("get", host, "inv"), self._inventory),
            (("get", "links"), self._get_links),
            (("get", "claims"), lambda _: {"claims": self.claims}),
            (("linkdefs", "put"), self._put),
            (("linkdefs", "del"), self._delete),
        ):
            await self._connection.subscribe(
                control_subject(self._lattice, *parts), self._answering(answer)
            )
        await self._tell("host_started")

    async def _tell(self, name: str) -> None:
        """Publish an event, as hosts do at each change."""
        event = {
            "type": f"com.wasmcloud.lattice.{name}",
            "specversion": "1.0",
            "source": HOST_KEY.public,
            "id": "1",
            "data": {},
        }
        subject = event_subject(self._lattice, name)
        await self._connection.publish(subject, json.dumps(event).encode())

    def _answering(self, answer: Any) -> Any:
        def take(message: Msg) -> None:
            body = json.loads(message.data) if message.data else {}
            self._later(self._connection.publish(message.reply, json.dumps(answer(body)).encode()))

        return take

    def _later(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _host(self, _: Any) -> dict[str, Any]:
        return {
            "id": HOST_KEY.public,
            "issuer": "",
            "friendly_name": "test host",
            "lattice": self._lattice,
            "labels": {},
            "version": "0.82.0",
            "uptime_seconds": 5,
        }

    def _inventory(self, _: Any) -> dict[str, Any]:
        actors = [
            {"id": key, "name": "an actor", "image_ref": "", "instances": []} for key in self.actors
        ]
        return {**self._host(None), "host_id": HOST_KEY.public, "actors": actors, "providers": []}

    def _get_links(self, _: Any) -> dict[str, Any]:
        names = ("actor_id", "provider_id", "link_name", "contract_id", "values")
        rows = [{name: getattr(each, name) for name in names} for each in self.links.values()]
        return {"links": [{**row, "values": dict(row["values"])} for row in rows]}

    def _put(self, body: dict[str, Any]) -> dict[str, Any]:
        link = LinkDefinition(**body)
        self.links[link.actor_id, link.contract_id, link.link_name] = link
        self._inform(link, SubjectKind.LINK_PUT)
        self._later(self._tell("linkdef_set"))
        return {"accepted": True, "error": ""}

    def _delete(self, body: dict[str, Any]) -> dict[str, Any]:
        key = (body["actor_id"], body["contract_id"], body["link_name"])
        link = self.links.pop(key, None)
        if link is not None:
            self._inform(link, SubjectKind.LINK_DEL)
        return {"accepted": True, "error": ""}

    def _inform(self, link: LinkDefinition, kind: SubjectKind) -> None:
        """Notify the provider of a link."""
        subject = provider_subject(self._lattice, link.provider_id, link.link_name, kind)
        self._later(self._connection.publish(subject, link.encode()))
