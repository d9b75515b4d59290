"""Rows 11 to 16: wrong clocks, full disks, damaged files, ports and identities used twice."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from kakeya import Liveness
from scripts.faults.lost_processes import differing, incarnation, started
from scripts.faults.machines import run
from scripts.faults.mounts import own_mounts
from scripts.faults.row import NotRunHere, Outcome, Row
from scripts.faults.scene import Scene, liveness_at, said, see_each_other, until
from scripts.faults.streams import alone
from scripts.support.agent_process import AgentProcess

HOUR = 3600.0
FAKETIME = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
DISK_BYTES = 1 << 20
STEP_SECONDS = 10.0
SETTLED_SECONDS = 5.0
OLD_SECONDS = 30.0


def at_clock(file: Path) -> Mapping[str, str]:
    """Variables of a process whose clock is off by what the file says. Raises `NotRunHere`."""
    if not FAKETIME:
        raise NotRunHere("libfaketime cannot be found (Debian's package faketime)")
    return {
        "LD_PRELOAD": str(FAKETIME[0]),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_CACHE_DURATION": "1",
        # A machine's monotonic clock goes on whatever its clock is set to.
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


async def wrong_clocks(scene: Scene) -> Outcome:
    """Row 11."""
    offsets = {"ahead": "+1h", "behind": "-1h", "stepping": "+0"}
    files = {name: scene.folder / name for name in offsets}
    for name, offset in offsets.items():
        files[name].write_text(f"{offset}\n")
    right = scene.start("right")
    peer = await asyncio.to_thread(lambda: right.address)
    wrong = {
        name: scene.start(name, peers=[peer], environment=at_clock(file))
        for name, file in files.items()
    }
    agents = [right, *wrong.values()]
    converged = await see_each_other(agents)
    client = await scene.client(right)
    now = time.time()
    cards = [node.card for node in await client.fleet.nodes() if node.card is not None]
    seen = {card.name: card.announced_at_unix for card in cards}
    skews = {name: round(seen[name] - now) for name in wrong}
    for turn in range(4):
        files["stepping"].write_text("+1h\n" if turn % 2 == 0 else "-1h\n")
        await asyncio.sleep(STEP_SECONDS / 4)
    # Who is behind starts again: its newer card wins, whatever it is stamped with.
    before = await incarnation(scene, right, wrong["behind"].node_id)
    wrong["behind"].kill()
    again = scene.start("behind", peers=[peer], environment=at_clock(files["behind"]))
    ordered = await until(lambda: _has_risen(scene, right, wrong["behind"].node_id, before), 60.0)
    equal = await see_each_other([right, wrong["ahead"], wrong["stepping"], again])
    deaths = len(said(right, "peer_dead", wrong["ahead"].node_id))
    deaths += len(said(right, "peer_dead", wrong["stepping"].node_id))
    named = await _tls_failure_names_the_clock(scene)
    held = ordered < 60.0 and equal < 60.0 and deaths == 0 and converged < 60.0
    off = abs(skews["ahead"] - HOUR) < 60 and abs(skews["behind"] + HOUR) < 60
    return Outcome(
        held and off and named["says_clock"] is True and named["says_skew"] is True,
        f"clocks {skews['ahead']:+d} s and {skews['behind']:+d} s off: one view, no false death, "
        f"a newer card of a node that is behind taken after {ordered:.1f} s; a member 2 h behind: "
        f"{named['told']}",
        {"skew_seconds": skews, "false_deaths": deaths, "tls": named},
    )


async def _has_risen(scene: Scene, at: AgentProcess, node_id: str, above: int) -> bool:
    return await incarnation(scene, at, node_id) > above


async def _tls_failure_names_the_clock(scene: Scene) -> dict[str, object]:
    """What a member says whose clock is 2 h behind that of the fleet's keeper."""
    from scripts.support.trusted_pair import trusted_pair  # noqa: PLC0415 loads cryptography

    folder = scene.folder / "trusted"
    folder.mkdir()
    trusted_pair(folder)
    file = scene.folder / "late"
    file.write_text("-2h\n")
    environment = {**os.environ, **at_clock(file), "KAKEYA_LINKS": "grpc"}
    command = [*AGENT, "join", "--json", "--no-mdns", "--name", "member"]
    command += ["--state", str(folder / "member"), "--bind", "127.0.0.1:0"]
    process = await asyncio.to_thread(
        subprocess.run,
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    told = (process.stdout + process.stderr).strip()
    return {
        "exit_code": process.returncode,
        "told": told[-400:],
        "says_clock": "clock" in told,
        "says_skew": "behind" in told or "ahead" in told,
    }


AGENT = [sys.executable, "-m", "kakeya_fleet.node.cli"]


async def disk_full(scene: Scene) -> Outcome:
    """Row 12."""
    own_mounts()
    state = scene.fleet.directory / "full"
    state.mkdir(parents=True)
    size = f"size={DISK_BYTES},mode=0700"
    run("mount", "-t", "tmpfs", "-o", size, "tmpfs", str(state))
    # Before the folder is removed; what is open in it yet goes with the last who has it open.
    scene.stack.callback(run, "umount", "--lazy", str(state))
    agent = scene.start("full", "verifier=tiny")
    client = await scene.client(agent)
    wanted = (await alone(client, 40)).token_ids
    fill(state / "ballast")
    newcomer = scene.start("newcomer", peers=[agent.address])
    await see_each_other([agent, newcomer])
    wrong = differing(wanted, (await alone(client, 40)).token_ids)
    node_id = agent.node_id
    agent.kill()
    refused = scene.start("full", "verifier=tiny")
    code = await asyncio.to_thread(refused.wait)
    told = refused.log + str(refused.events)
    (state / "ballast").unlink()
    back = scene.start("full", "verifier=tiny", peers=[newcomer.address])
    same = await asyncio.to_thread(lambda: back.node_id) == node_id
    return Outcome(
        wrong == 0 and code != 0 and "STATE_UNWRITABLE" in told and same,
        f"on a full disk it served on ({wrong} of 40 tokens differ) and met a newcomer; it refused "
        f"to start with exit code {code}: {error_of(refused)}",
        {"differing_token_count": wrong, "exit_code": code, "told": error_of(refused)},
    )


def fill(path: Path) -> None:
    """Writes until there is no room."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for size in (1 << 16, 1 << 12, 1):
            while True:
                try:
                    os.write(descriptor, bytes(size))
                except OSError:
                    break
    finally:
        os.close(descriptor)


def error_of(agent: AgentProcess) -> str:
    """How a start was refused, in its own words."""
    errors = [event["error"] for event in agent.events if "error" in event]
    if errors and isinstance(errors[-1], Mapping):
        return f"{errors[-1]['reason']}: {errors[-1]['message']}"
    return agent.log[-300:].strip()


async def corrupt_identity(scene: Scene) -> Outcome:
    """Row 13."""
    first = scene.start("node")
    await asyncio.to_thread(lambda: first.ready)
    await asyncio.to_thread(first.stop)
    key = first.options.state / "identity.key"
    content = key.read_bytes()
    damages = {
        "a bit": bytes([content[0] ^ 1]) + content[1:],
        "cut": content[: len(content) // 2],
        "empty": b"",
        "another node's digest": content[:-3] + b"00\n",
    }
    told, codes, kept = {}, {}, True
    for name, damaged in damages.items():
        key.write_bytes(damaged)
        agent = scene.start("node")
        codes[name] = await asyncio.to_thread(agent.wait)
        told[name] = error_of(agent)
        kept = kept and key.read_bytes() == damaged
    named = all("IDENTITY_CORRUPT" in words and "rm " in words for words in told.values())
    return Outcome(
        kept and named and all(codes.values()),
        f"{len(damages)} damages: exit codes {sorted(set(codes.values()))}, the file untouched; "
        f"{told['cut']}",
        {"exit_codes": codes, "told": told, "file_untouched": kept},
    )


async def truncated_state(scene: Scene) -> Outcome:
    """Row 14."""
    first, second, third = await started(scene, 3)
    peers = second.options.state / "peers"
    await until(peers.exists)
    second.kill()
    whole = peers.read_bytes()
    peers.write_bytes(whole[: len(whole) // 2])
    # A write that a power cut ended leaves this, and never half of the file itself.
    (second.options.state / ".peers.new").write_bytes(b"half")
    again = scene.start("node-1", peers=[first.address])
    rebuilt = await see_each_other([first, again, third])

    def is_whole() -> bool:
        digest, _, body = peers.read_bytes().partition(b"\n")
        return body.decode().split() == sorted([first.address, third.address]) and len(digest) == 64

    written = await until(is_whole)
    logged = "peers_file_damaged" in again.log
    return Outcome(
        rebuilt < 60.0 and written < 60.0 and logged,
        f"the damaged file was told in the log, the fleet known again {rebuilt:.1f} s after the "
        f"start, the file whole {written:.1f} s later",
        {"rebuilt_after_seconds": rebuilt, "written_after_seconds": written, "logged": logged},
    )


async def port_in_use(scene: Scene) -> Outcome:
    """Row 15."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        began = time.monotonic()
        agent = scene.start("late", bind=f"127.0.0.1:{port}")
        code = await asyncio.to_thread(agent.wait)
        seconds = time.monotonic() - began
    told = error_of(agent)
    return Outcome(
        seconds <= 2.0 and code != 0 and str(port) in told,
        # Which port was free is chance.
        f"exit code {code} after {seconds:.1f} s from the start of its process: "
        f"{told.replace(str(port), 'PORT')}",
        {"seconds": seconds, "exit_code": code, "told": told},
    )


async def cloned_identity(scene: Scene) -> Outcome:
    """Row 16."""
    scene.expected_errors.add("clone_found")
    first, other = await started(scene, 2)
    # Of two that have just begun either may yield.
    await asyncio.sleep(OLD_SECONDS)
    copy = scene.fleet.directory / "copy"
    shutil.copytree(first.options.state, copy)
    (copy / "lock").unlink(missing_ok=True)
    began = time.monotonic()
    # With the same name, as a copied folder has it, and a port of its own.
    (copy / "port").unlink(missing_ok=True)
    clone = scene.start("copy", peers=[other.address])
    ended = await until(lambda: not (clone.running and first.running))
    seconds = time.monotonic() - began
    await asyncio.sleep(SETTLED_SECONDS)
    one = clone.running is not first.running
    client = await scene.client(other)
    seen = await liveness_at(client, first.node_id)
    gone = first if clone.running else clone
    code = gone.wait() if not gone.running else None
    words = "the copy" if gone is clone else "the node that was there first"
    return Outcome(
        ended < 60.0 and one and gone is clone and seen is Liveness.ALIVE,
        f"{words} yielded {seconds:.1f} s after the copy's start, with exit code {code}; the other "
        f"one is {seen.value if seen else 'unknown'} to a third",
        {
            "yielded_after_seconds": seconds,
            "one_survives": one,
            "first_survives": gone is clone,
            "exit_code": code,
        },
    )


ROWS = (
    Row(
        11,
        "clock +1 h, -1 h, stepping",
        'order unaffected; a TLS failure says "clock" and the skew',
        wrong_clocks,
        300.0,
    ),
    Row(
        12,
        "disk full",
        "serves from memory; refuses to boot if the incarnation cannot be made durable",
        disk_full,
    ),
    Row(
        13,
        "corrupt identity file",
        "never silently regenerated; exit code and the repair command",
        corrupt_identity,
    ),
    Row(
        14, "truncated state file", "atomic rename + checksum; rebuilt from peers", truncated_state
    ),
    Row(15, "port in use", "exits within 2 s naming the port", port_in_use),
    Row(16, "cloned identity", "one survivor", cloned_identity, 300.0),
)
