"""Rows 25 and 26: certificates that end, codes that are wrong."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence

import grpc.aio

from kakeya.v1 import trust_pb2, trust_pb2_grpc
from kakeya_fleet.fleet.trust.join_code import SECRET_BYTES, long_code
from kakeya_fleet.node.trust.certificates import MEMBER_LIFE
from scripts.faults.clocks_and_files import error_of
from scripts.faults.row import Outcome, Row
from scripts.faults.scene import NODE, Scene, until
from scripts.support.agent_process import AgentProcess
from scripts.support.trusted_pair import trusted_pair

FLEET = [sys.executable, "-m", "kakeya_fleet.node.cli"]
NOT_ON = ("--no-mdns", "--json", "--bind", "127.0.0.1:0", "--serve", "proposer=ngram")
WRONG_CODES = 6
DAY = 86_400.0
OF_ANY_FLEET = {"behind": lambda words: without(words, "--fleet")}
"""Options of an agent whose fleet its membership names."""


async def expired(scene: Scene) -> Outcome:
    """Row 25."""
    life = MEMBER_LIFE.total_seconds()
    half = await _renewed(scene, 0.6 * life)
    warned = await _warned(scene, life - DAY / 2)
    ended = await _member(scene, "ended", life + DAY)
    code = await asyncio.to_thread(ended.wait)
    told = error_of(ended)
    return Outcome(
        half < 60.0 and bool(warned) and code != 0 and "BAD_CERTIFICATE" in told,
        f"at 0.6 of its life renewed {half:.1f} s after the start; half a day before its end "
        f'without a keeper: "{warned or "no warning"}"; a day after it: {told}',
        {"renewed_after_seconds": half, "warned": warned, "exit_code": code, "told": told},
    )


async def _member(scene: Scene, name: str, age_seconds: float) -> AgentProcess:
    """A member whose certificate is so old, started without its keeper."""
    folder = scene.fleet.directory / name
    trusted_pair(folder, age_seconds=age_seconds)
    return scene.start(f"{name}-member", state=folder / "member", **OF_ANY_FLEET)


async def _renewed(scene: Scene, age_seconds: float) -> float:
    folder = scene.fleet.directory / "half"
    trusted_pair(folder, age_seconds=age_seconds)
    keeper = scene.start("half-keeper", state=folder / "keeper", **OF_ANY_FLEET)
    peer = await asyncio.to_thread(lambda: keeper.address)
    began = time.monotonic()
    member = scene.start("half-member", peers=[peer], state=folder / "member", **OF_ANY_FLEET)
    address = str((await asyncio.to_thread(lambda: member.ready))["local_address"])

    async def is_new() -> bool:
        async with grpc.aio.insecure_channel(address) as channel:
            stub = trust_pb2_grpc.TrustServiceStub(channel)
            told: trust_pb2.GetTrustResponse = await stub.GetTrust(
                trust_pb2.GetTrustRequest(), timeout=10
            )
        left = told.certificate_ends_unix - time.time()
        return left > MEMBER_LIFE.total_seconds() - DAY

    found = await until(is_new)
    return found if found == float("inf") else time.monotonic() - began


async def _warned(scene: Scene, age_seconds: float) -> str:
    member = await _member(scene, "late", age_seconds)
    words = "certificate_ends"
    await asyncio.to_thread(lambda: member.ready)
    await until(lambda: words in member.log or "certificate" in member.log, 30.0)
    for line in member.log.splitlines():
        if "certificate" in line and line.startswith("{"):
            event = json.loads(line)
            return ", ".join(
                f"{key} {value}" for key, value in event.items() if key not in ("timestamp", "node")
            )
    return ""


async def wrong_codes(scene: Scene) -> Outcome:
    """Row 26."""
    # It would read what a user's own fleet is, and write there.
    environment = {**os.environ, **NODE}
    home = scene.folder / "members"

    def fleet(*words: str, machine: str = "keeper") -> subprocess.CompletedProcess[str]:
        own = {"XDG_STATE_HOME": str(home / machine), "XDG_CONFIG_HOME": str(home / "config")}
        return subprocess.run(
            [*FLEET, *words],
            env=environment | own,
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )

    def reason(done: subprocess.CompletedProcess[str]) -> str:
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        errors = [line["error"]["reason"] for line in lines if "error" in line]
        return errors[-1] if errors else f"exit code {done.returncode}"

    made = await asyncio.to_thread(fleet, "init", "home", "--name", "keeper", "--json")
    if made.returncode:
        raise AssertionError(f"no fleet was made: {made.stdout}{made.stderr}")
    keeper = scene.start(
        "keeper",
        environment={"XDG_STATE_HOME": str(home / "keeper")},
        behind=lambda words: without(words, "--state", "--fleet"),
    )
    await asyncio.to_thread(lambda: keeper.ready)
    invited = json.loads((await asyncio.to_thread(fleet, "invite", "--json")).stdout)
    right = str(invited["long_codes"][0])
    address = right.partition("#")[0]
    nameplate = str(invited["short_code"])[:3]
    told = []
    for number in range(WRONG_CODES):
        guess = long_code(address, nameplate, bytes([number]) * SECRET_BYTES)
        done = await asyncio.to_thread(
            fleet, "join", guess, "--name", f"guest-{number}", *NOT_ON, machine=f"guest-{number}"
        )
        told.append(reason(done))
    done = await asyncio.to_thread(fleet, "join", right, "--name", "late", *NOT_ON, machine="late")
    locked = reason(done)
    invited = json.loads((await asyncio.to_thread(fleet, "invite", "--json")).stdout)
    again = str(invited["long_codes"][0])
    member = scene.start(
        "member",
        environment={"XDG_STATE_HOME": str(home / "member")},
        behind=lambda words: [*without(words, "--state", "--fleet"), again],
    )
    let_in = await asyncio.to_thread(lambda: member.wait_for("let_in", seconds=60.0))
    done = await asyncio.to_thread(
        fleet, "join", again, "--name", "reuser", *NOT_ON, machine="reuser"
    )
    reused = reason(done)
    closed = {"INVITATION_CLOSED", "NO_INVITATION_FOUND"}
    tries = next((n for n, each in enumerate(told) if each in closed), len(told))
    return Outcome(
        tries <= 5 and locked in closed and reused in closed and bool(let_in),
        f"wrong codes: {tries} tries, then the right one is refused too ({locked}); a code used "
        f"again: {reused}",
        {"wrong": told, "right_after_them": locked, "reused": reused},
    )


def without(words: Sequence[str], *options: str) -> list[str]:
    """A command without these options and their values."""
    left = list(words)
    for option in options:
        place = left.index(option)
        del left[place : place + 2]
    return left


ROWS = (
    Row(
        25,
        "certificate expired",
        "warned ahead, renewed; a named error, not a bare UNAVAILABLE",
        expired,
        300.0,
    ),
    Row(
        26,
        "wrong or reused join code",
        "refused, sixth try locked out",
        wrong_codes,
        400.0,
    ),
)
