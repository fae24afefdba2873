"""Enters the demo twins into the registry."""

from __future__ import annotations

from collections.abc import Sequence

from proto.identity import agreement, seeds, signing
from relay.access.actor import SYSTEM
from relay.demo.identities import DemoTwin
from relay.twins import services
from relay.twins.fields import TwinValues
from relay.twins.models import Twin


def registered(twins: Sequence[DemoTwin]) -> list[DemoTwin]:
    """Those whose account is in the registry: their secrets sign in."""
    accounts = dict(Twin.objects.in_bulk([twin.id for twin in twins]))
    return [
        twin
        for twin in twins
        if twin.id in accounts and bytes(accounts[twin.id].account) == _key(twin).account
    ]


def register(twins: Sequence[DemoTwin], domain: str) -> None:
    """Add the twins, or give them the account and relay they should have."""
    for twin in twins:
        mini_secret = seeds.parse_secret(twin.secret).mini_secret
        services.put_twin(
            TwinValues(
                id=twin.id,
                account=_key(twin).account,
                pk=agreement.EncryptionKey(mini_secret).public,
                relays=(domain,),
            ),
            actor=SYSTEM,
        )


def _key(twin: DemoTwin) -> signing.SigningKey:
    mini_secret = seeds.parse_secret(twin.secret).mini_secret
    return signing.SigningKey.from_mini_secret(mini_secret, signing.KeyType.SR25519)
