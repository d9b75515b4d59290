"""The process that agents of tests are copies of: the libraries are imported, nothing has run.

Reads JSON {"arguments", "environment", "folder"}, a packet each, from the socket at the
descriptor that it is given, with the agent's standard output and error, and forks: the
child is `fleet ARGUMENTS`. Answers {"pid"}, and {"ended", "status"} for each child that
did. Ends with the socket.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import socket
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

REQUEST_BYTES = 1 << 20


@dataclass
class Copy:
    """What a child is to be."""

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    output: int
    errors: int

    def become(self) -> None:
        """Makes this process the one that was asked for."""
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for target, source in enumerate((nothing, self.output, self.errors)):
            os.dup2(source, target)
            os.close(source)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 lives as long
        sys.stderr = open(  # noqa: SIM115 lives as long
            2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False
        )
        os.chdir(self.folder)
        os.environ.clear()
        os.environ.update(self.environment)
        sys.argv[1:] = self.arguments


def preload(settled: Path) -> None:
    """Imports what an agent and a small verifier need, and starts no thread by that."""
    import transformers.models.qwen3.modeling_qwen3  # noqa: F401, PLC0415

    from kakeya_fleet.engine.backends import (  # noqa: PLC0415
        import_archives,
        import_backend,
        import_dflash,
    )
    from kakeya_fleet.node.app import agent  # noqa: F401, PLC0415
    from kakeya_fleet.node.cli.join import agent_view, command  # noqa: F401, PLC0415
    from kakeya_fleet.node.cli.shell import dispatch  # noqa: F401, PLC0415
    from kakeya_fleet.node.roles.verifier import verifier_loading  # noqa: PLC0415
    from tests.warm.settled import SettledOnce  # noqa: PLC0415

    import_backend("torch")
    import_dflash("torch")
    import_archives()
    verifier_loading.settle = SettledOnce(settled)
    threads = os.listdir("/proc/self/task") if os.path.isdir("/proc/self/task") else ["one"]
    if len(threads) != 1 or threading.active_count() != 1:
        raise RuntimeError(f"a process of {len(threads)} threads cannot be copied")
    # Copies share the pages of what is never looked through.
    gc.freeze()


def serve(channel: socket.socket) -> Copy | None:
    """Answers until the socket ends: None. In a child it returns at once: what it is to be."""
    woken, wake = socket.socketpair()
    for end in (woken, wake):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    with selectors.DefaultSelector() as waiting:
        waiting.register(channel, selectors.EVENT_READ)
        waiting.register(woken, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in waiting.select()}
            if woken in ready:
                woken.recv(4096)
                _tell_ended(channel)
            if channel not in ready:
                continue
            request, descriptors, _, _ = socket.recv_fds(channel, REQUEST_BYTES, 2)
            if not request:
                return None
            copy = Copy(**json.loads(request), output=descriptors[0], errors=descriptors[1])
            child = os.fork()
            if child == 0:
                for end in (channel, woken, wake):
                    end.close()
                return copy
            for descriptor in descriptors:
                os.close(descriptor)
            _tell(channel, {"pid": child})


def _tell_ended(channel: socket.socket) -> None:
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if child == 0:
            return
        _tell(channel, {"ended": child, "status": os.waitstatus_to_exitcode(status)})


def _tell(channel: socket.socket, words: dict[str, int]) -> None:
    channel.send(json.dumps(words).encode())


def run(descriptor: int, settled: Path) -> None:
    """Serves on the socket; the copies run `fleet`."""
    preload(settled)
    channel = socket.socket(fileno=descriptor)
    _tell(channel, {"pid": os.getpid()})
    copy = serve(channel)
    if copy is None:
        return
    copy.become()
    from kakeya_fleet.node.cli.main import main  # noqa: PLC0415

    main()


if __name__ == "__main__":
    run(int(sys.argv[1]), Path(sys.argv[2]))
