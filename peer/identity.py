"""The identity of a peer: the two keys that are derived from one secret.

    secret = read_secret(options.mnemonic, options.secret_file, "RMB_SECRET")
    identity = Identity.from_secret(secret)

The secret itself is not kept anywhere.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from proto.identity.agreement import EncryptionKey
from proto.identity.bounds import MAX_SECRET_CHARS
from proto.identity.errors import SecretError
from proto.identity.seeds import parse_secret
from proto.identity.signing import KeyType, SigningKey


@dataclass(frozen=True, slots=True)
class Identity:
    """The keys of a twin's owner."""

    key: SigningKey
    """Key that signs tokens, messages and transactions."""
    encryption: EncryptionKey
    """Key that decrypts messages for the twin."""

    @classmethod
    def from_secret(cls, secret: str, key_type: KeyType = KeyType.SR25519) -> Identity:
        """Return the keys derived from a mnemonic or a 0x seed.

        Raises:
            SecretError: the text is not a secret, or has a derivation path for an ed25519 key.
        """
        key = SigningKey.from_secret(secret, key_type)
        return cls(key, EncryptionKey(parse_secret(secret).mini_secret))

    @property
    def account(self) -> bytes:
        """The public signing key, 32 bytes, by which the twin is found."""
        return self.key.account

    @property
    def pk(self) -> bytes:
        """The public encryption key, 33 bytes, which the twin should publish."""
        return self.encryption.public

    def encryption_as(self, published: bytes | None) -> EncryptionKey | None:
        """Return the encryption key if the twin has published it, else None.

        Others cannot decrypt messages sealed with a key they do not know: those are sent as plain
        text.
        """
        return self.encryption if published == self.pk else None


def read_secret(text: str | None, file: str | os.PathLike[str] | None, env: str) -> str:
    """Return the secret from the one place where it is given.

    Args:
        text: the secret itself, which on a command line is visible in the process list.
        file: path of a file that contains the secret and nothing else.
        env: name of the environment variable that is read when neither is given.

    Raises:
        SecretError: the secret is given twice, is not given, or is not readable. The text names the
            place where the secret was looked for and never repeats what was found.
    """
    if text is not None and file is not None:
        raise SecretError("give the secret or the file that holds it, not both")
    if text is not None:
        return text
    if file is not None:
        return _read_file(Path(file))
    found = os.environ.get(env)
    if not found:
        raise SecretError(f"no secret: give one, or the file that holds it, or set {env}")
    return found


def _read_file(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            secret = file.read(MAX_SECRET_CHARS + 1).strip()
    except OSError as error:
        raise SecretError(f"secret file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SecretError(f"secret file {path}: not text") from None
    if not secret:
        raise SecretError(f"secret file {path}: empty")
    return secret
