"""Origins and targets of calls: an actor, or a provider with a link (sheet section 4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from proto.lattice.bounds import CACHED_KEYS


@dataclass(frozen=True, slots=True)
class Entity:
    """An actor, or a provider with a link.

    Attributes:
        public_key: `M...` of an actor, `V...` of a provider; as received, unchecked.
        link_name: link name of a provider; empty for an actor.
        contract_id: contract of a provider; empty for an actor.
        url: URL used in hash and claims: link and contract in lower case, not escaped.
    """

    public_key: str
    link_name: str = ""
    contract_id: str = ""
    url: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", self._url())

    @classmethod
    def actor(cls, public_key: str) -> Entity:
        """Return the entity of an actor."""
        return cls(public_key)

    @classmethod
    def provider(cls, public_key: str, link_name: str, contract_id: str) -> Entity:
        """Return the entity of a provider."""
        return cls(public_key, link_name, contract_id)

    @property
    def is_actor(self) -> bool:
        """Whether the key is that of an actor; determines the form of the URL."""
        return self.public_key[:1] in ("M", "m")

    def _url(self) -> str:
        if self.is_actor:
            return f"wasmbus://{self.public_key}"
        contract = self.contract_id.replace(":", "/").replace(" ", "_").lower()
        link = self.link_name.replace(" ", "_").lower()
        return f"wasmbus://{contract}/{link}/{self.public_key}"


@lru_cache(maxsize=CACHED_KEYS)
def entity_of(public_key: str, link_name: str, contract_id: str) -> Entity:
    """Return an entity from a cache: few entities take part in many calls."""
    return Entity(public_key, link_name, contract_id)


def target_url(entity: Entity, operation: str) -> str:
    """Return the URL of an operation of an entity."""
    return f"{entity.url}/{operation}"
