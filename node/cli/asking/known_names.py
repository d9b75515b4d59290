"""Names that a shell completes: nodes, models and sessions that are known here and now.

Addresses come from the agents' own files. The rest is asked of a node, which has 0.3
seconds: a shell that waits is worse than one that completes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from kakeya import AsyncClient, NodeStatus

ASKING_SECONDS = 0.3

Names = dict[str, str]
"""What can be typed, each with a word of help."""

NAMED_MODELS: Names = {
    "tiny": "the shipped model",
    "smollm2": "a published model of 135 million parameters",
}


def addresses() -> Names:
    """Addresses of the agents on this machine, with their names."""
    from kakeya_fleet.node.cli.asking.local_agents import agents_here

    return {agent.address: agent.name for agent in agents_here()}


def items(names: Names, incomplete: str) -> list[CompletionItem[str]]:
    """Those that begin as typed."""
    from click.shell_completion import CompletionItem

    return [
        CompletionItem(name, help=help_text)
        for name, help_text in names.items()
        if name.startswith(incomplete)
    ]


def complete_nodes(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Names of nodes; of a list that commas part, the last."""
    before, comma, _ = incomplete.rpartition(",")
    names = _ask(context, _nodes)
    return items({f"{before}{comma}{name}": text for name, text in names.items()}, incomplete)


def complete_verifiers(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Models that live nodes serve as verifiers."""
    return items(_ask(context, _verifiers), incomplete)


def complete_proposers(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Proposers, MODEL and MODEL@NODE."""
    return items(_ask(context, _proposers), incomplete)


def complete_speculation(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """`auto`, `off` and proposers."""
    fixed = {"auto": "the planner's choice", "off": "nobody drafts"}
    return [*items(fixed, incomplete), *complete_proposers(context, parameter, incomplete)]


def complete_served(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Models that the asked node serves."""
    return items(_ask(context, _served), incomplete)


def complete_on_others(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Models with files that live nodes serve."""
    return items(_ask(context, _with_files), incomplete)


def complete_pulled(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Models that were pulled to the asked node."""
    return items(_ask(context, _pulled), incomplete)


def complete_sessions(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Ids of the asked node's sessions."""
    return items(_ask(context, _sessions), incomplete)


def complete_roles(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """What `fleet join --serve` takes."""
    roles = {
        "verifier=tiny": "the shipped model",
        "verifier=smollm2": "a published model of 135 million parameters",
        "verifier=": "a hub id, a folder or a .gguf",
        "proposer=ngram": "drafts without a model",
        "proposer=tiny-dflash": "the shipped drafter",
        "proposer=": "a hub id, a folder or a .gguf",
        "archive=": "memory for others, such as 512MiB",
    }
    return items(roles, incomplete)


def complete_models(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Models that have a name of their own, else files and folders."""
    return _or_files(NAMED_MODELS, incomplete)


def complete_runnable(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Models that are served, then those that have a name of their own, else files and folders."""
    return _or_files({**NAMED_MODELS, **_ask(context, _verifiers)}, incomplete)


def _or_files(names: Names, incomplete: str) -> list[CompletionItem[str]]:
    from click.shell_completion import CompletionItem

    return items(names, incomplete) or [CompletionItem(incomplete, type="file")]


def _ask(context: click.Context, question: Callable[[AsyncClient], Awaitable[Names]]) -> Names:
    """The node's answer; nothing without a node, and when it takes too long."""
    here = addresses()
    given = str(context.params.get("node") or os.environ.get("KAKEYA_NODE") or "")
    # A name of this machine; what another one is called is not worth the time.
    by_name = {name: address for address, name in here.items()}
    address = by_name.get(given, given if ":" in given else "") or next(iter(here), "")
    if not address:
        return {}
    import asyncio

    from kakeya import KakeyaError
    from kakeya_fleet.node.cli.asking.access import client_of
    from kakeya_fleet.node.cli.shell.failure import CommandFailed

    async def ask() -> Names:
        async with client_of(address) as client, asyncio.timeout(ASKING_SECONDS):
            return await question(client)

    try:
        return asyncio.run(ask())
    except (KakeyaError, TimeoutError, CommandFailed):
        return {}


async def _living(client: AsyncClient) -> list[NodeStatus]:
    from kakeya import Liveness

    return [node for node in await client.fleet.nodes() if node.liveness is Liveness.ALIVE]


async def _nodes(client: AsyncClient) -> Names:
    return {node.name: node.address for node in await _living(client)}


async def _verifiers(client: AsyncClient) -> Names:
    from kakeya import Role

    return {
        offer.model_id: f"on {node.name}"
        for node in await _living(client)
        for offer in node.models
        if offer.role is Role.VERIFIER
    }


async def _proposers(client: AsyncClient) -> Names:
    from kakeya import Role

    found = {
        (offer.model_id, node.name): offer.kind.value
        for node in await _living(client)
        for offer in node.models
        if offer.role is Role.PROPOSER
    }
    names = {model: "on any node" for model, _ in found}
    return names | {f"{model}@{name}": kind for (model, name), kind in found.items()}


async def _served(client: AsyncClient) -> Names:
    offers = (await client.fleet.node()).card.models
    return {offer.model_id: offer.role.value for offer in offers}


async def _with_files(client: AsyncClient) -> Names:
    return {
        offer.model_id: f"on {node.name}"
        for node in await _living(client)
        for offer in node.models
        if offer.weights_digest
    }


async def _pulled(client: AsyncClient) -> Names:
    from kakeya_fleet.node.cli.terminal.quantities import bytes_text

    models = await client.fleet.stored_models()
    return {model.model_id: bytes_text(model.byte_count) for model in models}


async def _sessions(client: AsyncClient) -> Names:
    return {
        session.session_id: f"{session.client_label or 'no label'}, {session.model_id}"
        async for session in client.sessions()
    }
