"""The permission matrix: the one table that groups, services, REST and the tests use.

Each action of the platform has one permission (Django's) and the lowest role that has it; a higher
role has all permissions of those below. The roles are Django groups of the same names, which a
migration creates and which are restored after each `migrate` (`relay.access.roles`). Operators may
create other groups with any of these permissions.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class Role(StrEnum):
    """Roles, the one with the fewest permissions first."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    OWNER = "owner"

    def includes(self, other: Role) -> bool:
        """Check whether this role has all permissions of the other."""
        order = tuple(Role)
        return order.index(self) >= order.index(other)


class Action(NamedTuple):
    """An action of the platform.

    Attributes:
        name: `<noun>.<verb>`, as in the audit log.
        permission: `<app>.<codename>`.
        role: lowest role that may do it.
    """

    name: str
    permission: str
    role: Role


_VIEWER, _OPERATOR, _OWNER = Role

ACTIONS: Final[tuple[Action, ...]] = tuple(
    Action(*line)
    for line in (
        # Twins and the chain
        ("twin.view", "relay_twins.view_twin", _VIEWER),
        ("twin.add", "relay_twins.add_twin", _OWNER),
        ("twin.put", "relay_twins.change_twin", _OWNER),
        ("twin.import", "relay_twins.change_twin", _OWNER),
        ("twin.remove", "relay_twins.delete_twin", _OWNER),
        ("chain.view", "relay_twins.view_chain", _VIEWER),
        ("chain.import", "relay_twins.import_chain", _OPERATOR),
        # Sessions and workers
        ("session.view", "relay_sessions.view_session", _VIEWER),
        ("session.kick", "relay_sessions.kick_session", _OPERATOR),
        ("worker.view", "relay_ops.view_worker", _VIEWER),
        ("worker.drain", "relay_ops.drain_worker", _OPERATOR),
        # Queues
        ("queue.view", "relay_ops.view_queue", _VIEWER),
        ("queue.export", "relay_ops.export_queue", _OPERATOR),
        ("queue.purge", "relay_ops.purge_queue", _OPERATOR),
        ("queue.move", "relay_ops.move_queue", _OPERATOR),
        # Background tasks
        ("task.view", "relay_ops.view_task", _VIEWER),
        ("task.retry", "relay_ops.retry_task", _OPERATOR),
        ("task.forget", "relay_ops.retry_task", _OPERATOR),
        # Settings
        ("setting.view", "relay_ops.view_setting", _VIEWER),
        ("backup.make", "relay_ops.make_backup", _OWNER),
        ("backup.restore", "relay_ops.restore_backup", _OWNER),
        # Limits and bans
        ("limit.view", "relay_limits.view_twinlimit", _VIEWER),
        ("limit.add", "relay_limits.add_twinlimit", _OPERATOR),
        ("limit.set", "relay_limits.change_twinlimit", _OPERATOR),
        ("limit.default", "relay_limits.change_twinlimit", _OPERATOR),
        ("limit.hits", "relay_limits.view_twinlimit", _VIEWER),
        ("limit.remove", "relay_limits.delete_twinlimit", _OPERATOR),
        ("ban.set", "relay_limits.change_twinlimit", _OPERATOR),
        ("ban.lift", "relay_limits.change_twinlimit", _OPERATOR),
        # The lattice
        ("lattice.view", "relay_lattice.view_lattice", _VIEWER),
        ("lattice.link", "relay_lattice.link_lattice", _OPERATOR),
        ("lattice.unlink", "relay_lattice.link_lattice", _OPERATOR),
        ("lattice.call", "relay_lattice.call_lattice", _OPERATOR),
        ("lattice_policy.view", "relay_lattice.view_latticepolicy", _VIEWER),
        ("lattice_policy.set", "relay_lattice.change_latticepolicy", _OPERATOR),
        ("lattice_policy.remove", "relay_lattice.delete_latticepolicy", _OPERATOR),
        # Other relays
        ("relay.view", "relay_federation.view_relaynode", _VIEWER),
        ("relay.add", "relay_federation.add_relaynode", _OPERATOR),
        ("relay.put", "relay_federation.change_relaynode", _OPERATOR),
        ("relay.trust", "relay_federation.change_relaynode", _OPERATOR),
        ("relay.distrust", "relay_federation.change_relaynode", _OPERATOR),
        ("relay.pause", "relay_federation.change_relaynode", _OPERATOR),
        ("relay.resume", "relay_federation.change_relaynode", _OPERATOR),
        ("relay.block", "relay_federation.change_relaynode", _OPERATOR),
        ("relay.unblock", "relay_federation.change_relaynode", _OPERATOR),
        ("relay.reset", "relay_federation.change_relaynode", _OPERATOR),
        ("relay.forget", "relay_federation.delete_relaynode", _OPERATOR),
        ("letter.view", "relay_federation.view_deadletter", _VIEWER),
        ("letter.requeue", "relay_federation.change_deadletter", _OPERATOR),
        ("letter.delete", "relay_federation.delete_deadletter", _OPERATOR),
        # Alarms
        ("alarm.view", "relay_alarms.view_alarm", _VIEWER),
        ("alarm.acknowledge", "relay_alarms.acknowledge_alarm", _OPERATOR),
        ("alarm.unacknowledge", "relay_alarms.acknowledge_alarm", _OPERATOR),
        ("alarm.history", "relay_alarms.view_alarmevent", _VIEWER),
        ("silence.view", "relay_alarms.view_silence", _VIEWER),
        ("silence.add", "relay_alarms.silence_alarm", _OPERATOR),
        ("silence.end", "relay_alarms.silence_alarm", _OPERATOR),
        ("rule.view", "relay_alarms.view_ruleoverride", _VIEWER),
        ("rule.set", "relay_alarms.change_ruleoverride", _OWNER),
        ("receiver.view", "relay_alarms.view_receiver", _VIEWER),
        ("receiver.add", "relay_alarms.add_receiver", _OWNER),
        ("receiver.change", "relay_alarms.change_receiver", _OWNER),
        ("receiver.remove", "relay_alarms.delete_receiver", _OWNER),
        ("receiver.test", "relay_alarms.test_receiver", _OPERATOR),
        ("notice.view", "relay_alarms.view_delivery", _VIEWER),
        # Traces
        ("trace.view", "relay_trace.view_traceorder", _VIEWER),
        ("trace.start", "relay_trace.start_traceorder", _OPERATOR),
        ("trace.stop", "relay_trace.stop_traceorder", _OPERATOR),
        # Analytics
        ("analytics.view", "relay_analytics.view_analytics", _VIEWER),
        # Audit
        ("audit.view", "relay_audit.view_auditentry", _VIEWER),
        ("audit.export", "relay_audit.export_auditentry", _OWNER),
        ("audit.prune", "relay_audit.export_auditentry", _OWNER),
        # Accounts, groups and tokens
        ("account.view", "auth.view_user", _OWNER),
        ("account.add", "auth.add_user", _OWNER),
        ("account.change", "auth.change_user", _OWNER),
        ("account.delete", "auth.delete_user", _OWNER),
        ("account.reset_second_factor", "auth.change_user", _OWNER),
        ("account.end_sessions", "auth.change_user", _OWNER),
        ("group.view", "auth.view_group", _OWNER),
        ("group.add", "auth.add_group", _OWNER),
        ("group.change", "auth.change_group", _OWNER),
        ("group.delete", "auth.delete_group", _OWNER),
        ("token.view", "relay_access.view_apitoken", _OWNER),
        ("token.create", "relay_access.add_apitoken", _OWNER),
        ("token.revoke", "relay_access.revoke_apitoken", _OWNER),
    )
)

_BY_NAME: Final = {action.name: action for action in ACTIONS}


def permission_of(action: str) -> str:
    """Return the permission that an action needs.

    Raises:
        KeyError: there is no such action; a mistake of the caller.
    """
    return _BY_NAME[action].permission


def role_of(action: str) -> Role:
    """Return the lowest role that may do an action.

    Raises:
        KeyError: there is no such action.
    """
    return _BY_NAME[action].role


def permissions_of(role: Role) -> frozenset[str]:
    """Return all permissions of a role."""
    return frozenset(action.permission for action in ACTIONS if role.includes(action.role))


def all_permissions() -> frozenset[str]:
    """Return all permissions of the platform."""
    return frozenset(action.permission for action in ACTIONS)
