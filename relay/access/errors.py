"""Errors with which services refuse an operation.

    ServiceError
    ├── Denied      the actor may not do this
    │   └── Beyond  the account or group has permissions that the actor lacks
    ├── NotFound    it does not exist
    ├── Invalid     a value is wrong; names the fields
    ├── Conflict    the current state does not allow it
    └── Away        Redis, the database or the chain does not answer

Each face reports them in its own way: REST as problem+json, a command as one line and exit code 1,
the admin as a message. The texts are for operators and name no internals.
"""

from __future__ import annotations

from collections.abc import Mapping

from django.core.exceptions import PermissionDenied, ValidationError


class ServiceError(Exception):
    """Base class of all errors; `detail` is one sentence for the operator."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class Denied(ServiceError, PermissionDenied):
    """The actor lacks a permission. Django's admin answers with 403."""

    def __init__(self, permission: str) -> None:
        super().__init__(f"this needs the permission {permission}")
        self.permission = permission


class Beyond(Denied):
    """The actor has the permission, but lacks permissions that the account or group has."""

    def __init__(self, detail: str) -> None:
        ServiceError.__init__(self, detail)
        self.permission = ""


class NotFound(ServiceError):
    """The named object does not exist, or no longer exists."""


class Invalid(ServiceError):
    """Values are out of bounds.

    Attributes:
        fields: errors by name of the field; empty if the error is not about one field.
    """

    def __init__(self, detail: str = "", fields: Mapping[str, str] | None = None) -> None:
        self.fields = dict(fields or {})
        super().__init__(detail or "; ".join(f"{k}: {v}" for k, v in self.fields.items()))

    @classmethod
    def of_validation(cls, error: ValidationError) -> Invalid:
        """Create the error from what a model's own validation found."""
        if not hasattr(error, "error_dict"):
            return cls(" ".join(error.messages))
        fields = {name: " ".join(found) for name, found in error.message_dict.items()}
        return cls(fields.pop("__all__", ""), fields)


class Conflict(ServiceError):
    """The request is valid, but the current state does not allow it."""


class Away(ServiceError):
    """A required service does not answer; the caller may retry."""
