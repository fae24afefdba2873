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
    """The rules of each linked actor: what it may do."""

    def __init__(self) -> None:
        self._rules: dict[str, LinkRules] = {}

    def put(self, actor: str, values: Mapping[str, str]) -> None:
        """Set the rules of an actor from the values of its link.

        Raises:
            PolicyError: a value is invalid; the rules of the actor's earlier link are removed too.
        """
        self._rules.pop(actor, None)
        try:
            self._rules[actor] = read_link(values)
        except PolicyError as error:
            logger.warning("link of actor %s refused: %s", actor, error)
            raise

    def remove(self, actor: str) -> None:
        """Remove the rules of an actor, which may then do nothing."""
        self._rules.pop(actor, None)

    def of(self, actor: str) -> LinkRules:
        """Return the rules of an actor.

        Raises:
            RefusedError: the actor has no link.
        """
        rules = self._rules.get(actor)
        if rules is None:
            raise RefusedError(Refusal.LINK, f"actor {actor:.60} has no link with the bridge")
        return rules

    def server_of(self, twin: int, command: str) -> str | None:
        """Return the actor that serves a command of a twin (the first by key), or None."""
        return min(
            (
                actor
                for actor, rules in self._rules.items()
                if twin in rules.twins and matches(rules.serves, command)
            ),
            default=None,
        )
