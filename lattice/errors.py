"""Errors that a program of the lattice may get.

LatticeError                 of `proto.lattice.errors`
|- EmbeddedError             nats-server is not installed, or it does not start
|- ConnectError              no NATS server can be reached, or none accepts the credentials
|- NotConnectedError         the connection is down; nothing was sent
|- ObjectStoreError          a payload cannot be moved through the object store
|  |- ObjectStoreAwayError   JetStream or the bucket is not available
|  |- ObjectLostError        the object is missing, short, changed or of another size
|  `- QuotaExceededError     the bucket is full
|- RegistryError             the registry cannot be read or written
`- CallError                 a call has no result
   |- NoRespondersError      no program serves the target
   |- PermissionDeniedError  the NATS user may not publish or subscribe there
   |- CallTimeoutError       no answer in time; also a TimeoutError
   |- ConnectionLostError    the connection broke after the call was sent
   |- TooManyCallsError      the maximum number of calls wait for answers already
   |- TooLargeError          a payload or a result exceeds the limit; also a ValueError
   |- ResponseError          the answer cannot be used
   `- RemoteError            the target answered with an error
"""

from __future__ import annotations

from proto.lattice.errors import LatticeError as LatticeError


class EmbeddedError(LatticeError):
    """The nats-server program is not installed or does not start; the text is for the operator."""


class ConnectError(LatticeError):
    """No NATS server can be reached, or none accepts the credentials."""


class NotConnectedError(LatticeError):
    """The connection to NATS is down; nothing was sent."""


class ObjectStoreError(LatticeError):
    """A payload cannot be moved through the object store."""


class ObjectStoreAwayError(ObjectStoreError):
    """JetStream or the bucket is not available."""


class ObjectLostError(ObjectStoreError):
    """The object is missing, short, changed or of another size."""


class QuotaExceededError(ObjectStoreError):
    """The bucket is full."""


class RegistryError(LatticeError):
    """The registry cannot be read or written."""


class CallError(LatticeError):
    """A call has no result."""


class NoRespondersError(CallError):
    """The subject has no subscriber: the target does not run, and nothing was executed.

    Attributes:
        subject: subject on which the call was sent.
    """

    def __init__(self, subject: str) -> None:
        super().__init__(f"no responders on subject {subject}: the target does not run")
        self.subject = subject


class PermissionDeniedError(CallError):
    """The NATS user has no permission to publish or subscribe there; nothing was executed.

    Attributes:
        subject: subject that is denied.
    """

    def __init__(self, what: str, subject: str) -> None:
        super().__init__(
            f"the NATS user may not {what} {subject}: extend its permissions on the NATS server"
        )
        self.subject = subject


class CallTimeoutError(CallError, TimeoutError):
    """No answer arrived in time; the call may have been executed.

    Attributes:
        timeout_s: seconds that the caller waited.
    """

    def __init__(self, subject: str, timeout_s: float) -> None:
        super().__init__(
            f"no answer on subject {subject} within {timeout_s:g} s;"
            " the call may have been executed"
        )
        self.timeout_s = timeout_s


class ConnectionLostError(CallError):
    """The connection broke after the call was sent; the call may have been executed."""


class TooManyCallsError(CallError):
    """The maximum number of calls wait for answers already; nothing was sent."""


class TooLargeError(CallError, ValueError):
    """A payload or a result exceeds the limit."""

    def __init__(self, what: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"{what} has {size_bytes} bytes, at most {limit_bytes} are allowed")
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class ResponseError(CallError):
    """The answer cannot be used: it cannot be decoded, or is of another call or of another size."""


class RemoteError(CallError):
    """The target answered with an error.

    Attributes:
        text: text of the error, as the target sent it.
    """

    def __init__(self, text: str) -> None:
        super().__init__(f"the target answered with an error: {text or '(no text)'}")
        self.text = text
