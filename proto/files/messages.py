"""Payloads and tags of `file.*`: conversion between bytes and values, with every field checked.

Unknown fields are ignored, so that later versions can add some. The fields of an offer other than
`size` and `cmd` are extensions of this implementation. A sender that has only those two is served
as well: its chunks arrive in order, have no tags, and carry the uid of the offer.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from proto.files.bounds import (
    CHUNK_BYTES,
    MAX_ID_BYTES,
    MAX_JSON_BYTES,
    MAX_NONCE_BYTES,
    MAX_SIZE_BYTES,
    MAX_TAGS_BYTES,
    WINDOW_CHUNKS,
)
from proto.files.errors import FileCode, RefusedError, StatusError
from proto.files.names import check_command, check_name

NEGOTIATE: Final = "file.negotiate"
WRITE: Final = "file.write"
CLOSE: Final = "file.close"

_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_CHUNK_TAGS: Final = re.compile(r"file=([0-9a-f]{32}),chunk=([0-9]{1,10})", re.ASCII)
_ID_HEX: Final = 32


@dataclass(frozen=True, slots=True)
class Offer:
    """An offer of a file."""

    size_bytes: int
    name: str | None = None
    """None to name the file after the upload's id."""
    sha256: str | None = None
    """Checksum in lower-case hex; None to check only the size."""
    cmd: str | None = None
    """Command to call on arrival."""
    replace: bool = False
    """Whether to replace an existing file of this name."""
    nonce: str | None = None
    """Text that distinguishes the attempts of a sender from each other."""

    @property
    def chunks(self) -> int:
        """Number of chunks; an empty file has none."""
        return -(-self.size_bytes // CHUNK_BYTES)

    def chunk_size(self, index: int) -> int:
        """Return the size of a chunk in bytes."""
        return min(CHUNK_BYTES, self.size_bytes - index * CHUNK_BYTES)

    def id(self, uid: str) -> str:
        """Return the id of the upload, which is the same for the same file under the same name.

        Args:
            uid: uid of the request, used as the id if the offer does not identify the file.
        """
        if self.sha256 is None or self.name is None:
            return uid
        facts = [self.size_bytes, self.sha256, self.name, self.cmd, self.replace]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:_ID_HEX]

    @property
    def file(self) -> Offer:
        """The offer without its nonce, which is equal for every attempt to send this file."""
        return replace(self, nonce=None)

    def to_json(self) -> dict[str, Any]:
        """Return the fields that are set."""
        fields = {
            "size": self.size_bytes,
            "name": self.name,
            "sha256": self.sha256,
            "cmd": self.cmd,
            "replace": self.replace or None,
            "nonce": self.nonce,
        }
        return {name: value for name, value in fields.items() if value is not None}


class State(Enum):
    """State of an upload at the receiver."""

    OPEN = "open"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Status:
    """The answer to an offer and to a close: which chunks of an upload the receiver has."""

    id: str
    state: State
    have: int = 0
    """Number of chunks without a gap, from the first on."""
    beyond: tuple[int, ...] = ()
    """Numbers of the chunks after a missing one."""
    window: int = WINDOW_CHUNKS
    """Number of chunks beyond `have` that the receiver accepts."""
    name: str = ""
    """Name of the file at the receiver, when the upload is done."""


def encode_offer(offer: Offer) -> bytes:
    """Return the payload of `file.negotiate`."""
    return _encode(offer.to_json())


def parse_offer(payload: bytes) -> Offer:
    """Parse the payload of `file.negotiate`.

    Raises:
        RefusedError: a field is missing, invalid or above its bound.
    """
    return offer_from_json(_object(payload))


def offer_from_json(fields: dict[str, Any]) -> Offer:
    """Parse the fields of an offer; raise the same errors as `parse_offer`."""
    size = fields.get("size")
    if type(size) is not int or size < 0:
        raise RefusedError(FileCode.BAD_REQUEST, "size must be a number of bytes")
    if size > MAX_SIZE_BYTES:
        raise RefusedError(FileCode.TOO_LARGE, f"size is above {MAX_SIZE_BYTES} bytes")
    name = _text(fields, "name")
    if name is not None:
        check_name(name)
    sha256 = _text(fields, "sha256")
    if sha256 is not None:
        _check_sha256(sha256)
    cmd = _text(fields, "cmd")
    if cmd is not None:
        check_command(cmd)
    nonce = _text(fields, "nonce")
    if nonce is not None and len(nonce.encode(errors="replace")) > MAX_NONCE_BYTES:
        raise RefusedError(FileCode.BAD_REQUEST, f"nonce is above {MAX_NONCE_BYTES} bytes")
    replace = fields.get("replace")
    if replace is not None and type(replace) is not bool:
        raise RefusedError(FileCode.BAD_REQUEST, "replace must be true or false")
    return Offer(size, name, sha256, cmd, bool(replace), nonce)


