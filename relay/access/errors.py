"""Why a service did not do what it was asked.

    ServiceError
    ├── Denied      the actor may not do this
    │   └── Beyond  not with what may more than the actor
    ├── NotFound    there is no such thing
    ├── Invalid     a value is wrong; names the fields
    ├── Conflict    not as things are now
    └── Away        Redis, the database or the chain does not answer

Each face tells it in its own way: REST as problem+json, a command as one line and exit code 1, the
admin as a message. The texts are for operators and name no internals.
"""

from __future__ import annotations

from collections.abc import Mapping

from django.core.exceptions import PermissionDenied, ValidationError


class ServiceError(Exception):
    """The base of them all; `detail` is one sentence for the operator."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class Denied(ServiceError, PermissionDenied):
    """The actor lacks a permission. Django's admin answers it with 403 by itself."""

    def __init__(self, permission: str) -> None:
        super().__init__(f"this needs the permission {permission}")
        self.permission = permission


class Beyond(Denied):
    """The actor has the permission, but this account or group may more than the actor."""

    def __init__(self, detail: str) -> None:
        ServiceError.__init__(self, detail)
        self.permission = ""


class NotFound(ServiceError):
    """What was named does not exist, or no more."""


class Invalid(ServiceError):
    """Values are out of their bounds.

    Attributes:
        fields: what is wrong, by the name of the field; empty where it is none's alone.
    """

    def __init__(self, detail: str = "", fields: Mapping[str, str] | None = None) -> None:
        self.fields = dict(fields or {})
        super().__init__(detail or "; ".join(f"{k}: {v}" for k, v in self.fields.items()))

    @classmethod
    def of_validation(cls, error: ValidationError) -> Invalid:
        """What a model's own validation found."""
        if not hasattr(error, "error_dict"):
            return cls(" ".join(error.messages))
        fields = {name: " ".join(found) for name, found in error.message_dict.items()}
        return cls(fields.pop("__all__", ""), fields)


class Conflict(ServiceError):
    """The request is right, but not as things are now."""


class Away(ServiceError):
    """Something this needs does not answer; it may be tried again."""
