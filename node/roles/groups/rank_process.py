"""One rank of a group, in a process that the group's leader starts.

    python -m kakeya_fleet.node.roles.groups.rank_process

It connects to the leader twice, for commands and for its pulse, loads its part of
the model, and runs commands until the leader ends the connection. It never
outlives the leader: the end of either connection ends it at once, wherever it is,
and on Linux the kernel ends it with its parent.
"""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NoReturn

import psutil

from kakeya_fleet.engine.backends import load_shard
from kakeya_fleet.engine.backends.model_sources import resolve_model
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.errors import EngineError
from kakeya_fleet.engine.group.fields import Header, Json, items, section, text
from kakeya_fleet.engine.group.messages import Message
from kakeya_fleet.engine.group.rank_server import RankServer
from kakeya_fleet.engine.group.values import error_to_header
from kakeya_fleet.node.roles.groups.group_settings import PULSE_SECONDS
from kakeya_fleet.node.roles.groups.rank_environment import NONCE, BadEnvironment, RankEnvironment
from kakeya_fleet.node.roles.groups.rank_proof import (
    CHALLENGE_BYTES,
    Claim,
    NotProven,
    Purpose,
    prove_to_leader,
)
from kakeya_fleet.node.roles.groups.rank_socket import RankSocket

CONNECT_SECONDS = 10.0
GONE_SECONDS = 120
"""Behind a leader's host that says nothing more at all."""
LEAST_PORT = 20_000
MOST_PORT = 32_000
PR_SET_PDEATHSIG = 1
"""Of prctl(2)."""


def main() -> NoReturn:
    """Runs until the leader ends it."""
    try:
        own = RankEnvironment.read(os.environ)
        os.environ.pop(NONCE)
        _die_with(own.parent)
        commands = _connected(own, Purpose.COMMANDS)
        pulse = _connected(own, Purpose.PULSE)
        threading.Thread(target=_beat, args=(pulse,), name="pulse", daemon=True).start()
        with ExitStack() as held:
            ports = [_free_port(held) for _ in range(own.port_count)]
            commands.send(Message({"pid": os.getpid(), "ports": list(ports)}))
            join = commands.receive().header
        _serve(commands, own, join)
    except (BadEnvironment, NotProven) as error:
        sys.stderr.write(f"{error}\n")
        os._exit(2)
    except (OSError, EOFError):
        # The leader has gone, and nobody waits for anything any more.
        os._exit(0)
    except BaseException:  # noqa: BLE001 whatever it is, the other ranks wait for this one
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def _serve(commands: RankSocket, own: RankEnvironment, join: Header) -> NoReturn:
    """Loads and answers. Ends by raising: by `EOFError` when the leader is done."""
    try:
        verifier = _loaded(own, join)
    except (EngineError, ValueError) as error:
        commands.send(Message({"error": error_to_header(error)}))
        commands.receive()
        raise
    commands.send(Message({"ready": True}))
    server = RankServer(verifier, leads=own.rank == 0)
    while True:
        commands.send(server.answer(commands.receive()))


def _loaded(own: RankEnvironment, join: Header) -> Verifier:
    """The rank's part of the model that the leader names. Raises what loading raises."""
    for name, value in section(join, "environment").items():
        os.environ[name] = str(value)
    _choose_interface(text(join, "address"))
    folder = resolve_model(text(join, "model"), dtype=text(join, "dtype"))
    with ExitStack() as stack:
        ring = items(join, "ring")
        if ring:
            os.environ["MLX_HOSTFILE"] = stack.enter_context(_ring_file(ring))
        return load_shard(
            folder,
            backend=text(join, "backend"),
            dtype=text(join, "dtype"),
            rank=own.rank,
            size=own.size,
        )


@contextmanager
def _ring_file(ring: list[Json]) -> Iterator[str]:
    """The path of a file with the addresses of the ring.

    It has no name in any folder, so that nothing of it is left however this ends.
    """
    with tempfile.TemporaryFile() as file:
        file.write(json.dumps(ring).encode())
        file.seek(0)
        yield f"/dev/fd/{file.fileno()}"


def _choose_interface(address: str) -> None:
    """Lets gloo use the interface with this address; by itself it takes the host name's."""
    for name, found in psutil.net_if_addrs().items():
        if any(each.address == address for each in found):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
            return


def _die_with(parent: int | None) -> None:
    """Ends this process when its parent ends. Raises `BadEnvironment` when it has already."""
    if parent is None:
        return
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise BadEnvironment("the leader ended while this rank was started")


def _connected(own: RankEnvironment, purpose: Purpose) -> RankSocket:
    """A proven connection to the leader. Raises `OSError`, `NotProven`."""
    connection = socket.create_connection((own.host, own.port), timeout=CONNECT_SECONDS)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # By itself TCP takes a quarter of an hour to give up a host that has lost its power.
        milliseconds = 1000 * GONE_SECONDS
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
    found = RankSocket(connection)
    challenge = secrets.token_bytes(CHALLENGE_BYTES)
    claim = Claim(purpose, own.rank)
    prove_to_leader(
        own.nonce, claim, challenge, lambda count: bytes(found.read(count)), connection.sendall
    )
    connection.settimeout(None)
    return found


def _beat(pulse: RankSocket) -> None:
    """Says that this process runs, until the leader is gone: then nothing of it is left."""
    connection = pulse.connection
    try:
        while True:
            connection.sendall(b"\1")
            connection.settimeout(PULSE_SECONDS)
            try:
                if not connection.recv(1):
                    break
            except TimeoutError:
                continue
            time.sleep(PULSE_SECONDS)
    except OSError:
        pass
    os._exit(0)


def _free_port(held: ExitStack) -> int:
    """A port that nobody has, and that no other call gives while `held` is open.

    The library that is to listen there is loaded first, which takes seconds. So it
    is one of those that no system gives to whoever asks for any: Linux gives those
    from 32768 on, macOS from 49152 (RFC 6335).
    """
    while True:
        port = LEAST_PORT + secrets.randbelow(MOST_PORT - LEAST_PORT)
        try:
            held.enter_context(socket.create_server(("", port)))
        except OSError:
            continue
        return port


if __name__ == "__main__":
    main()
