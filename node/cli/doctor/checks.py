"""All checks, side by side, each with a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import psutil

from kakeya import KakeyaError
from kakeya_fleet.fleet.diagnosis import (
    addresses,
    agents,
    applications,
    certificates,
    clocks,
    local_network,
    memory,
    multicast,
    open_files,
    path_mtu,
    reach,
    ring,
    storage,
    threads,
    versions,
)
from kakeya_fleet.fleet.diagnosis.finding import Finding, not_run
from kakeya_fleet.node.cli.doctor import (
    address_check,
    agent_check,
    application_check,
    certificate_check,
    clock_check,
    local_network_check,
    machine_checks,
    multicast_check,
    path_check,
    reach_checks,
    ring_check,
    version_check,
)
from kakeya_fleet.node.cli.doctor.site import Site
from kakeya_fleet.node.errors import NodeError

Check = Callable[[Site], Awaitable[list[Finding]]]

CHECK_SECONDS = 5.0
"""Longest time of one check. With 5 s before for a node that is frozen, a doctor takes 10 s."""

CHECKS: tuple[tuple[str, Check], ...] = (
    (agents.CHECK, agent_check.agent),
    (agents.SEEDS, agent_check.seeds),
    (reach.TO_PEERS, reach_checks.to_peers),
    (reach.FROM_PEERS, reach_checks.from_peers),
    (addresses.CHECK, address_check.check),
    (path_mtu.CHECK, path_check.check),
    (multicast.CHECK, multicast_check.check),
    (local_network.CHECK, local_network_check.check),
    (clocks.CHECK, clock_check.check),
    (certificates.CHECK, certificate_check.check),
    (applications.CHECK, application_check.check),
    (versions.CHECK, version_check.check),
    (ring.CHECK, ring_check.check),
    (threads.CHECK, machine_checks.threads),
    (memory.CHECK, machine_checks.memory),
    (storage.CHECK, machine_checks.disk),
    (open_files.CHECK, machine_checks.open_files),
)
"""In the order in which they are told. The name stands for a check that cannot be made."""


async def run_checks(site: Site) -> AsyncIterator[list[Finding]]:
    """The findings of each check, in order, as soon as those before are told."""
    running = [asyncio.ensure_future(bounded(name, check, site)) for name, check in CHECKS]
    try:
        for each in running:
            yield await each
    finally:
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def bounded(
    name: str, check: Check, site: Site, seconds: float = CHECK_SECONDS
) -> list[Finding]:
    """What a check found; that it could not be made, when the system or a node refuses."""
    try:
        async with asyncio.timeout(seconds):
            return await check(site)
    except TimeoutError:
        return [not_run(name, f"It did not end within {seconds:g} s.")]
    except KakeyaError as error:
        return [not_run(name, f"{error.problem.rstrip('.')}.")]
    except NodeError as error:
        # An address of a card that is none, from a node that keeps to no rules.
        return [not_run(name, f"{error.cause.rstrip('.')}.")]
    except psutil.AccessDenied:
        return [not_run(name, "The agent's process belongs to another user.")]
    except psutil.NoSuchProcess:
        return [not_run(name, "The agent's process has ended.")]
    except OSError as error:
        return [not_run(name, f"The system refused it ({error.strerror or error}).")]
