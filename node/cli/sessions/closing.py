"""Sessions that are ended by their ids, each with what became of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from kakeya import AsyncClient, KakeyaError, SessionNotFound
from kakeya_fleet.node.cli.asking.access import Callers
from kakeya_fleet.node.cli.asking.failures import failure_of
from kakeya_fleet.node.cli.sessions.listing import AT_ONCE, Listed


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one; `reason` is empty for one that was closed, as is `problem`."""

    session: Listed
    reason: str = ""
    problem: str = ""


async def close_all(via: str, sessions: Sequence[Listed]) -> list[Outcome]:
    """Ends them, several at once; `via` is the node, host:port, that told of the others."""
    callers, places = Callers(via), asyncio.Semaphore(AT_ONCE)
    async with AsyncExitStack() as stack:
        clients = {
            address: await stack.enter_async_context(callers.client(address))
            for address in {each.address for each in sessions}
        }
        return await asyncio.gather(*(_close(clients, places, each) for each in sessions))


async def _close(
    clients: Mapping[str, AsyncClient], places: asyncio.Semaphore, session: Listed
) -> Outcome:
    async with places:
        try:
            await clients[session.address].close_session(session.info.session_id)
        except SessionNotFound as error:
            # A node tells its owner of everybody's, and lets nobody end another's.
            return Outcome(session, error.reason, "it has ended, or is another caller's")
        except KakeyaError as error:
            failure = failure_of(error)
            return Outcome(session, failure.reason, failure.message.rstrip("."))
        return Outcome(session)
