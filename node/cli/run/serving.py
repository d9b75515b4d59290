"""From a model's name to a node that serves it: found, or chosen and told to load it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kakeya import AsyncClient, KakeyaError, Liveness, LoadedModel, NodeStatus, Role
from kakeya_fleet.engine.contracts.model_on_paper import ModelOnPaper
from kakeya_fleet.fleet.errors import NoPlacement
from kakeya_fleet.fleet.placement.first_drafter import first_drafter
from kakeya_fleet.fleet.placement.fit import MemoryOnPaper
from kakeya_fleet.fleet.placement.model_home import Home, model_home
from kakeya_fleet.node.cli.asking.connection import ask
from kakeya_fleet.node.cli.asking.failures import failure_of
from kakeya_fleet.node.cli.asking.kv_options import WindowChoice
from kakeya_fleet.node.cli.asking.node_names import only_node
from kakeya_fleet.node.cli.fleet.fit_machines import machine_fits
from kakeya_fleet.node.cli.fleet.fit_options import Asked
from kakeya_fleet.node.cli.fleet.load_view import LoadView, loaded_text
from kakeya_fleet.node.cli.fleet.loading import load
from kakeya_fleet.node.cli.fleet.looking import look
from kakeya_fleet.node.cli.fleet.papers import Papers, require_weights
from kakeya_fleet.node.cli.fleet.status_watch import Picture
from kakeya_fleet.node.cli.run.drafters import loadable_drafters, served_drafters
from kakeya_fleet.node.cli.run.homes import Reach, candidates
from kakeya_fleet.node.cli.shell.failure import CommandFailed
from kakeya_fleet.node.cli.terminal.output import note, write_json

WEIGHTS = "auto"
"""What weights are taken as on paper where nothing is said: as the checkpoint has them."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be served.

    `typed` is what a person called it, `name` what nodes are told, `model_id` what cards call it.
    `weights` are empty for those that the node was started with, `node` is the one that is to
    load it, empty for any; it `node_stays` unless it was started for this alone.
    """

    typed: str
    name: str
    model_id: str
    weights: str = ""
    node: str = ""
    node_stays: bool = True


def serving(address: str, wanted: Wanted, *, as_json: bool) -> str:
    """host:port of a node through which the model is had, which is loaded first where it is not.

    `address` is the node that is asked. Raises `CommandFailed`, and KeyboardInterrupt, on which
    a node goes on loading.
    """
    known = ask(address, _nodes)
    serving_nodes = _serving(known, wanted)
    if serving_nodes:
        # Any node leads to one that serves it; one that is named is gone to.
        return _address(serving_nodes[0].node_id, known) if wanted.node else address
    picture = ask(address, look)
    nodes = picture.snapshot().nodes
    home = _chosen(address, wanted, picture)
    _tell(wanted, home, as_json=as_json)
    there = _address(home.chosen.node_id, nodes)

    async def bring(client: AsyncClient) -> None:
        loaded = await _load(client, wanted, home.chosen.name, as_json=as_json)
        await _find_drafter(client, home.chosen.name, loaded, nodes, as_json=as_json)

    try:
        ask(there, bring)
    except KeyboardInterrupt:
        if wanted.node_stays:
            note(f"{home.chosen.name} goes on loading {wanted.typed}; run it again to wait for it")
        raise
    return there


async def _nodes(client: AsyncClient) -> tuple[NodeStatus, ...]:
    return await client.fleet.nodes()


def _serving(nodes: tuple[NodeStatus, ...], wanted: Wanted) -> list[NodeStatus]:
    """The living nodes that serve it, of the one that is named if one is."""
    return [
        node
        for node in _named(nodes, wanted)
        if node.liveness is Liveness.ALIVE
        and any(
            offer.role is Role.VERIFIER and offer.model_id == wanted.model_id
            for offer in node.models
        )
    ]


def _chosen(address: str, wanted: Wanted, picture: Picture) -> Home:
    """Where it is loaded. Raises `CommandFailed` where nowhere."""
    nodes = picture.snapshot().nodes
    reach = _reach(address, wanted, nodes)
    named = _named(nodes, wanted)
    able = [each for each in candidates(named, reach, {}) if not each.hindrance]
    # Headers take seconds to read, and where there is no choice the node itself asks for room.
    memories = _memories(wanted, picture) if len(able) > 1 else {}
    try:
        return model_home(wanted.typed, candidates(named, reach, memories))
    except NoPlacement as error:
        raise CommandFailed(
            error.reason,
            f"{error}. Start a node with `fleet join --serve verifier={wanted.typed}`.",
            metadata=error.metadata,
        ) from error


def _named(nodes: tuple[NodeStatus, ...], wanted: Wanted) -> tuple[NodeStatus, ...]:
    """The one that is to load it; all of them where none is named. Raises `CommandFailed`."""
    if not wanted.node:
        return nodes
    living = [each for each in nodes if each.liveness is Liveness.ALIVE]
    named = only_node(living, wanted.node)
    if named is None:
        known = ", ".join(sorted({each.name for each in living})) or "none"
        raise CommandFailed(
            "NODE_NOT_FOUND",
            f"no live node is called {wanted.node!r}; there are: {known}.",
            metadata={"node": wanted.node},
        )
    return (named,)


def _reach(address: str, wanted: Wanted, nodes: Iterable[NodeStatus]) -> Reach:
    from kakeya_fleet.engine.models.public_names import is_public_name
    from kakeya_fleet.node.cli.asking.local_agents import agents_here
    from kakeya_fleet.node.cli.asking.memberships import place_for, places_here

    place = place_for(address, places_here())
    is_keeper = False
    if place is not None and place.fleet_id:
        from kakeya_fleet.node.trust.membership_files import MembershipFiles

        is_keeper = MembershipFiles(place.folder).authority() is not None
    ids = {node.node_id for node in nodes}
    return Reach(
        near_ids=frozenset(ids & {agent.node_id for agent in agents_here()}),
        has_authority=place is not None and bool(place.fleet_id),
        is_keeper=is_keeper,
        means_the_same=is_public_name(wanted.name),
    )


def _memories(wanted: Wanted, picture: Picture) -> Mapping[str, MemoryOnPaper]:
    """The memory of each machine with the model, by node id; those that do not tell left out."""
    papers = Papers(wanted.name, None, "auto", "auto")
    asked = Asked(wanted.weights or WEIGHTS, None, None, WindowChoice())

    def paper(backend: str) -> ModelOnPaper:
        found = papers.of(backend)
        require_weights(found, asked.weights)
        return found

    fits = machine_fits(paper, asked, picture.snapshot().nodes, picture.hosts())
    return {
        node_id: found.answer.memory
        for found in fits
        if found.answer is not None
        for node_id, _ in found.host.nodes
    }


def _address(node_id: str, nodes: Iterable[NodeStatus]) -> str:
    """host:port of the node; of one of this machine, where its own programs call it."""
    from kakeya_fleet.node.cli.asking.local_agents import agents_here

    here = {agent.node_id: agent.address for agent in agents_here()}
    told = {node.node_id: node.address for node in nodes}
    return here.get(node_id) or told[node_id]


def _tell(wanted: Wanted, home: Home, *, as_json: bool) -> None:
    if as_json:
        write_json(
            {
                "event": "chosen",
                "model": wanted.typed,
                "node": home.chosen.name,
                "node_id": home.chosen.node_id,
                "reason": home.reason,
                "against": dict(home.against),
            }
        )
    else:
        note(f"{wanted.typed} is loaded on {home.sentence}")


async def _load(client: AsyncClient, wanted: Wanted, node: str, *, as_json: bool) -> LoadedModel:
    view = LoadView(wanted.typed, node, as_json=as_json)
    loaded = await load(client, view, wanted.name, weights=wanted.weights)
    if as_json:
        view.end(loaded)
    else:
        note(loaded_text(loaded, node))
    return loaded


async def _find_drafter(
    client: AsyncClient,
    node: str,
    loaded: LoadedModel,
    nodes: Iterable[NodeStatus],
    *,
    as_json: bool,
) -> None:
    """Sees to it that somebody drafts for the model; without it is slower, and answers alike."""
    offer = loaded.offer
    drafter = first_drafter(
        offer.weights_digest, offer.tokenizer_digest, served_drafters(nodes), loadable_drafters()
    )
    if drafter is None or drafter.node:
        return
    view = LoadView(drafter.name, node, as_json=as_json)
    try:
        found = await load(client, view, drafter.name, role=Role.PROPOSER)
    except KakeyaError as error:
        note(f"nobody drafts: {failure_of(error).message}")
        return
    if as_json:
        view.end(found)
    else:
        note(loaded_text(found, node))
