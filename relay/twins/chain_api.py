"""The chain over REST: how it is followed, and having all of its twins imported."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from ninja import Field, Router, Schema

from relay.rest.caller import Request
from relay.rest.operation import get, post
from relay.rest.schema import moment
from relay.twins import chain_services
from relay.twins.chain_services import ChainStatus

router = Router(tags=["chain"])


class ImportStatusOut(Schema):
    """The import of all twins."""

    state: str = Field(description="never, wanted, waiting, running or done.")
    twins: int
    newest_id: int
    height: int
    began: datetime | None
    ended: datetime | None
    error: str


class ChainOut(Schema):
    """How the chain is followed."""

    used: bool = Field(description="Whether twins come from it at all.")
    following: bool = Field(description="Whether it is followed as it should be.")
    complaint: str = Field(description="What is wrong; empty: nothing.")
    url: str = Field(description="The node that is followed.")
    nodes: list[str]
    by: str = Field(description="host/pid of the follower.")
    leased: bool
    height: int | None = Field(description="The block everything is known up to.")
    head_height: int
    lag_blocks: int
    head_age_s: float | None
    counts: dict[str, int]
    mirrored: int = Field(description="Twins of it in the table of this site.")
    imported: ImportStatusOut


@get(router, "/chain", action="chain.view", answer=ChainOut)
def get_chain(request: Request) -> Any:
    """How the chain is followed."""
    return _out(chain_services.status())


@post(router, "/chain/import", action="chain.import", answer=ChainOut)
def import_chain(request: Request) -> Any:
    """Have all twins of the chain imported; the answer and `GET /chain` tell how far it is."""
    chain_services.start_import(actor=request.actor)
    return _out(chain_services.status())


def _out(status: ChainStatus) -> dict[str, Any]:
    found = asdict(status)
    times = {name: moment(found["imported"][name]) for name in ("began", "ended")}
    return {**found, "imported": {**found["imported"], **times}}
