"""Relays whose twins come from a stand-in node of the chain, and how they are asked."""

from __future__ import annotations

from pathlib import Path

from websockets.exceptions import InvalidStatus

from tests.support.devchain import Devchain
from tests.support.identities import TEST_DOMAIN, Twin
from tests.support.redis_servers import RedisServer
from tests.support.relay_process import RelayProcess
from tests.support.rmb_client import connect
from tests.support.waiting import wait_until

FOLLOW_TIMEOUT_S = 60.0
HEIGHT = "events_listener_last_processed_block_number"
ALIVE = 101
"""Status of a handshake that was let in."""


def chain_relay(
    folder: Path,
    server: RedisServer,
    *nodes: Devchain | str,
    celery: bool = True,
    domains: tuple[str, ...] = (TEST_DOMAIN,),
    port: int = 0,
    operator_site: bool = False,
    **settings: str,
) -> RelayProcess:
    """A relay on some nodes, not started; settings with `__` for the dot."""
    dotted = {name.replace("__", "."): value for name, value in settings.items()}
    return RelayProcess(
        folder,
        None,
        server,
        twins="tfchain",
        domains=domains,
        port=port,
        operator_site=operator_site,
        settings={
            "substrate.urls": " ".join(
                node if isinstance(node, str) else node.url for node in nodes
            ),
            "celery.embedded": str(int(celery)),
            **dotted,
        },
    )


def follows(relay: RelayProcess) -> bool:
    """Whether blocks are followed now."""
    figures = relay.metrics()
    return figures.get(HEIGHT, 0) > 0 and not figures["events_listener_reconnecting"]


def wait_for_follower(relay: RelayProcess) -> None:
    """Return when blocks are followed."""
    wait_until(lambda: follows(relay), FOLLOW_TIMEOUT_S, relay.log)


def height(relay: RelayProcess) -> int:
    """The block up to which everything is known."""
    return int(relay.metrics().get(HEIGHT, 0))


SIGN_IN_S = 60.0


async def sign_in(relay: RelayProcess, twin: Twin) -> tuple[int, str]:
    """What signing in gets: status and text."""
    try:
        # A thousand at once take longer than one may on a machine that has other work.
        client = await connect(relay.url, twin, open_timeout=SIGN_IN_S)
    except InvalidStatus as refused:
        return refused.response.status_code, (refused.response.body or b"").decode()
    await client.abort()
    return ALIVE, ""


async def let_in(relay: RelayProcess, twin: Twin) -> bool:
    """Whether a twin may sign in now."""
    return (await sign_in(relay, twin))[0] == ALIVE
