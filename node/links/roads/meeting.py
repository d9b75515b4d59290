"""Where two agents of one host meet: a Unix socket over which a segment is handed over.

On Linux the socket has an abstract name, which ends with its process and is seen in one
network namespace only; there the kernel says whose process is at the other end, and other users'
are not met. Elsewhere it is a file of this user alone; what a killed agent left behind is swept
at the next start.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
import socket
import struct
import sys
import tempfile
from pathlib import Path

import psutil

from kakeya_fleet.node.links.roads.contract import RoadFailed

_PREFIX = "kakeya-road"
_CREDENTIALS = struct.Struct("3i")
"""Process, user and group."""
_MEETING = re.compile(rf"{_PREFIX}-([0-9a-f]{{32}}|\d+-\d+-[0-9a-f]{{8}})")


def host_digest() -> str:
    """Tells apart hosts, their starts, and network namespaces, and says nothing else of them."""
    if sys.platform == "linux":
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        space = os.stat("/proc/self/ns/net").st_ino
    else:
        boot, space = f"{socket.gethostname()} {int(psutil.boot_time())}", 0
    return hashlib.sha256(f"{boot} {space}".encode()).hexdigest()


class Meeting:
    """A listening socket for one other end."""

    def __init__(self, directory: Path | None) -> None:
        """Opens it under a random name. Raises `OSError`."""
        self._path: Path | None = None
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if sys.platform == "linux" and directory is None:
                self.address = f"@{_PREFIX}-{secrets.token_hex(16)}"
            else:
                folder = directory or Path(tempfile.gettempdir())
                sweep(folder)
                self._path = folder / f"{_own_prefix()}-{secrets.token_hex(4)}"
                self.address = str(self._path)
            self._listener.bind(_name(self.address))
            if self._path is not None:
                self._path.chmod(0o600)
            self._listener.listen(4)
            self._listener.setblocking(False)  # noqa: FBT003 - the socket's own signature
        except OSError:
            self.close()
            raise

    async def next_comer(self) -> socket.socket:
        """A process of this user that has connected, perhaps a stranger."""
        while True:
            comer, _ = await asyncio.get_running_loop().sock_accept(self._listener)
            if _is_of_this_user(comer):
                return comer
            comer.close()

    def close(self) -> None:
        """Nothing of it is left."""
        self._listener.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)


async def connected(address: str) -> socket.socket:
    """A socket to the meeting at `address`. Raises `RoadFailed`.

    Others name the address: a socket of any other program gets nothing from this one.
    """
    if not _MEETING.fullmatch(Path(address.removeprefix("@")).name):
        raise RoadFailed(f"{address!r} is no address of a meeting")
    own = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    own.setblocking(False)  # noqa: FBT003 - the socket's own signature
    try:
        await asyncio.get_running_loop().sock_connect(own, _name(address))
    except OSError as error:
        own.close()
        raise RoadFailed(f"nobody of this host listens at {address} ({error})") from error
    except asyncio.CancelledError:
        own.close()
        raise
    if not _is_of_this_user(own):
        own.close()
        raise RoadFailed(f"another user's process listens at {address}")
    return own


async def read_exactly(own: socket.socket, byte_count: int) -> bytes:
    """So many bytes. Raises `RoadFailed` at the end of the stream."""
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < byte_count:
        try:
            more = await loop.sock_recv(own, byte_count - len(data))
        except OSError as error:
            raise RoadFailed(f"the other end broke off the meeting ({error})") from error
        if not more:
            raise RoadFailed("the other end broke off the meeting")
        data += more
    return data


async def send_all(own: socket.socket, data: bytes) -> None:
    """Raises `RoadFailed` when the other end has gone."""
    try:
        await asyncio.get_running_loop().sock_sendall(own, data)
    except OSError as error:
        raise RoadFailed(f"the other end broke off the meeting ({error})") from error


async def read_descriptor(own: socket.socket) -> int:
    """The descriptor that comes with one byte. Raises `RoadFailed`."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(own, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(own)
    try:
        data, descriptors, _, _ = socket.recv_fds(own, 1, 1)
    except OSError as error:
        raise RoadFailed(f"the other end broke off the meeting ({error})") from error
    if len(descriptors) != 1 or not data:
        for descriptor in descriptors:
            os.close(descriptor)
        raise RoadFailed("the other end handed over no segment")
    os.set_inheritable(descriptors[0], False)  # noqa: FBT003 - the call's own signature
    return descriptors[0]


def sweep(folder: Path) -> None:
    """Removes the sockets of agents that were killed: nobody of that pid and start lives."""
    for path in folder.glob(f"{_PREFIX}-*-*-*"):
        pid, start = path.name.removeprefix(f"{_PREFIX}-").split("-")[:2]
        if pid.isdecimal() and _start_of(int(pid)) != start:
            path.unlink(missing_ok=True)


def _is_of_this_user(own: socket.socket) -> bool:
    """Whether a process of this user is at the other end (SO_PEERCRED, unix(7))."""
    if sys.platform != "linux":
        return True
    found = own.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(found)
    return bool(user == os.geteuid())


def _own_prefix() -> str:
    return f"{_PREFIX}-{os.getpid()}-{_start_of(os.getpid())}"


def _start_of(pid: int) -> str:
    """When the process started, in hundredths of a second; empty when there is none."""
    try:
        return str(int(psutil.Process(pid).create_time() * 100))
    except psutil.NoSuchProcess:
        return ""


def _name(address: str) -> str:
    return "\0" + address[1:] if address.startswith("@") else address
