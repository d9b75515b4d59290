"""What a node must remember: one directory, one agent, atomic and durable writes.

identity.key   private key, see `node.membership.identity`
incarnation    the durable counter: no incarnation that was announced is above it
peers          last known addresses of other nodes; a cache, rebuilt from peers
port           last used port, tried first at the next start
http_port      the same of HTTP
local_port     the same of what programs of this machine call, in a fleet with an authority
applications_port, https_port    the same of what applications with a key call there
trust/         what a member keeps of such a fleet, see `node.trust.membership_files`
agent.json     state, address and process id while an agent runs, for local tools
codecs.sqlite  what verifiers measured of codecs, see `node.planning.codec_store`; made anew if lost
lock           held with flock while an agent runs

Checked files hold the SHA-256 of the rest in their first line.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from platformdirs import user_state_path

from kakeya_fleet.node.errors import IncarnationCorrupt, StateExposed, StateLocked, StateUnwritable

OTHERS = 0o077
MAX_REMEMBERED_PEERS = 256
CODECS_FILE = "codecs.sqlite"
"""Of `node.planning.codec_store`; what cannot be read of it becomes codecs.sqlite.aside."""
STARTING, RUNNING = "starting", "running"
"""What agent.json says as `state`; one without it is running."""


def default_state(name: str) -> Path:
    """Where the node called `name` keeps its state: $XDG_STATE_HOME/kakeya/NAME."""
    return user_state_path("kakeya") / name


class StateDirectory:
    """An open, exclusively locked state directory.

    Raises `StateLocked`, `StateExposed` or `StateUnwritable` when it is opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._make()
        self._lock: int | None = self._take_lock()

    @property
    def identity_file(self) -> Path:
        """The private key's file."""
        return self.path / "identity.key"

    def close(self) -> None:
        """Removes agent.json and gives the lock back. A second call does nothing."""
        if self._lock is None:
            return
        with contextlib.suppress(OSError):
            (self.path / "agent.json").unlink(missing_ok=True)
        os.close(self._lock)
        self._lock = None

    def raise_incarnation(self, above: int = 0) -> int:
        """The next incarnation; see `reserve_incarnations`."""
        return self.reserve_incarnations(1, above)[0]

    def reserve_incarnations(self, count: int, above: int = 0) -> range:
        """The next `count` incarnations, greater than the last one and than `above`.

        No later start takes one of them: that is durable when this returns. Raises
        `StateUnwritable` when it cannot be made so, `IncarnationCorrupt` when the last one
        cannot be read.
        """
        path = self.path / "incarnation"
        following = max(self._last_incarnation(path), above) + 1
        write_checked(path, f"{following + count - 1}\n".encode())
        return range(following, following + count)

    def remembered_peers(self) -> tuple[str, ...] | None:
        """Last known addresses, host:port; None when the file is damaged."""
        path = self.path / "peers"
        try:
            body = read_checked(path)
        except FileNotFoundError:
            return ()
        except (OSError, ValueError):
            return None
        return tuple(body.decode("utf-8", errors="replace").split())

    def remember_peers(self, addresses: tuple[str, ...]) -> None:
        """Keeps the first 256 addresses. Raises `StateUnwritable`."""
        kept = addresses[:MAX_REMEMBERED_PEERS]
        write_checked(self.path / "peers", "".join(f"{a}\n" for a in kept).encode())

    def last_port(self) -> int:
        """The port of the last run, 0 when it is not known."""
        return self._port("port")

    def remember_port(self, port: int) -> None:
        """Keeps the port for the next start. Raises `StateUnwritable`."""
        write_durable(self.path / "port", f"{port}\n".encode())

    def last_local_port(self) -> int:
        """The port for programs of this machine of the last run, 0 when it is not known."""
        return self._port("local_port")

    def remember_local_port(self, port: int) -> None:
        """Keeps the port for programs of this machine. Raises `StateUnwritable`."""
        write_durable(self.path / "local_port", f"{port}\n".encode())

    def last_key_port(self, kind: str) -> int:
        """The port for applications with a key of the last run, 0 when it is not known.

        `kind` is "applications", which call gRPC, or "https".
        """
        return self._port(f"{kind}_port")

    def remember_key_port(self, kind: str, port: int) -> None:
        """Keeps a port for applications with a key. Raises `StateUnwritable`."""
        write_durable(self.path / f"{kind}_port", f"{port}\n".encode())

    def last_http_port(self) -> int:
        """The port of HTTP of the last run, 0 when it is not known."""
        return self._port("http_port")

    def remember_http_port(self, port: int) -> None:
        """Keeps the port of HTTP for the next start. Raises `StateUnwritable`."""
        write_durable(self.path / "http_port", f"{port}\n".encode())

    def announce_start(self, name: str, started_at_unix: float, address: str = "") -> None:
        """Writes agent.json of an agent that answers nobody yet; `address` once it is bound.

        `started_at_unix` is when its process was created, in seconds since 1970. Raises
        `StateUnwritable`.
        """
        self.announce(
            {
                "state": STARTING,
                "name": name,
                "address": address,
                "pid": os.getpid(),
                "started_at_unix": started_at_unix,
            }
        )

    def announce(self, facts: Mapping[str, str | int | float]) -> None:
        """Writes agent.json for local tools. Raises `StateUnwritable`."""
        write_durable(self.path / "agent.json", (json.dumps(dict(facts)) + "\n").encode())

    def _port(self, name: str) -> int:
        try:
            port = int((self.path / name).read_text("ascii"))
        except (OSError, ValueError):
            return 0
        return port if 0 < port < 65536 else 0

    def _make(self) -> None:
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            mode = self.path.stat().st_mode
            if mode & OTHERS and not any(self.path.iterdir()):
                self.path.chmod(0o700)
                return
        except OSError as error:
            raise unwritable(self.path, error) from error
        if mode & OTHERS:
            raise StateExposed(
                f"others can read the state directory {self.path}",
                f"chmod 700 {self.path}",
                path=str(self.path),
            )

    def _take_lock(self) -> int:
        path = self.path / "lock"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise unwritable(path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(descriptor, 32).decode("ascii", errors="replace").strip()
            os.close(descriptor)
            raise StateLocked(
                f"the agent with process id {holder or 'unknown'} uses the state {self.path}",
                "end it with `fleet leave`, or give this one another --name or --state",
                path=str(self.path),
                pid=holder,
            ) from error
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
        except OSError as error:
            os.close(descriptor)
            raise unwritable(path, error) from error
        return descriptor

    def _last_incarnation(self, path: Path) -> int:
        try:
            return int(read_checked(path))
        except FileNotFoundError:
            return 0
        except (OSError, ValueError) as error:
            raise IncarnationCorrupt(
                f"the incarnation in {path} cannot be read",
                f"rm {path} {self.identity_file}, then join again as a new node",
                path=str(path),
            ) from error


def read_checked(path: Path) -> bytes:
    """What `write_checked` wrote.

    Raises `ValueError` when the checksum does not fit, `OSError` as reading does.
    """
    digest, _, body = path.read_bytes().partition(b"\n")
    if digest != hashlib.sha256(body).hexdigest().encode("ascii"):
        raise ValueError(f"the checksum of {path} does not fit")
    return body


def write_checked(path: Path, body: bytes) -> None:
    """Writes checksum and body as `write_durable` does."""
    digest = hashlib.sha256(body).hexdigest().encode("ascii")
    write_durable(path, digest + b"\n" + body)


def write_durable(path: Path, content: bytes) -> None:
    """Replaces the file at once; content and name survive a power cut on return.

    The file is readable by its owner only. Raises `StateUnwritable`.
    """
    temporary = path.with_name(f".{path.name}.new")
    try:
        write_new(temporary, content)
        temporary.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        # What a full disk took of it is given back.
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise unwritable(path, error) from error


def write_new(path: Path, content: bytes) -> None:
    """Writes and fsyncs a file of mode 0600, in place of a leftover of that name."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def sync_directory(path: Path) -> None:
    """Makes the directory's entries durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unwritable(path: Path, error: OSError) -> StateUnwritable:
    """The error for a failed write below `path`."""
    return StateUnwritable(
        f"{path} cannot be written ({error.strerror})",
        "free the disk or its permissions, or choose another directory with --state",
        path=str(path),
    )
