"""Relays whose twins come from a test node of the chain, and queries of their state."""

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
"""Status of an accepted handshake."""


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
    """Return a relay that uses these nodes, not started; settings with `__` for the dot."""
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
    """Check whether the relay follows blocks now."""
    figures = relay.metrics()
    return figures.get(HEIGHT, 0) > 0 and not figures["events_listener_reconnecting"]


def wait_for_follower(relay: RelayProcess) -> None:
    """Wait until the relay follows blocks."""
    wait_until(lambda: follows(relay), FOLLOW_TIMEOUT_S, relay.log)


def height(relay: RelayProcess) -> int:
    """Return the block up to which the relay knows everything."""
    return int(relay.metrics().get(HEIGHT, 0))


SIGN_IN_S = 60.0


async def sign_in(relay: RelayProcess, twin: Twin) -> tuple[int, str]:
    """Sign in; return the status and text of the answer."""
    try:
        # On a busy machine a thousand at once take longer than the default time-out.
        client = await connect(relay.url, twin, open_timeout=SIGN_IN_S)
    except InvalidStatus as refused:
        return refused.response.status_code, (refused.response.body or b"").decode()
    await client.abort()
    return ALIVE, ""


async def let_in(relay: RelayProcess, twin: Twin) -> bool:
    """Check whether a twin can sign in now."""
    return (await sign_in(relay, twin))[0] == ALIVE
