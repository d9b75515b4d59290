"""The process that tests' agents and commands are copies of: the libraries are imported,
nothing has run.

Listens on the socket at the descriptor that it is given. From each connection it reads JSON
(the fields of `Request`), a packet each, with three streams' descriptors, and forks: the child
is `fleet ARGUMENTS`, or another module. Tells a connection {"pid"}, its own first and then each
child's, and {"ended", "status"} for each of its children that did. Those that did not when it
closes are asked to end. Ends with the last connection.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
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
LATE = (
    # What commands load when they run,
    *("kakeya.text", "kakeya.chat_template", "rich.live"),
    # and agents once they serve.
    *("kakeya_fleet.node.http.application", "kakeya_fleet.node.roles.archive.served_archive"),
)
STREAM_COUNT = 3
CLONE_NEWNET = 0x40000000
HUB_OFFLINE = "HF_HUB_OFFLINE"
"""The variable that is a copy's own, although a library reads it while it is imported: at "0" the
copy may ask the models' hub, as no other may."""
TESTS_READER = "tests.warm.worker"
"""The module of the copy that reads tests, and is copied in its turn."""
LOCK = "lock"
"""The name of the file that is locked while somebody connects."""


@dataclass(frozen=True)
class Request:
    """What a child is to be; `on_terminal`: its standard input is its controlling terminal.

    `network`: the file of the network namespace that it runs in, empty for this process's own.
    `module`: what it runs as `python -m` does, empty for `fleet`.
    """

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    on_terminal: bool
    network: str = ""
    module: str = ""


@dataclass(frozen=True)
class Copy:
    """A child's request, and its standard streams' descriptors."""

    request: Request
    descriptors: list[int]

    def become(self) -> None:
        """Makes this process the one that was asked for."""
        os.setsid()
        signal.set_wakeup_fd(-1)
        # What a shell's background ignores is no copy's to ignore.
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGQUIT):
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
        if self.request.network:
            enter_network(self.request.network)
        os.chdir(self.request.folder)
        os.environ.clear()
        os.environ.update(self.request.environment)
        sys.argv[1:] = self.request.arguments
        from huggingface_hub import constants  # noqa: PLC0415

        # The hub's library read it when it was imported.
        constants.HF_HUB_OFFLINE = self.request.environment.get(HUB_OFFLINE, "1") != "0"


