"""The encrypted layer inside packets, of which servers know nothing (sheet section 12).

Each direction between two keys is a secretstream of its own. The first byte of a payload gives its
type: the header of a new stream, a message, or a request for a new stream from a side that cannot
decrypt what it receives. Keys depend on the two identities alone, so it is not noticed if a server
replays an old header with its messages.

The owner calls `send` and `receive_packet`; payloads to send are in `data_to_send`, and received
messages in `next_event`. Times are nanoseconds of a monotonic clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from nacl import bindings
from nacl.exceptions import CryptoError

from proto.sbd.bounds import (
    MAX_PEERS,
    MAX_PLAINTEXT_BYTES,
    PEER_IDLE_NS,
    RENEWAL_PAUSE_NS,
    STREAM_HEADER_BYTES,
    STREAM_OVERHEAD_BYTES,
)
from proto.sbd.errors import MessageSizeError, PeerError, TooManyPeersError

NEW_STREAM: Final = 0x10
MESSAGE: Final = 0x11
REQUEST_NEW_STREAM: Final = 0x12

StreamState = bindings.crypto_secretstream_xchacha20poly1305_state


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A message was received and decrypted.

    Attributes:
        key: key of the peer.
        message: plaintext of the message.
    """

    key: bytes
    message: bytes


@dataclass(slots=True)
class _Peer:
    receive_key: bytes
    send_key: bytes
    active_ns: int
    sending: StreamState | None = None
    receiving: StreamState | None = None
    asked_ns: int | None = field(default=None)  # when a new stream was last requested


