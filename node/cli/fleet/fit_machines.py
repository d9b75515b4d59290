"""`fleet fit --fleet`: which machines of the fleet could serve a model, and why not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from kakeya import Card, Liveness, NodeStatus
from kakeya_fleet.engine.contracts.model_on_paper import ModelOnPaper
from kakeya_fleet.node.cli.fleet.fit_answer import Answer, answer
from kakeya_fleet.node.cli.fleet.fit_options import Asked
from kakeya_fleet.node.cli.fleet.fit_text import fields
from kakeya_fleet.node.cli.fleet.host_memory import HostMemory
from kakeya_fleet.node.cli.terminal.quantities import bytes_text

METAL = "metal"
"""What a card calls Apple's accelerators."""
OnPaper = Callable[[str], ModelOnPaper]
"""A model as a back end, by name, would serve it."""


@dataclass(frozen=True, slots=True)
class MachineFit:
    """A machine, and what is answered of a model there; None where its memory is not known."""

    host: HostMemory
    backend: str
    answer: Answer | None

    @property
    def names(self) -> str:
        """Its nodes."""
        return ", ".join(name for _, name in self.host.nodes)


def machine_fits(
    on_paper: OnPaper, asked: Asked, nodes: Iterable[NodeStatus], hosts: Iterable[HostMemory]
) -> list[MachineFit]:
    """What is answered for each of `hosts`: in what is free there now, beside what it serves.

    With the archives of the others' nodes, and `asked.memory_bytes` in place of what is free if
    it is given. The weights that are asked for exist in every back end.
    """
    cards = {
        node.node_id: node.card
        for node in nodes
        if node.card is not None and node.liveness is Liveness.ALIVE
    }
    return [_fit(on_paper, asked, host, cards) for host in hosts]


def _fit(on_paper: OnPaper, asked: Asked, host: HostMemory, cards: dict[str, Card]) -> MachineFit:
    own = {node_id for node_id, _ in host.nodes}
    metal = any(cards[each].accelerator_kind == METAL for each in own if each in cards)
    backend = "mlx" if metal else "torch"
    memory_bytes = asked.memory_bytes or host.free_bytes
    if memory_bytes is None:
        return MachineFit(host, backend, None)
    elsewhere = sum(
        card.archive.free_bytes
        for node_id, card in cards.items()
        if node_id not in own and card.archive is not None
    )
    there = replace(asked, memory_bytes=memory_bytes)
    found = answer(on_paper(backend), there, archive_free_bytes=elsewhere)
    return MachineFit(host, backend, found)


def lines(model: str, found: Sequence[MachineFit]) -> list[str]:
    """A paragraph for each machine: the answer first."""
    told = []
    for each in found:
        if each.answer is None:
            told.append(f"{each.names}: it does not say how much memory is free.")
            continue
        free = bytes_text(each.answer.memory.memory_bytes)
        sentences = " ".join(each.answer.verdict.sentences)
        told.append(f"{each.names}, {free} free, {each.backend}: {sentences}")
    return told or [f"no live node tells of a machine that could serve {model}."]


def machine_fields(found: MachineFit) -> dict[str, object]:
    """One machine for programs."""
    told: dict[str, object] = {
        "nodes": [{"node_id": node_id, "name": name} for node_id, name in found.host.nodes],
        "backend": found.backend,
        "memory_total_bytes": found.host.total_bytes,
        "memory_free_bytes": found.host.free_bytes,
    }
    if found.answer is not None:
        told |= fields(found.answer)
    return told
