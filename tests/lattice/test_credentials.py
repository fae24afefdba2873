"""Tests of users of a NATS server in operator mode: JWT and seed, their files, permissions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

import lattice.objects
from lattice.actor import LatticeActor
from lattice.connection import LatticeConnection
from lattice.credentials import UserCredentials
from lattice.errors import (
    ConnectError,
    NoRespondersError,
    ObjectStoreAwayError,
    PermissionDeniedError,
)
from lattice.objects import Objects
from lattice.options import LatticeOptions
from lattice.provider import LatticeProvider
from proto.lattice.entity import Entity
from proto.lattice.messages import LinkDefinition
from proto.lattice.nkeys import KeyKind, KeyPair
from tests.proto.lattice.identities import ACTOR, CLUSTER, PROVIDER
from tests.support.nats_accounts import Accounts, credentials_file, operated_server

INBOX = "_INBOX.>"


@pytest.fixture(scope="module")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Accounts]:
    with operated_server(tmp_path_factory.mktemp("operated")) as server:
        yield server


def options_for(accounts: Accounts, user: UserCredentials, **more: object) -> LatticeOptions:
    options = LatticeOptions(
        servers=(accounts.url,),
        user_jwt=user.jwt,
        user_seed=user.seed,
        cluster_seed=CLUSTER.seed,
        lattice="operated",
    )
    return dataclasses.replace(options, **more)  # type: ignore[arg-type]


async def test_a_users_jwt_and_seed(accounts: Accounts, tmp_path: Path) -> None:
    user = accounts.user()
    in_file = tmp_path / "user.creds"
    in_file.write_text(credentials_file(user))
    for options in (
        options_for(accounts, user),
        LatticeOptions(servers=(accounts.url,), credentials_file=str(in_file)),
    ):
        async with LatticeConnection(options) as connection:
            with pytest.raises(NoRespondersError):
                await connection.request("nobody", b"", 5)


async def test_users_that_the_server_refuses(accounts: Accounts) -> None:
    user, other = accounts.user(), accounts.user(number=2)
    stranger = Accounts(accounts.url, KeyPair(KeyKind.ACCOUNT, b"s" * 32))
    for jwt, seed, text in (
        (user.jwt, other.seed, "Authorization Violation"),
        (user.jwt[:-8] + "A" * 8, user.seed, "Authorization Violation"),
        (stranger.user().jwt, user.seed, "Authorization Violation"),
        (accounts.user(exp=1_700_000_100).jwt, user.seed, "Authorization Violation"),
        (user.jwt, CLUSTER.seed, "it must begin with SU"),
        (user.jwt, user.seed[:-1] + "x", "invalid seed of the NATS user"),
        (user.jwt, "", "needs both its JWT and its seed"),
    ):
        with pytest.raises(ConnectError, match=text) as found:
            await LatticeConnection(
                options_for(accounts, user, user_jwt=jwt, user_seed=seed)
            ).open()
        assert jwt not in str(found.value) and (not seed or seed not in str(found.value))


async def test_files_that_hold_no_user(accounts: Accounts, tmp_path: Path) -> None:
    for text, says in (
        (credentials_file(accounts.user()).partition("IMPORTANT")[0], "has no USER NKEY SEED"),
        ("", "has no NATS USER JWT"),
        (None, "cannot read the credentials file .*: No such file"),
    ):
        path = tmp_path / "user.creds"
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_text(text)
        options = LatticeOptions(servers=(accounts.url,), credentials_file=str(path))
        with pytest.raises(ConnectError, match=says):
            await LatticeConnection(options).open()


async def test_what_a_user_may_not_do_is_an_error_at_once(
    accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lattice.objects, "API_TIMEOUT_S", 0.2)
    user = accounts.user(publish=["some.*", INBOX], subscribe=["some.*", INBOX])
    async with LatticeConnection(options_for(accounts, user)) as connection:
        with pytest.raises(PermissionDeniedError, match=r"may not publish to Other\.SUBJECT"):
            await connection.request("Other.SUBJECT", b"", 60)
        for queue in ("", "group"):
            with pytest.raises(PermissionDeniedError, match=r"may not subscribe to Other\.>"):
                await connection.subscribe("Other.>", print, queue)
        await connection.subscribe("some.thing", lambda message: None)
        objects = Objects(connection)
        with pytest.raises(ObjectStoreAwayError, match=r"no permission for the publish \$js\.api"):
            await objects.put("name", b"x")
        await objects.close()
        assert connection.losses == 0
    deaf = accounts.user(subscribe=["some.*"])
    with pytest.raises(ConnectError, match=r"may not subscribe to _INBOX\."):
        await LatticeConnection(options_for(accounts, deaf)).open()


async def test_a_provider_that_may_not_subscribe_does_not_start(accounts: Accounts) -> None:
    user = accounts.user(subscribe=[INBOX])
    async with LatticeConnection(options_for(accounts, user)) as connection:
        provider = LatticeProvider(connection, PROVIDER.public, "a:b")
        with pytest.raises(PermissionDeniedError, match=f"subscribe to .*{PROVIDER.public}"):
            await provider.start()
        await provider.stop()


async def test_the_permissions_that_the_documents_name_are_enough(accounts: Accounts) -> None:
    """A provider that also calls needs only the permissions listed in `docs/operate/lattice.md`."""
    own = f"wasmbus.rpc.operated.{PROVIDER.public}.>"
    user = accounts.user(
        publish=["wasmbus.rpc.operated.>", "wasmbus.ctl.operated.>", "$JS.API.>", INBOX],
        subscribe=[own, "wasmbus.evt.operated.>", INBOX],
    )
    everything = options_for(accounts, accounts.user(number=2))
    link = LinkDefinition(ACTOR.public, PROVIDER.public, "default", "a:b", {})
    async with (
        LatticeConnection(options_for(accounts, user)) as connection,
        LatticeConnection(everything) as other,
    ):
        actor = LatticeActor(other, ACTOR.public)
        provider = LatticeProvider(connection, PROVIDER.public, "a:b", links=(link,))
        for each in (actor, provider):

            @each.operation("Echo.Echo")
            async def echo(call: object) -> bytes:
                return b"hello"

            await each.start()
        assert await actor.call(provider.origin, "Echo.Echo") == b"hello"
        assert await provider.call(Entity.actor(ACTOR.public), "Echo.Echo") == b"hello"
        assert connection.denied == ""
        await actor.stop()
        await provider.stop()
