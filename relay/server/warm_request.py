"""What a supervisor asks its warm parent for: one message, with file descriptors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

MAX_MESSAGE_BYTES: Final = 1 << 20
MAX_FDS: Final = 200
"""Linux takes 253 with one message."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be forked, as the supervisor says it."""

    environment: Mapping[str, str]
    """All of it, for the warm parent from now on as well: settings are read from it once."""
    imports: Sequence[str] = ()
    """Modules to be imported before the fork."""
    set_up: bool = False
    """Whether Django is to be set up before the fork, with the settings of `environment`."""
    module: str = ""
    """Its `main` is what the child does; empty: nothing is forked."""
    program: str = ""
    """`sys.argv[0]` of the child; the module's file unless given."""
    arguments: Sequence[str] = ()
    title: Sequence[str] = ()
    """What tools such as `ps` show, as far as it fits; `module` and `arguments` unless given."""
    fds: Sequence[int] = ()
    """Numbers under which the child has the descriptors sent along."""
    folder: str = ""
    """Current folder of the child; that of the warm parent unless given."""
    new_session: bool = False
    """Lead a session, not only a process group."""

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> Request:
        return cls(**json.loads(data))