def enter_network(file: str) -> None:
    """Moves this process into a network namespace. Raises `OSError`."""
    library = ctypes.CDLL(None, use_errno=True)
    with open(file, "rb") as namespace:
        if library.setns(namespace.fileno(), CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{file} was not entered: {os.strerror(number)}")


def preload() -> None:
    """Imports what commands, an agent and a small verifier need; starts no thread by that."""
    import transformers.models.qwen3.modeling_qwen3  # noqa: F401, PLC0415

    from kakeya_fleet.engine.backends import (  # noqa: PLC0415
        import_archives,
        import_backend,
        import_dflash,
    )
    from kakeya_fleet.engine.backends.torch_backend.compiled.draft_structs import (  # noqa: PLC0415
        DRAFTER,
    )
    from kakeya_fleet.engine.backends.torch_backend.compiled.library import (  # noqa: PLC0415
        library,
        library_of,
    )
    from kakeya_fleet.node import cli  # noqa: PLC0415
    from kakeya_fleet.node.app import agent  # noqa: F401, PLC0415

    for module in pkgutil.walk_packages(cli.__path__, f"{cli.__name__}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in LATE:
        importlib.import_module(name)
    import_backend("torch")
    import_dflash("torch")
    import_archives()
    # Made once, before many need it at a time; whether it is used is each copy's to find out.
    library_of(DRAFTER)
    library.cache_clear()
    threads = os.listdir("/proc/self/task") if os.path.isdir("/proc/self/task") else ["one"]
    if len(threads) != 1 or threading.active_count() != 1:
        raise RuntimeError(f"a process of {len(threads)} threads cannot be copied")
    # Copies share the pages of what is never looked through.
    gc.freeze()


class Connections:
    """Whom this process makes copies for."""

    def __init__(self, listening: socket.socket, lock: Path) -> None:
        """`lock` is held by whoever connects, while he does."""
        self._listening = listening
        self._lock = lock
        self._woken, self._wake = socket.socketpair()
        for end in (self._woken, self._wake):
            end.setblocking(False)
        self._channels: set[socket.socket] = set()
        # By a child's process id, whoever asked for it.
        self._asked: dict[int, socket.socket] = {}
        # Who is not only theirs who asked first: the process that has read the tests.
        self._outlive: set[int] = set()

    def serve(self) -> Copy | None:
        """Answers until all who came have gone: None. In a child at once: what it is to be."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        with selectors.DefaultSelector() as waiting:
            for known in (self._listening, self._woken):
                waiting.register(known, selectors.EVENT_READ)
            while True:
                for key, _ in waiting.select():
                    if key.fileobj is self._woken:
                        self._woken.recv(4096)
                        self._tell_ended()
                    elif key.fileobj is self._listening:
                        waiting.register(self._accept(), selectors.EVENT_READ)
                    elif isinstance(channel := key.fileobj, socket.socket):
                        copy = self._read(channel)
                        if copy is not None:
                            return copy
                        if channel not in self._channels:
                            waiting.unregister(channel)
                            channel.close()
                if not self._channels and self._nobody_comes():
                    return None

    def _nobody_comes(self) -> bool:
        """Closes the door, unless somebody stands in it."""
        with self._lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if select.select([self._listening], [], [], 0)[0]:
                return False
            self._listening.close()
            return True

    def _accept(self) -> socket.socket:
        channel, _ = self._listening.accept()
        self._channels.add(channel)
        _tell(channel, {"pid": os.getpid()})
        return channel

    def _read(self, channel: socket.socket) -> Copy | None:
        """In a child what it is to be; None in this process."""
        words, descriptors, _, _ = socket.recv_fds(channel, REQUEST_BYTES, STREAM_COUNT)
        if not words:
            self._channels.remove(channel)
            self._end_copies_of(channel)
            return None
        copy = Copy(Request(**json.loads(words)), descriptors)
        child = os.fork()
        if child == 0:
            for each in (self._listening, self._woken, self._wake, *self._channels):
                each.close()
            return copy
        if copy.request.module == TESTS_READER:
            self._outlive.add(child)
        for descriptor in descriptors:
            os.close(descriptor)
        self._asked[child] = channel
        _tell(channel, {"pid": child})
        return None

    def _end_copies_of(self, channel: socket.socket) -> None:
        """Asks those to end whose user has gone, perhaps in the midst of a test."""
        for child, asked_by in self._asked.items():
            if asked_by is channel and child not in self._outlive:
                os.kill(child, signal.SIGTERM)

    def _tell_ended(self) -> None:
        while True:
            try:
                child, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if child == 0:
                return
            channel = self._asked.pop(child)
            if channel in self._channels:
                _tell(channel, {"ended": child, "status": os.waitstatus_to_exitcode(status)})


def _tell(channel: socket.socket, words: dict[str, int]) -> None:
    # Whoever has gone is not told: its end is read next.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
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


def run(descriptor: int, folder: Path, exactness: Path) -> None:
    """Serves on the listening socket; the copies run `fleet`, or what they are asked to.

    `exactness`: the folder of what loads found out about models.
    """
    preload()
    copy = Connections(socket.socket(fileno=descriptor), folder / LOCK).serve()
    if copy is None:
        return
    copy.become()
    from kakeya_fleet.engine.verifiers import kept_exactness  # noqa: PLC0415
    from kakeya_fleet.node.cli.main import main  # noqa: PLC0415

    # Tests have their own rules of what is kept where.
    if copy.request.module != TESTS_READER:
        kept_exactness.records_folder = lambda: exactness
    try:
        if copy.request.module:
            runpy.run_module(copy.request.module, run_name="__main__", alter_sys=True)
            end(0)
        main()
    except SystemExit as ended:
        end(ended.code)


if __name__ == "__main__":
    run(int(sys.argv[1]), *map(Path, sys.argv[2:]))
