"""The sessions of a fleet's nodes, as far as each tells whoever asks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from kakeya import AsyncClient, KakeyaError, Liveness, NodeStatus, Role, SessionInfo, Timeouts
from kakeya_fleet.node.cli.asking.access import Callers
from kakeya_fleet.node.cli.asking.failures import failure_of
from kakeya_fleet.node.cli.asking.node_loads import nearest_living
from kakeya_fleet.node.cli.asking.told_values import sanitized

ANSWER_SECONDS = 5.0
"""That a node has for a page of its sessions."""
AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Listed:
    """A session, and where it is: `address` is host:port."""

    node: str
    address: str
    info: SessionInfo


@dataclass(frozen=True, slots=True)
class Silent:
    """A node that did not tell, and why."""

    node: str
    why: str


@dataclass(frozen=True, slots=True)
class Listing:
    """By node, of each the oldest first."""

    sessions: tuple[Listed, ...]
    silent: tuple[Silent, ...]


async def of_node(client: AsyncClient) -> Listing:
    """Those of the client's node. Raises `KakeyaError`."""
    name = sanitized(await client.fleet.node()).card.name
    return Listing(tuple(await _listed(client, name)), ())


async def of_fleet(client: AsyncClient) -> Listing:
    """Those of every live node that serves a verifier; who does not answer is told.

    Raises `KakeyaError` where the client's node itself does not.
    """
    verifiers = [
        node
        for node in sanitized(await client.fleet.snapshot()).nodes
        if node.liveness is Liveness.ALIVE
        and any(offer.role is Role.VERIFIER for offer in node.models)
    ]
    callers, places = Callers(client.address), asyncio.Semaphore(AT_ONCE)
    asked = nearest_living(verifiers)
    answers = await asyncio.gather(*(_ask(callers, places, node) for node in asked))
    told = sorted(zip(asked, answers, strict=True), key=lambda pair: pair[0].name)
    return Listing(
        tuple(each for _, found in told if not isinstance(found, str) for each in found),
        tuple(Silent(node.name, found) for node, found in told if isinstance(found, str)),
    )


async def _ask(
    callers: Callers, places: asyncio.Semaphore, node: NodeStatus
) -> Sequence[Listed] | str:
    """Its sessions, or why it does not tell them."""
    async with places, callers.client(node.address, Timeouts(unary=ANSWER_SECONDS)) as client:
        try:
            return await _listed(client, node.name)
        except KakeyaError as error:
            return failure_of(error).message


async def _listed(client: AsyncClient, name: str) -> list[Listed]:
    return [Listed(name, client.address, sanitized(info)) async for info in client.sessions()]
