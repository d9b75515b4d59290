"""Which machines of a fleet could serve a model: by memory, back end and others' archives."""

from __future__ import annotations

from dataclasses import replace

from kakeya import ArchiveOffer, Liveness, NodeStatus
from kakeya_fleet.engine.contracts.model_on_paper import ModelOnPaper
from kakeya_fleet.engine.contracts.model_shape import ModelShape
from kakeya_fleet.node.cli.asking.kv_options import WindowChoice
from kakeya_fleet.node.cli.fleet.fit_machines import MachineFit, lines, machine_fits
from kakeya_fleet.node.cli.fleet.fit_options import Asked
from kakeya_fleet.node.cli.fleet.host_memory import hosts_of
from tests.support.fleet_scene import GIB, status

LLAMA = ModelShape(layers=32, kv_heads=32, head_dim=128, parameters=6_738_415_616)
ASKED = Asked("auto", None, 100_000, WindowChoice())


def on_paper(backend: str) -> ModelOnPaper:
    """As MLX it takes half a GiB more than as torch, so that it is seen which one was asked."""
    paper = LLAMA.on_paper()
    more = GIB // 2 if backend == "mlx" else 0
    loading = {name: count + more for name, count in paper.loading_bytes.items()}
    return replace(paper, loading_bytes=loading)


def node(
    name: str, *, kind: str = "cpu", archive: int = 0, liveness: Liveness = Liveness.ALIVE
) -> NodeStatus:
    found = status(name, liveness=liveness)
    assert found.card is not None
    offer = ArchiveOffer(archive, archive, 1, "here") if archive else None
    return replace(found, card=replace(found.card, accelerator_kind=kind, archive=offer))


def fits(free: dict[str, int], *nodes: NodeStatus, asked: Asked = ASKED) -> list[MachineFit]:
    of_ids = {name * 4: count for name, count in free.items()}
    return machine_fits(on_paper, asked, nodes, hosts_of(nodes, of_ids))


def test_each_machine_is_judged_by_what_is_free_there_and_says_why_not() -> None:
    nodes = (node("mini-1"), node("mini-2"), node("mini-3"))
    found = fits({"mini-1": 80 * GIB, "mini-2": 8 * GIB}, *nodes)
    large, small, silent = lines("llama", found)
    assert large.startswith("mini-1, 80.0 GiB free, torch: 100,000 tokens fit: full, 49.0 GiB")
    assert "mini-2, 8.00 GiB free, torch: Nothing fits" in small
    assert "--weights int8 it loads" in small or "--weights int4 it loads" in small
    assert silent == "mini-3: it does not say how much memory is free."


def test_archives_of_other_machines_alone_have_room_for_what_is_evicted() -> None:
    alone = node("mini-1", archive=90 * GIB)
    (found,) = fits({"mini-1": 14 * GIB}, alone)
    assert found.answer is not None
    assert found.answer.verdict.fits is False
    nodes = (node("mini-1"), node("mini-2", archive=90 * GIB))
    found, _ = fits({"mini-1": 14 * GIB, "mini-2": GIB}, *nodes)
    assert found.answer is not None
    assert found.answer.verdict.sentences[0].startswith("100,000 tokens fit: restored")
    gone = (nodes[0], node("mini-2", archive=90 * GIB, liveness=Liveness.DEAD))
    (found,) = fits({"mini-1": 14 * GIB}, *gone)
    assert found.answer is not None
    assert "have no room" in found.answer.ways[-2].problem


def test_a_machine_with_metal_is_judged_as_mlx_computes_it() -> None:
    nodes = (node("mini-1", kind="metal"), node("mini-2"))
    free = {"mini-1": 13 * GIB, "mini-2": 13 * GIB}
    asked = replace(ASKED, context_tokens=10)
    metal, cpu = fits(free, *nodes, asked=asked)
    assert metal.answer is not None
    assert cpu.answer is not None
    assert (metal.backend, metal.answer.verdict.fits) == ("mlx", False)
    assert (cpu.backend, cpu.answer.verdict.fits) == ("torch", True)


def test_given_memory_stands_in_for_what_is_free() -> None:
    (found,) = fits({}, node("mini-1"), asked=replace(ASKED, memory_bytes=80 * GIB))
    assert found.answer is not None
    assert found.answer.verdict.fits


def test_a_fleet_without_a_live_machine_says_so() -> None:
    assert "no live node" in lines("llama", fits({}, node("mini-1", liveness=Liveness.DEAD)))[0]
