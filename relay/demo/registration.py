"""Registers the demo twins."""

from __future__ import annotations

from collections.abc import Sequence

from proto.identity import agreement, seeds, signing
from relay.access.actor import SYSTEM
from relay.demo.identities import DemoTwin
from relay.twins import services
from relay.twins.fields import TwinValues
from relay.twins.models import Twin


def registered(twins: Sequence[DemoTwin]) -> list[DemoTwin]:
    """Return the twins whose account is registered, so that they can sign in with their secrets."""
    accounts = dict(Twin.objects.in_bulk([twin.id for twin in twins]))
    return [
        twin
        for twin in twins
        if twin.id in accounts and bytes(accounts[twin.id].account) == _key(twin).account
    ]


def register(twins: Sequence[DemoTwin], domain: str) -> None:
    """Add the twins, or correct their accounts and relays."""
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
