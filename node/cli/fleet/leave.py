"""`fleet leave`: a node drains and leaves the fleet."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import click

from kakeya_fleet.node.cli.asking.options import json_option, node_option
from kakeya_fleet.node.cli.shell.failure import CommandFailed, ExitCode

if TYPE_CHECKING:
    from kakeya import AsyncClient

EXAMPLE = """\b
Example:
  fleet leave
  fleet leave --node mini-1 --drain 30
"""

# What a node takes to say goodbye and to stop, besides draining.
GOODBYE_SECONDS = 15.0
LOOK_SECONDS = 0.02


@click.command("leave", epilog=EXAMPLE)
@click.option(
    "--drain",
    "drain_seconds",
    type=click.FloatRange(0, 3600, min_open=True),
    default=5.0,
    show_default=True,
    help="Seconds that running answers may take to end.",
)
@node_option
@json_option
def command(drain_seconds: float, node: str | None, *, as_json: bool) -> int:
    """Drain a node of this machine, make it leave the fleet, and wait until it is gone.

    Works from the node's own machine only. Where several nodes run, it asks which one.
    """
    from kakeya_fleet.node.cli.asking.asked_node import chosen_address
    from kakeya_fleet.node.cli.asking.connection import ask
    from kakeya_fleet.node.cli.terminal.output import note, say, write_json
    from kakeya_fleet.node.cli.terminal.quantities import seconds_text

    async def leave(client: AsyncClient) -> int:
        name = (await client.fleet.node()).card.name
        process_id = _process_at(client.address)
        started = time.monotonic()
        node_id = await client.fleet.leave(drain_seconds)
        if not as_json:
            note(f"{name} drains for up to {seconds_text(drain_seconds)} and leaves")
        await _gone(client, name, process_id, drain_seconds + GOODBYE_SECONDS)
        seconds = time.monotonic() - started
        if as_json:
            write_json({"event": "left", "node_id": node_id, "name": name, "seconds": seconds})
        else:
            say(f"{name} left the fleet after {seconds_text(seconds)}")
        return ExitCode.OK

    return ask(chosen_address(node, "drains and leaves", may_ask=not as_json), leave)


def _process_at(address: str) -> int:
    """Process id of this machine's agent at the address; 0 when none is announced."""
    from kakeya_fleet.node.cli.asking.local_agents import agents_here

    return next((agent.process_id for agent in agents_here() if agent.address == address), 0)


async def _gone(client: AsyncClient, name: str, process_id: int, timeout: float) -> None:
    """Waits until nobody answers at the node's address, and its process has ended."""
    try:
        async with asyncio.timeout(timeout):
            await _silent(client)
            if process_id:
                await asyncio.to_thread(_wait_for_process, process_id, timeout)
    except TimeoutError:
        raise CommandFailed(
            "STILL_THERE",
            f"{name} still answers after {timeout:g} s: end its process by hand.",
            metadata={"address": client.address},
        ) from None


def _wait_for_process(process_id: int, timeout: float) -> None:
    """Returns once the process has ended; one that its parent did not collect has, too."""
    import psutil

    deadline = time.monotonic() + timeout
    try:
        process = psutil.Process(process_id)
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(LOOK_SECONDS)
    except psutil.NoSuchProcess:
        return


async def _silent(client: AsyncClient) -> None:
    """Follows the node's watch until it ends, then asks until nobody answers."""
    from kakeya import KakeyaError, NodeUnreachable

    while True:
        try:
            async for _ in client.fleet.watch():
                pass
        except NodeUnreachable:
            return
        except KakeyaError:
            # A server that stops refuses calls in several ways before it is gone.
            await asyncio.sleep(LOOK_SECONDS)
