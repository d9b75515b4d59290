"""A started group: its processes, its connections, and the watch over its pulse.

One thread owns all of it from the first process to the last: on Linux a process
ends with the thread that started it. The verifier's thread sends commands; the
watch only listens to pulses, and looks for processes that ended. What it loses it
ends at once: a call that waits for a rank is told by the end of its connection.
"""

from __future__ import annotations

import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack, suppress

import structlog

from kakeya_fleet.engine.group.group_verifier import GroupVerifier
from kakeya_fleet.engine.group.messages import Message
from kakeya_fleet.node.errors import GroupNotStarted
from kakeya_fleet.node.roles.groups.group_members import Gathering, Member, has_pulse
from kakeya_fleet.node.roles.groups.group_settings import GroupSettings
from kakeya_fleet.node.roles.groups.launching import Processes
from kakeya_fleet.node.roles.groups.rank_proof import NONCE_BYTES
from kakeya_fleet.node.roles.groups.rank_socket import SocketChannel
from kakeya_fleet.node.roles.groups.rank_starting import joining, launches

_log = structlog.get_logger(__name__)


class RunningGroup:
    """One start of a group's ranks. Nothing of it is left once `closed` is set."""

    def __init__(self, settings: GroupSettings, on_lost: Callable[[str], None]) -> None:
        """Starts the processes. `on_lost(reason)` is called once, in another thread.

        It is called when a group that was ready is lost, not for one that was closed.
        """
        self._settings = settings
        self._on_lost = on_lost
        self._processes = Processes()
        self._leaving, self._wake = socket.socketpair()
        self.ready: Future[GroupVerifier] = Future()
        """The verifier, or why there is none: `NodeError`, `EngineError`."""
        # Whoever waits for it may be cancelled; it is not, and has a result in any case.
        self.ready.set_running_or_notify_cancel()
        self._thread = threading.Thread(
            target=self._run, name=f"group {settings.model}", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Ends the group, and waits until nothing is left of it. Any thread may call."""
        # Its buffer holds the first byte, and the thread may have closed the other end.
        with suppress(OSError):
            self._wake.send(b"\1")
        self._thread.join()
        self._wake.close()

    def _run(self) -> None:
        lost = ""
        try:
            with ExitStack() as held:
                held.callback(self._leaving.close)
                gathering, members = self._started(held)
                verifier = self._joined(gathering, members)
                self.ready.set_result(verifier)
                lost = self._watched(verifier, members)
                # Before the connections end: the first reason is the one that is told,
                # be it that of a call which was told before this watch.
                verifier.end(lost or "it was closed")
                lost = lost and verifier.lost
        except BaseException as error:  # noqa: BLE001 handed to whoever waits for the group
            # Nobody waits for ever, and no group that is not watched is served.
            if not self.ready.done():
                self.ready.set_exception(error)
            else:
                lost = lost or f"it could not be watched ({error!r})"
        if lost:
            _log.error("group_lost", model=self._settings.model, reason=lost)
            self._on_lost(lost)

    def _started(self, held: ExitStack) -> tuple[Gathering, list[Member]]:
        """The ranks' processes and connections, for as long as `held` is open."""
        settings = self._settings
        nonce = secrets.token_bytes(NONCE_BYTES)
        # Processes are ended behind their connections: a rank that lives ends by itself too.
        held.callback(self._processes.kill)
        gathering = Gathering(
            settings.hostfile.rank_count,
            nonce,
            self._fault,
            settings.limits,
            until=time.monotonic() + settings.limits.start_seconds,
        )
        held.callback(gathering.close)
        with _listener(settings) as listener:
            port: int = listener.getsockname()[1]
            for launch in launches(settings, held, nonce, port):
                try:
                    self._processes.start(launch)
                except OSError as error:
                    raise GroupNotStarted(
                        f"{launch.name} cannot be started ({error})",
                        "install what its command line names",
                    ) from error
            return gathering, gathering.members(listener)

    def _joined(self, gathering: Gathering, members: list[Member]) -> GroupVerifier:
        """The verifier of ranks that have loaded their parts."""
        settings, limits = self._settings, self._settings.limits
        ports = [member.ports for member in members]
        for rank, member in enumerate(members):
            gathering.tell(rank, member, Message(joining(settings, ports, rank)))
        gathering.wait_ready(members)
        channels = [
            SocketChannel(rank, member.commands, send_seconds=limits.answer_seconds)
            for rank, member in enumerate(members)
        ]
        # Nobody watches the pulses before this has its answers.
        return GroupVerifier.of_ranks(
            channels,
            answer_seconds=limits.answer_seconds,
            first_answer_seconds=limits.silence_seconds,
        )

    def _fault(self) -> str:
        """Why it makes no sense to wait any longer."""
        if _is_readable(self._leaving):
            return "the node left"
        return self._processes.fault()

    def _watched(self, verifier: GroupVerifier, members: list[Member]) -> str:
        """Why the group is lost, once it is; empty when it is closed."""
        heard = dict.fromkeys(range(len(members)), time.monotonic())
        with selectors.DefaultSelector() as selector:
            selector.register(self._leaving, selectors.EVENT_READ, None)
            for rank, member in enumerate(members):
                selector.register(member.pulse.connection, selectors.EVENT_READ, rank)
            while True:
                # All that lay ready then is read below, also when this process was frozen since.
                looked = time.monotonic()
                for key, _ in selector.select(self._settings.limits.look_seconds):
                    if key.data is None:
                        return ""
                    if not has_pulse(members[key.data]):
                        return self._processes.fault() or f"rank {key.data} died"
                    heard[key.data] = time.monotonic()
                fault = verifier.lost or self._processes.fault() or self._silence(heard, looked)
                if fault:
                    return fault

    def _silence(self, heard: dict[int, float], looked: float) -> str:
        most = self._settings.limits.silence_seconds
        for rank, last in heard.items():
            if looked - last > most:
                return f"rank {rank} was silent for {most:g} s"
        return ""


def _is_readable(connection: socket.socket) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        return bool(selector.select(0))


def _listener(settings: GroupSettings) -> socket.socket:
    """Where the ranks of this start connect to; closed as soon as all are there."""
    host = settings.leader_host if settings.is_local else settings.host
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, 0), family=family)
    except OSError as error:
        raise GroupNotStarted(
            f"the ranks cannot connect to {host} ({error})", "bind an address of this host"
        ) from error