class EndToEnd:
    """The encrypted streams of one identity with its peers."""

    def __init__(
        self,
        secret: bytes,
        random: Callable[[int], bytes],
        *,
        listener: bool = False,
        max_peers: int = MAX_PEERS,
        idle_ns: int = PEER_IDLE_NS,
    ) -> None:
        """Create the streams of an identity.

        Args:
            secret: libsodium's 64-byte ed25519 secret key: seed and public key.
            random: function that returns the given number of random bytes.
            listener: whether peers may start a conversation.
            max_peers: maximum number of peers with streams at a time.
            idle_ns: time without a message in either direction after which a peer is forgotten.
        """
        self._public = bindings.crypto_sign_ed25519_pk_to_curve25519(secret[32:])
        self._secret = bindings.crypto_sign_ed25519_sk_to_curve25519(secret)
        self._random = random
        self._listener = listener
        self._max_peers = max_peers
        self._idle_ns = idle_ns
        self._peers: dict[bytes, _Peer] = {}  # the most recently active one is last
        self._output: list[tuple[bytes, bytes]] = []
        self._events: deque[MessageReceived] = deque()

    def active_peers(self, now_ns: int) -> list[bytes]:
        """Return the keys of the peers with streams, the least recently used first."""
        self._forget_idle(now_ns)
        return list(self._peers)

    def send(self, key: bytes, message: bytes, now_ns: int) -> None:
        """Encrypt a message for a peer, and start a stream to it if necessary.

        Raises:
            MessageSizeError: the message is longer than `MAX_PLAINTEXT_BYTES`.
            TooManyPeersError: the maximum number of peers have streams.
            PeerError: it is impossible to encrypt for this key.
        """
        if len(message) > MAX_PLAINTEXT_BYTES:
            raise MessageSizeError(
                f"message of {len(message)} bytes is too large, limit: {MAX_PLAINTEXT_BYTES} bytes"
            )
        state = self._open(key, now_ns)
        sealed = bindings.crypto_secretstream_xchacha20poly1305_push(state, message)
        self._output.append((key, bytes((MESSAGE,)) + sealed))

    def open(self, key: bytes, now_ns: int) -> None:
        """Start a stream to a peer, unless one exists.

        Raises:
            TooManyPeersError: the maximum number of peers have streams.
            PeerError: it is impossible to encrypt for this key.
        """
        self._open(key, now_ns)

    def close_peer(self, key: bytes) -> None:
        """Forget a peer, without notifying it."""
        self._peers.pop(key, None)

    def receive_packet(self, key: bytes, payload: bytes, now_ns: int) -> None:
        """Handle a packet of a peer; malformed ones are ignored."""
        self._forget_idle(now_ns)
        if not payload:
            return
        known = key in self._peers
        if not known and (not self._listener or len(self._peers) >= self._max_peers):
            return
        try:
            peer = self._touch(key, now_ns)
        except PeerError:
            return
        kind, rest = payload[0], payload[1:]
        if kind == NEW_STREAM:
            self._take_stream(key, peer, rest, now_ns)
        elif kind == MESSAGE:
            self._take_message(key, peer, rest, now_ns)
        elif kind == REQUEST_NEW_STREAM and not rest:
            peer.sending = None  # the next message starts a new one

    def data_to_send(self) -> list[tuple[bytes, bytes]]:
        """Return the packets to send, destination and payload, in order."""
        output, self._output = self._output, []
        return output

    def next_event(self) -> MessageReceived | None:
        """Return the next event, or None."""
        return self._events.popleft() if self._events else None

    def _open(self, key: bytes, now_ns: int) -> StreamState:
        self._forget_idle(now_ns)
        if key not in self._peers and len(self._peers) >= self._max_peers:
            raise TooManyPeersError(f"streams with {self._max_peers} peers, which is the limit")
        peer = self._touch(key, now_ns)
        if peer.sending is None:
            header = self._random(STREAM_HEADER_BYTES)
            peer.sending = _stream(header, peer.send_key)
            self._output.append((key, bytes((NEW_STREAM,)) + header))
        return peer.sending

    def _take_stream(self, key: bytes, peer: _Peer, header: bytes, now_ns: int) -> None:
        if len(header) == STREAM_HEADER_BYTES:
            peer.receiving = _stream(header, peer.receive_key)
        else:
            self._ask_for_stream(key, peer, now_ns)

    def _take_message(self, key: bytes, peer: _Peer, sealed: bytes, now_ns: int) -> None:
        if peer.receiving is not None and len(sealed) >= STREAM_OVERHEAD_BYTES:
            try:
                message, _ = bindings.crypto_secretstream_xchacha20poly1305_pull(
                    peer.receiving, sealed
                )
            except CryptoError:
                pass  # the stream's state is unchanged
            else:
                self._events.append(MessageReceived(key, message))
                return
        self._ask_for_stream(key, peer, now_ns)

    def _ask_for_stream(self, key: bytes, peer: _Peer, now_ns: int) -> None:
        if peer.asked_ns is None or now_ns - peer.asked_ns >= RENEWAL_PAUSE_NS:
            peer.asked_ns = now_ns
            self._output.append((key, bytes((REQUEST_NEW_STREAM,))))

    def _touch(self, key: bytes, now_ns: int) -> _Peer:
        peer = self._peers.pop(key, None) or self._meet(key, now_ns)
        peer.active_ns = now_ns
        self._peers[key] = peer
        return peer

    def _meet(self, key: bytes, now_ns: int) -> _Peer:
        try:
            theirs = bindings.crypto_sign_ed25519_pk_to_curve25519(key)
            # The smaller key is the client; with the own key, both sides would be the server.
            keys = (
                bindings.crypto_kx_client_session_keys
                if self._public < theirs
                else bindings.crypto_kx_server_session_keys
            )(self._public, self._secret, theirs)
        except CryptoError as error:
            raise PeerError(f"key {key.hex()} cannot be encrypted for") from error
        if theirs == self._public:
            raise PeerError("cannot encrypt a message to the own key")
        return _Peer(*keys, now_ns)

    def _forget_idle(self, now_ns: int) -> None:
        while self._peers:
            key, peer = next(iter(self._peers.items()))
            if now_ns - peer.active_ns < self._idle_ns:
                return
            del self._peers[key]


def _stream(header: bytes, key: bytes) -> StreamState:
    """Return the state of a stream. Both ends start with the same one, so it suits sending too."""
    state = StreamState()
    bindings.crypto_secretstream_xchacha20poly1305_init_pull(state, header, key)
    return state
