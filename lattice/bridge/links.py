"""Links between actors and the bridge, and what their values allow."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from proto.lattice.policy import (
    LinkRules,
    PolicyError,
    Refusal,
    RefusedError,
    matches,
    read_link,
)

logger = logging.getLogger(__name__)


class Links:
    """What each linked actor may do."""

    def __init__(self) -> None:
        self._rules: dict[str, LinkRules] = {}

    def put(self, actor: str, values: Mapping[str, str]) -> None:
        """Allow what the values of a link say.

        Raises:
            PolicyError: a value cannot be; what an earlier link of the actor allowed is over.
        """
        self._rules.pop(actor, None)
        try:
            self._rules[actor] = read_link(values)
        except PolicyError as error:
            logger.warning("link of actor %s refused: %s", actor, error)
            raise

    def remove(self, actor: str) -> None:
        """Allow an actor nothing."""
        self._rules.pop(actor, None)

    def of(self, actor: str) -> LinkRules:
        """Return what an actor may do.

        Raises:
            RefusedError: it has no link.
        """
        rules = self._rules.get(actor)
        if rules is None:
            raise RefusedError(Refusal.LINK, f"actor {actor:.60} has no link with the bridge")
        return rules

    def server_of(self, twin: int, command: str) -> str | None:
        """Return the actor that answers a command of a twin: of several the first by its key."""
        return min(
            (
                actor
                for actor, rules in self._rules.items()
                if twin in rules.twins and matches(rules.serves, command)
            ),
            default=None,
        )
