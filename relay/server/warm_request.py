"""The request of a supervisor to its warm parent: one message, with file descriptors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

MAX_MESSAGE_BYTES: Final = 1 << 20
MAX_FDS: Final = 200
"""Maximum number of descriptors; Linux allows 253 with one message."""


@dataclass(frozen=True, slots=True)
class Request:
    """Description of the child to be forked."""

    environment: Mapping[str, str]
    """The child's whole environment. The warm parent uses it too from then on: settings are read
    from it once."""
    imports: Sequence[str] = ()
    """Modules to be imported before the fork."""
    set_up: bool = False
    """Whether to set Django up before the fork, with the settings of `environment`."""
    module: str = ""
    """Module whose `main` the child runs; empty: nothing is forked."""
    program: str = ""
    """`sys.argv[0]` of the child; empty: the module's file."""
    arguments: Sequence[str] = ()
    title: Sequence[str] = ()
    """Command line that tools such as `ps` show, as far as it fits; empty: `module` and
    `arguments`."""
    fds: Sequence[int] = ()
    """Numbers that the descriptors sent along get in the child."""
    folder: str = ""
    """Current folder of the child; empty: that of the warm parent."""
    new_session: bool = False
    """Whether the child leads a session, not only a process group."""

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> Request:
        return cls(**json.loads(data))
