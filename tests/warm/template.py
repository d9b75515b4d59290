"""The process that tests' agents and commands are copies of: the libraries are imported,
nothing has run.

Reads JSON (the fields of `Request`), a packet each, from the socket at the descriptor that it
is given, with three streams' descriptors, and forks: the child is `fleet ARGUMENTS`. Answers
{"pid"}, and {"ended", "status"} for each child that did. Ends with the socket.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import sys
import termios
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Never

REQUEST_BYTES = 1 << 20
# What commands load when they run.
LATE_IN_COMMANDS = ("kakeya.text", "kakeya.chat_template", "rich.live")
STREAM_COUNT = 3


@dataclass(frozen=True)
class Request:
    """What a child is to be; `on_terminal`: its standard input is its controlling terminal."""

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    on_terminal: bool


@dataclass(frozen=True)
class Copy:
    """A child's request, and its standard streams' descriptors."""

    request: Request
    descriptors: list[int]

    def become(self) -> None:
        """Makes this process the one that was asked for."""
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for target, source in enumerate(self.descriptors):
            os.dup2(source, target)
            os.close(source)
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 lives as long
            for number, mode in enumerate("rww")
        )
        if self.request.on_terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.chdir(self.request.folder)
        os.environ.clear()
        os.environ.update(self.request.environment)
        sys.argv[1:] = self.request.arguments


def preload(settled: Path) -> None:
    """Imports what commands, an agent and a small verifier need; starts no thread by that."""
    import transformers.models.qwen3.modeling_qwen3  # noqa: F401, PLC0415

    from kakeya_fleet.engine.backends import (  # noqa: PLC0415
        import_archives,
        import_backend,
        import_dflash,
    )
    from kakeya_fleet.node import cli  # noqa: PLC0415
    from kakeya_fleet.node.app import agent  # noqa: F401, PLC0415
    from kakeya_fleet.node.roles.verifier import verifier_loading  # noqa: PLC0415
    from tests.warm.settled import SettledOnce  # noqa: PLC0415

    for module in pkgutil.walk_packages(cli.__path__, f"{cli.__name__}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in LATE_IN_COMMANDS:
        importlib.import_module(name)
    import_backend("torch")
    import_dflash("torch")
    import_archives()
    verifier_loading.settle = SettledOnce(settled)  # type: ignore[attr-defined]
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
            words, descriptors, _, _ = socket.recv_fds(channel, REQUEST_BYTES, STREAM_COUNT)
            if not words:
                return None
            copy = Copy(Request(**json.loads(words)), descriptors)
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


def end(status: object) -> Never:
    """Ends as an interpreter does, except that it does not take apart all that was imported.

    That is a third of a second of the processor's, more than most commands take.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status if isinstance(status, int) else 0)


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

    try:
        main()
    except SystemExit as ended:
        end(ended.code)


if __name__ == "__main__":
    run(int(sys.argv[1]), Path(sys.argv[2]))
