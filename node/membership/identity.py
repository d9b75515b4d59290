"""Who a node is: an Ed25519 key (RFC 8032) that never leaves its file.

The file has three lines: the format's name, the private key and the node id,
both hexadecimal. The node id is the digest of the public key, so it checks
that the private key is the one that was written.
"""

from __future__ import annotations

import os
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from kakeya_fleet.fleet.cards.signed_message import node_id_of
from kakeya_fleet.node.config.state_directory import OTHERS, sync_directory, unwritable, write_new
from kakeya_fleet.node.errors import IdentityCorrupt, StateExposed

_FORMAT = "kakeya-ed25519-v1"


class Identity:
    """A private key with its public names."""

    def __init__(self, private_key: Ed25519PrivateKey) -> None:
        self._private_key = private_key
        self.public_key = private_key.public_key().public_bytes_raw()
        """32 bytes."""
        self.node_id = node_id_of(self.public_key)

    def sign(self, message: bytes) -> bytes:
        """The Ed25519 signature, 64 bytes."""
        return self._private_key.sign(message)


def verifies(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the owner of `public_key` (32 bytes) signed the message; about 250 us."""
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def load_or_create(path: Path) -> Identity:
    """The identity kept at `path`; a new one only when there is no file.

    Raises `IdentityCorrupt`, `StateExposed`, `StateUnwritable`.
    """
    try:
        mode = path.stat().st_mode
        content = path.read_bytes()
    except FileNotFoundError:
        return _create(path)
    except OSError as error:
        raise _corrupt(path) from error
    if mode & OTHERS:
        raise StateExposed(
            f"others can read the private key {path}",
            f"chmod 600 {path}, or better: rm {path} and join again as a new node",
            path=str(path),
        )
    return _parse(path, content)


def _parse(path: Path, content: bytes) -> Identity:
    try:
        name, seed, node_id = content.decode("ascii").splitlines()
        identity = Identity(Ed25519PrivateKey.from_private_bytes(bytes.fromhex(seed)))
    except ValueError as error:
        raise _corrupt(path) from error
    if name != _FORMAT or node_id != identity.node_id:
        raise _corrupt(path)
    return identity


def _create(path: Path) -> Identity:
    private_key = Ed25519PrivateKey.generate()
    identity = Identity(private_key)
    lines = (_FORMAT, private_key.private_bytes_raw().hex(), identity.node_id)
    temporary = path.with_name(f".{path.name}.new")
    try:
        write_new(temporary, "".join(f"{line}\n" for line in lines).encode("ascii"))
        # A link is created exclusively: it never replaces a key.
        os.link(temporary, path)
        temporary.unlink()
        sync_directory(path.parent)
    except OSError as error:
        raise unwritable(path, error) from error
    return identity


def _corrupt(path: Path) -> IdentityCorrupt:
    return IdentityCorrupt(
        f"the identity in {path} cannot be read",
        f"put a backup back, or rm {path}, then join again as a new node",
        path=str(path),
    )
