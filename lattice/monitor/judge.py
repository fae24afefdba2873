"""Judges invocations that the monitor sees on their way.

The checks are those of a receiver (`proto.lattice.invocation`), and some that no receiver makes:
that the message is on the subject of its target, that origin and host are known and belong
together, that there is a link, and that no token or id is repeated. Checks that need unknown data
are skipped: in a lattice without a registry, no origin is reported as unknown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from lattice.texts import cut
from proto.lattice.bounds import IAT_WINDOW_S
from proto.lattice.errors import CheckError, FormatError, LatticeError, Reason
from proto.lattice.invocation import check_claims, check_payload
from proto.lattice.messages import Invocation, decode_invocation
from proto.lattice.subjects import rpc_subject
from proto.rmb.repeats import Repeats

MAX_REMEMBERED: Final = 400_000
"""Maximum number of remembered tokens and ids: two for each invocation, about 150 bytes each."""
KEPT_WITHOUT_WINDOW_S: Final = 3_600
"""Seconds for which a token is remembered if the age of tokens is not checked."""
MAX_SHOWN_CHARS: Final = 120
_KEY_BYTES: Final = 16


@dataclass(slots=True)
class View:
    """What is known of a lattice.

    Attributes:
        registered: public keys with claims in the registry; None: unknown.
        hosts: public keys of what each host runs, by host id; None: unknown.
        links: (actor, provider, link name) of each link; None: unknown.
        trusted_hosts: ids of hosts that answer no control message, such as those of bridges.
    """

    registered: Collection[str] | None = None
    hosts: Mapping[str, Collection[str]] | None = None
    links: Collection[tuple[str, str, str]] | None = None
    trusted_hosts: Collection[str] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with one invocation. Texts are cut, and contain no payload.

    Attributes:
        reason: reason of the verdict.
        text: what is wrong, for operators.
        at: time at which the message was seen, in seconds since 1970.
        subject: subject on which it was seen.
        size: size of the message, in bytes.
        origin, target: URLs, as the message names them; empty if it cannot be decoded.
        operation, host_id, issuer, id: likewise.
        count: number of invocations that the finding stands for.
    """

    reason: Reason
    text: str
    at: float
    subject: str
    size: int
    origin: str = ""
    target: str = ""
    operation: str = ""
    host_id: str = ""
    issuer: str = ""
    id: str = ""
    count: int = 1


class Judge:
    """Judges invocations, and remembers their tokens and ids for a while."""

    def __init__(
        self,
        lattice: str,
        issuers: Collection[str],
        *,
        window_s: float = IAT_WINDOW_S,
        capacity: int = MAX_REMEMBERED,
    ) -> None:
        """Create a judge that knows nothing of the lattice yet.

        Args:
            lattice: id of the lattice.
            issuers: public cluster keys that are trusted.
            window_s: seconds by which the time of an invocation may differ from now; 0: unchecked.
            capacity: maximum number of tokens and ids that are remembered.
        """
        self.view = View()
        self._lattice = lattice
        self._issuers = frozenset(issuers)
        self._window_s = window_s
        self._kept_s = int(2 * window_s) + 1 if window_s else KEPT_WITHOUT_WINDOW_S
        self._seen = Repeats(capacity)

    def judge(
        self, subject: str, data: bytes, now: float
    ) -> tuple[Invocation | None, Finding | None]:
        """Judge a message.

        Args:
            subject: subject on which it was seen, without the prefix of an export.
            data: body of the message.
            now: current time, in seconds since 1970.

        Returns:
            The invocation, or None if the message is not one; and what is wrong with it, or None.
        """
        try:
            invocation = decode_invocation(data)
        except FormatError as error:
            return None, Finding(
                Reason.UNDECODABLE, _cut(str(error)), now, _cut(subject), len(data)
            )
        issuer = ""
        try:
            claims = check_claims(
                invocation, issuers=self._issuers, now=now, window_s=self._window_s
            )
            issuer = claims.issuer
            if not invocation.moved:
                check_payload(invocation, invocation.msg, claims)
            self._check_fresh(invocation, f"{issuer}{claims.jti}", now)
            self._check_place(invocation, subject)
            self._check_origin(invocation)
            self._check_link(invocation)
        except CheckError as error:
            return invocation, Finding(
                error.reason,
                _cut(str(error)),
                now,
                _cut(subject),
                len(data),
                _cut(invocation.origin.url),
                _cut(invocation.target.url),
                _cut(invocation.operation),
                _cut(invocation.host_id),
                issuer,
                _cut(invocation.id),
            )
        return invocation, None

    def _check_fresh(self, invocation: Invocation, token: str, now: float) -> None:
        """Check that token and id are new.

        Called only for invocations that a member of the cluster signed: others cannot fill the
        memory.
        """
        deadline = int(now) + self._kept_s
        known_token = self._seen.seen(_digest("token", token), deadline, int(now))
        known_id = self._seen.seen(_digest("id", invocation.id), deadline, int(now))
        if known_token:
            raise CheckError(Reason.REPLAY, "the token was seen before: the message is replayed")
        if known_id:
            raise CheckError(Reason.REPLAY, f"the id {invocation.id:.40} was seen before")

    def _check_place(self, invocation: Invocation, subject: str) -> None:
        try:
            expected = rpc_subject(self._lattice, invocation.target)
        except LatticeError as error:
            raise CheckError(Reason.TARGET, str(error)) from None
        if subject != expected:
            raise CheckError(Reason.TARGET, "seen on another subject than that of its target")

    def _check_origin(self, invocation: Invocation) -> None:
        view, key = self.view, invocation.origin.public_key
        if view.registered is not None and key not in view.registered:
            raise CheckError(Reason.ORIGIN_UNKNOWN, f"the registry has no claims of {key:.60}")
        if view.hosts is None or invocation.host_id in view.trusted_hosts:
            return
        runs = view.hosts.get(invocation.host_id)
        if runs is None:
            raise CheckError(
                Reason.HOST_UNKNOWN, f"no host {invocation.host_id:.60} takes part in the lattice"
            )
        if key not in runs:
            raise CheckError(
                Reason.HOST_ORIGIN, f"host {invocation.host_id:.60} does not run {key:.60}"
            )

    def _check_link(self, invocation: Invocation) -> None:
        origin, target = invocation.origin, invocation.target
        if self.view.links is None or origin.is_actor == target.is_actor:
            return
        if target.is_actor and invocation.host_id in self.view.trusted_hosts:
            return  # a bridge checks its policies instead of a link
        actor, provider = (origin, target) if origin.is_actor else (target, origin)
        if (actor.public_key, provider.public_key, provider.link_name) not in self.view.links:
            raise CheckError(
                Reason.UNLINKED,
                f"no link {provider.link_name:.40} between actor {actor.public_key:.60} and "
                f"provider {provider.public_key:.60}",
            )


def _digest(kind: str, text: str) -> bytes:
    return hashlib.blake2b(f"{kind} {text}".encode(), digest_size=_KEY_BYTES).digest()


def _cut(text: str) -> str:
    """Return the beginning of a received text, so that a flood of messages takes little memory."""
    return cut(text, MAX_SHOWN_CHARS)
