"""What can go wrong between a program and the lattice.

LatticeError                 of `proto.lattice.errors`
|- EmbeddedError             there is no nats-server to start, or it does not start
|- ConnectError              no NATS server can be reached, or none accepts the credentials
|- NotConnectedError         the connection is down now; nothing was sent
|- ObjectStoreError          a payload cannot go through the object store
|  |- ObjectStoreAwayError   JetStream or the bucket is not available
|  |- ObjectLostError        the object is missing, short, changed or of another size
|  `- QuotaExceededError     the bucket is full
|- RegistryError             the registry cannot be read or written
`- CallError                 a call has no result
   |- NoRespondersError      nobody serves the target
   |- PermissionDeniedError  the NATS user may not publish or subscribe there
   |- CallTimeoutError       no answer in time; also a TimeoutError
   |- ConnectionLostError    the connection broke after the call was sent
   |- TooManyCallsError      as many calls as allowed wait for their answers
   |- TooLargeError          payload or result exceed the bound; also a ValueError
   |- ResponseError          the answer cannot be used
   `- RemoteError            the target answered with an error
"""

from __future__ import annotations

from proto.lattice.errors import LatticeError as LatticeError


class EmbeddedError(LatticeError):
    """There is no nats-server to start, or it does not start; the text is for the operator."""


class ConnectError(LatticeError):
    """No NATS server can be reached, or none accepts the credentials."""


class NotConnectedError(LatticeError):
    """The connection to NATS is down now; nothing was sent."""


class ObjectStoreError(LatticeError):
    """A payload cannot go through the object store."""


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
    """Nobody subscribes to the subject: the target does not run; nothing was executed.

    Attributes:
        subject: where the call went.
    """

    def __init__(self, subject: str) -> None:
        super().__init__(f"no responders on subject {subject}: the target does not run")
        self.subject = subject


class PermissionDeniedError(CallError):
    """The NATS server does not let our user publish or subscribe there; nothing was executed.

    Attributes:
        subject: that is denied.
    """

    def __init__(self, what: str, subject: str) -> None:
        super().__init__(
            f"the NATS user may not {what} {subject}: extend its permissions on the NATS server"
        )
        self.subject = subject


class CallTimeoutError(CallError, TimeoutError):
    """No answer came in time; the call may have been executed.

    Attributes:
        timeout_s: how long the caller waited.
    """

    def __init__(self, subject: str, timeout_s: float) -> None:
        super().__init__(
            f"no answer on subject {subject} within {timeout_s:g} s;"
            " the call may have been executed"
        )
        self.timeout_s = timeout_s


class ConnectionLostError(CallError):
    """The connection broke after the call was sent; it may have been executed."""


class TooManyCallsError(CallError):
    """As many calls as allowed wait for their answers; nothing was sent."""


class TooLargeError(CallError, ValueError):
    """A payload or a result exceeds the bound."""

    def __init__(self, what: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"{what} has {size_bytes} bytes, at most {limit_bytes} are allowed")
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class ResponseError(CallError):
    """The answer cannot be used: undecodable, of another call, or of another size."""


class RemoteError(CallError):
    """The target answered with an error.

    Attributes:
        text: as the target sent it.
    """

    def __init__(self, text: str) -> None:
        super().__init__(f"the target answered with an error: {text or '(no text)'}")
        self.text = text
