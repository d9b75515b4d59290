"""The clock of this machine against those of its peers, and whether NTP sets it."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from functools import partial

from kakeya import KakeyaError, NodeSample, NodeStatus, Timeouts
from kakeya_fleet.fleet.diagnosis import clocks
from kakeya_fleet.fleet.diagnosis.finding import Finding, counted, not_run
from kakeya_fleet.node.cli.asking.access import Callers
from kakeya_fleet.node.cli.doctor.in_threads import in_thread
from kakeya_fleet.node.cli.doctor.site import ANSWER_SECONDS, Site
from kakeya_fleet.node.cli.terminal.printable import on_one_line

SAMPLE_COUNT = 2
"""A node tells one a second. Of two, the one that came quicker says more."""
LISTENING_SECONDS = 4.0
COMMAND_SECONDS = 2.0


async def check(site: Site) -> list[Finding]:
    """Listens to each peer for two of its seconds, and asks the system."""
    found, own = await asyncio.gather(
        asyncio.gather(*map(partial(_offset, Callers(site.address)), site.peers)),
        _synchronisation(),
    )
    offsets = [each for each in found if each is not None]
    lines = clocks.offsets(offsets)
    if len(offsets) < len(found):
        mute = counted(len(found) - len(offsets), "peer")
        lines.append(not_run(clocks.CHECK, f"{mute.capitalize()} did not tell the time."))
    return [own, *lines]


async def _offset(callers: Callers, peer: NodeStatus) -> clocks.Offset | None:
    """The peer's clock against this one; None when it does not tell."""
    timeouts = Timeouts(connect=ANSWER_SECONDS, unary=ANSWER_SECONDS)
    told: list[tuple[float, float]] = []
    try:
        async with callers.client(peer.address, timeouts) as client:
            async with asyncio.timeout(LISTENING_SECONDS):
                asked = time.time()
                async with client.fleet.watch_node() as activities:
                    async for activity in activities:
                        if isinstance(activity, NodeSample):
                            told.append((activity.at_unix, time.time()))
                        if len(told) == SAMPLE_COUNT:
                            break
    except (KakeyaError, TimeoutError):
        pass
    if not told:
        return None
    return clocks.offset_of(peer.name, asked, told, peer.round_trip_seconds or 0.0)


async def _synchronisation() -> Finding:
    """What `timedatectl` says; elsewhere than under systemd nobody tells without privileges."""
    program = shutil.which("timedatectl")
    if program is None:
        return not_run(clocks.CHECK, "Whether NTP sets this clock: there is no timedatectl.")
    try:
        # asyncio's own way to start a process waits for it when it is cancelled.
        done = await in_thread(partial(_ask, program))
    except subprocess.TimeoutExpired:
        return not_run(clocks.CHECK, "Whether NTP sets this clock: timedatectl does not answer.")
    answer = done.stdout.strip()
    if answer in ("yes", "no"):
        return clocks.synchronisation(by_ntp=answer == "yes")
    told = on_one_line(done.stderr.strip().partition("\n")[0]).rstrip(".")
    cause = f"Whether NTP sets this clock: timedatectl does not tell ({told or 'no words'})."
    return not_run(clocks.CHECK, cause)


def _ask(program: str) -> subprocess.CompletedProcess[str]:
    """Raises subprocess.TimeoutExpired, OSError."""
    return subprocess.run(
        [program, "show", "--property=NTPSynchronized", "--value"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=COMMAND_SECONDS,
        check=False,
    )