def chunk_tags(id: str, index: int) -> str:
    """Return the tags of `file.write`."""
    return f"file={id},chunk={index}"


def parse_chunk_tags(tags: str | None) -> tuple[str, int] | None:
    """Parse the tags of `file.write` into id and number; None if the chunk follows the one before.

    Raises:
        RefusedError: the tags have another form.
    """
    if not tags:
        return None
    found = _CHUNK_TAGS.fullmatch(tags) if len(tags) <= MAX_TAGS_BYTES else None
    if found is None:
        raise RefusedError(FileCode.BAD_REQUEST, "tags must be file=<id>,chunk=<number>")
    return found[1], int(found[2])


@dataclass(frozen=True, slots=True)
class Close:
    """Notice that the sender has sent everything."""

    id: str | None = None
    """Id of the upload; None if it is the uid of the request."""
    sha256: str | None = None


def encode_close(close: Close) -> bytes:
    """Return the payload of `file.close`."""
    fields = {"id": close.id, "sha256": close.sha256}
    return _encode({name: value for name, value in fields.items() if value is not None})


def parse_close(payload: bytes) -> Close:
    """Parse the payload of `file.close`; an empty one has no fields.

    Raises:
        RefusedError: a field is invalid.
    """
    fields = _object(payload) if payload else {}
    id, sha256 = _text(fields, "id"), _text(fields, "sha256")
    if id is not None and len(id.encode(errors="replace")) > MAX_ID_BYTES:
        raise RefusedError(FileCode.BAD_REQUEST, f"id is above {MAX_ID_BYTES} bytes")
    if sha256 is not None:
        _check_sha256(sha256)
    return Close(id, sha256)


def encode_status(status: Status) -> bytes:
    """Return the payload of the answer to an offer or a close."""
    fields: dict[str, Any] = {
        "id": status.id,
        "state": status.state.value,
        "chunk": CHUNK_BYTES,
        "window": status.window,
        "have": status.have,
    }
    if status.beyond:
        fields["beyond"] = status.beyond
    if status.name:
        fields["name"] = status.name
    return _encode(fields)


def parse_status(payload: bytes, chunks: int) -> Status:
    """Parse the payload of the answer to an offer or a close.

    Args:
        payload: payload of the answer.
        chunks: number of chunks of the file that was offered.

    Raises:
        StatusError: the payload is not a status.
    """
    try:
        fields = _object(payload)
    except RefusedError as error:
        raise StatusError(f"the answer is not the status of an upload: {error}") from None
    id, have, window = fields.get("id"), fields.get("have"), fields.get("window")
    name, beyond = fields.get("name", ""), fields.get("beyond", [])
    if fields.get("chunk") != CHUNK_BYTES:
        raise StatusError("the receiver wants chunks of another size")
    if not (isinstance(id, str) and 0 < len(id) <= MAX_ID_BYTES and isinstance(name, str)):
        raise StatusError("the status has no id, or a wrong name")
    if type(have) is not int or not 0 <= have <= chunks:
        raise StatusError(f"have must be a number of chunks up to {chunks}")
    if type(window) is not int or window < 1:
        raise StatusError("window must be a number of chunks from 1 on")
    if not (
        isinstance(beyond, list)
        and len(beyond) <= window
        and all(type(index) is int and have < index < chunks for index in beyond)
    ):
        raise StatusError("beyond must be numbers of chunks after those it has")
    try:
        state = State(fields.get("state"))
    except ValueError:
        raise StatusError("state must be open or done") from None
    return Status(id, state, have, tuple(sorted(set(beyond))), window, name)


def _encode(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _object(payload: bytes) -> dict[str, Any]:
    if len(payload) > MAX_JSON_BYTES:
        raise RefusedError(
            FileCode.BAD_REQUEST,
            f"payload has {len(payload)} bytes, at most {MAX_JSON_BYTES} are allowed",
        )
    try:
        found = json.loads(payload)
    except (ValueError, RecursionError):  # not UTF-8, not JSON, a number without end
        found = None
    if not isinstance(found, dict):
        raise RefusedError(FileCode.BAD_REQUEST, "payload is not a JSON object")
    return found


def _text(fields: dict[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise RefusedError(FileCode.BAD_REQUEST, f"{name} must be text")
    return value


def _check_sha256(value: str) -> None:
    if not _SHA256.fullmatch(value):
        raise RefusedError(FileCode.BAD_REQUEST, "sha256 must be 64 lower-case hex digits")
