"""Each check by itself: deadlines, faults, threads, and the facts that it collects."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest
from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from kakeya import NodeUnreachable
from kakeya_fleet.fleet.diagnosis.finding import Finding, Level, ok
from kakeya_fleet.node.cli.asking.local_agents import LocalAgent
from kakeya_fleet.node.cli.doctor import machine_checks
from kakeya_fleet.node.cli.doctor.checks import CHECKS, bounded
from kakeya_fleet.node.cli.doctor.in_threads import in_thread
from kakeya_fleet.node.cli.doctor.multicast_check import hear
from kakeya_fleet.node.cli.doctor.report import lines_of, summary
from kakeya_fleet.node.cli.doctor.ring_check import links_setting
from kakeya_fleet.node.cli.doctor.site import Site, called_agent, look_around
from kakeya_fleet.node.errors import BadConfig
from kakeya_fleet.node.membership.multicast import SERVICE
from kakeya_fleet.node.membership.network import multicast_fault


async def never(_site: Site) -> list[Finding]:
    await asyncio.Event().wait()
    return []


def failing(error: Exception) -> Callable[[Site], Awaitable[list[Finding]]]:
    async def check(_site: Site) -> list[Finding]:
        raise error

    return check


@pytest.mark.parametrize(
    ("check", "says"),
    [
        (never, "did not end within"),
        (failing(NodeUnreachable("nobody answers at x")), "nobody answers at x."),
        (failing(PermissionError(1, "Operation not permitted")), "Operation not permitted"),
        (failing(BadConfig("address = 'x' is no address", "write HOST:PORT")), "is no address"),
        (failing(psutil.AccessDenied(1)), "another user"),
        (failing(psutil.NoSuchProcess(1)), "has ended"),
    ],
)
async def test_a_check_that_cannot_be_made_says_why(
    check: Callable[[Site], Awaitable[list[Finding]]], says: str
) -> None:
    (found,) = await bounded("x", check, Site(), seconds=0.01)
    assert (found.check, found.level) == ("x", Level.NOT_RUN)
    assert says in found.cause


async def test_a_defect_of_a_check_is_not_taken_for_a_fact_of_the_machine() -> None:
    with pytest.raises(ZeroDivisionError):
        await bounded("x", failing(ZeroDivisionError()), Site())


async def test_work_in_a_thread_gives_its_result_its_error_and_is_not_waited_for() -> None:
    assert await in_thread(lambda: 7) == 7
    with pytest.raises(OSError, match="gone"):
        await in_thread(lambda: (_ for _ in ()).throw(OSError("gone")))
    held = threading.Event()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await in_thread(held.wait)
    held.set()


async def test_without_an_agent_checks_of_the_fleet_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("KAKEYA_STATE", raising=False)
    assert called_agent(None) == ""
    site = await look_around("")
    local = ("multicast", "local_network", "clock", "threads", "memory", "disk", "open_files")
    for name, check in CHECKS:
        if name in ("agent", *local):
            continue
        (found,) = await bounded(name, check, site)
        assert (found.level, found.cause) == (Level.NOT_RUN, "No agent runs on this machine.")
    (agent,) = await dict(CHECKS)["agent"](site)
    assert agent.level is Level.WARNING


async def test_a_process_that_ended_leaves_its_checks_undone() -> None:
    gone = Site(agent=LocalAgent("x", "127.0.0.1:1", 2**22 + 1))
    for name, check in (("threads", machine_checks.threads), ("memory", machine_checks.memory)):
        (found,) = await bounded(name, check, gone)
        assert "has ended" in found.cause


async def test_facts_are_those_of_the_agents_process() -> None:
    site = Site(agent=LocalAgent("me", "127.0.0.1:1", os.getpid()))
    (files,) = await machine_checks.open_files(site)
    assert files.what.startswith("me has ")


async def test_multicast_is_heard_on_loopback_and_nodes_of_other_machines_alone_count() -> None:
    fault = multicast_fault("127.0.0.1")
    if fault is not None:
        pytest.skip(fault)
    async with AsyncZeroconf(interfaces=["127.0.0.1"]) as speaker:
        for name, address in (("far", "198.51.100.7"), ("near", "127.0.0.1")):
            service = f"{name}.{SERVICE}"
            info = AsyncServiceInfo(
                SERVICE, service, 7600, parsed_addresses=[address], server=f"{name}.local."
            )
            await speaker.async_register_service(info, cooperating_responders=True)
        found = await hear("127.0.0.1", "lo")
    assert (found.fault, found.is_heard) == ("", True)
    assert f"far.{SERVICE}" in found.others
    assert f"near.{SERVICE}" not in found.others


@pytest.mark.parametrize(
    ("words", "environment", "setting"),
    [
        (["fleet", "join", "--links", "grpc"], {"KAKEYA_LINKS": "ring"}, "grpc"),
        (["fleet", "join", "--links=local"], {}, "local"),
        (["fleet", "join"], {"KAKEYA_LINKS": "ring"}, "ring"),
        (["fleet", "join"], {}, ""),
        (["fleet", "--links"], {}, ""),
    ],
)
def test_the_links_that_an_agent_was_started_with(
    words: list[str], environment: dict[str, str], setting: str
) -> None:
    assert links_setting(words, environment) == setting


def test_a_finding_is_a_line_with_cause_and_mend_below() -> None:
    finding = Finding("path_mtu", Level.WARNING, "it is narrow", "A tunnel.", "Widen it.")
    head, cause, mend = lines_of(finding)
    assert head.split() == ["warning", "path", "mtu", "it", "is", "narrow"]
    assert (cause.strip(), mend.strip()) == ("cause: A tunnel.", "mend:  Widen it.")
    assert cause.index("cause") == head.index("it")
    undone = Finding("ring", Level.NOT_RUN, "not run here", "It is too early.")
    assert lines_of(undone) == ["not run here  ring           It is too early."]
    every = [finding, finding, undone, ok("x", "well")]
    assert summary(every) == "2 warnings, 1 ok, 1 not run here"
