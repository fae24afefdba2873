"""The chain over REST: the state of following it, and the import of all of its twins."""

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
    """State of the import of all twins."""

    state: str = Field(description="never, wanted, waiting, running or done.")
    twins: int
    newest_id: int
    height: int
    began: datetime | None
    ended: datetime | None
    error: str


class ChainOut(Schema):
    """State of following the chain."""

    used: bool = Field(description="Whether the relay reads twins from the chain.")
    following: bool = Field(description="Whether following works.")
    complaint: str = Field(description="Problem; empty: no problem.")
    url: str = Field(description="Node that the relay follows.")
    nodes: list[str]
    by: str = Field(description="Process that follows the chain, as host/pid.")
    leased: bool
    height: int | None = Field(description="Height of the last block whose changes are known.")
    head_height: int
    lag_blocks: int
    head_age_s: float | None
    counts: dict[str, int]
    mirrored: int = Field(description="Twins of the chain in the database.")
    imported: ImportStatusOut


@get(router, "/chain", action="chain.view", answer=ChainOut)
def get_chain(request: Request) -> Any:
    """Get the state of following the chain."""
    return _out(chain_services.status())


@post(router, "/chain/import", action="chain.import", answer=ChainOut)
def import_chain(request: Request) -> Any:
    """Import all twins of the chain; the answer and `GET /chain` contain the progress."""
    chain_services.start_import(actor=request.actor)
    return _out(chain_services.status())


def _out(status: ChainStatus) -> dict[str, Any]:
    found = asdict(status)
    times = {name: moment(found["imported"][name]) for name in ("began", "ended")}
    return {**found, "imported": {**found["imported"], **times}}
