from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from kakeya import (
    ArchiveOffer,
    Card,
    FleetSnapshot,
    Liveness,
    ModelKind,
    ModelOffer,
    NodeStatus,
    Role,
)
from kakeya_fleet.node.cli.fleet import status_watch, table
from kakeya_fleet.node.cli.fleet.host_memory import HostMemory, hosts_of
from kakeya_fleet.node.cli.fleet.table import COLUMNS, heading, rows
from kakeya_fleet.node.cli.terminal.tables import Cell, ScreenTable, plain_table

GIB = 1024**3


def offer(model_id: str, role: Role, *, exact: bool = False) -> ModelOffer:
    return ModelOffer(
        model_id, role, ModelKind.NGRAM, "", "", "", "", 0, 0, 0, (), exact, 0, "torch"
    )


def card(name: str, **changes: Any) -> Card:
    usual = Card(
        node_id=name * 8,
        name=name,
        fleet_name="default",
        boot_id="b",
        incarnation=1,
        sequence=0,
        public_key="",
        addresses=("10.0.0.1:7600",),
        platform="linux/x86_64",
        accelerator_kind="cpu",
        accelerator_name="x",
        memory_total_bytes=16 * GIB,
        memory_free_bytes=12 * GIB,
        software_version="0.1.0",
        protocol_min=1,
        protocol_max=1,
        models=(),
        ring_address="",
        announced_at_unix=0.0,
        ttl_seconds=60.0,
    )
    return replace(usual, **changes)


def status(
    name: str,
    liveness: Liveness = Liveness.ALIVE,
    *,
    age: float = 0.4,
    trip: float | None = 0.00031,
    is_self: bool = False,
    **changes: Any,
) -> NodeStatus:
    return NodeStatus(name * 8, liveness, age, trip, is_self, card(name, **changes))


def line(node: NodeStatus, **more: Any) -> str:
    hosts = hosts_of([node], {node.node_id: node.card.memory_free_bytes} if node.card else {})
    return plain_table(COLUMNS, rows([node], hosts, **more)).splitlines()[1]


def test_a_node_is_told_with_role_and_model_memory_liveness_age_and_round_trip() -> None:
    models = (offer("tiny", Role.VERIFIER, exact=True), offer("ngram", Role.PROPOSER))
    text = line(status("mini-2", models=models))
    assert "verifier=tiny, proposer=ngram" in text
    assert "4.00 / 16.0 GiB" in text
    assert "alive, 0.4 s ago" in text
    assert "0.31 ms" in text
    assert text.endswith("10.0.0.1:7600")


def test_a_proposer_is_told_with_what_it_is() -> None:
    drafter = replace(offer("tiny-dflash", Role.PROPOSER), kind=ModelKind.DFLASH)
    masked = replace(offer("bert", Role.PROPOSER), kind=ModelKind.MASKED_DIFFUSION)
    text = line(status("mini-2", models=(drafter, masked)))
    assert "proposer=tiny-dflash (dflash), proposer=bert (masked-diffusion)" in text


def test_a_verifier_that_is_not_exact_is_marked_and_a_proposer_is_not() -> None:
    node = status("a", models=(offer("tiny", Role.VERIFIER), offer("ngram", Role.PROPOSER)))
    assert "verifier=tiny (not exact), proposer=ngram  " in line(node)
    served = rows([node])[0][1]
    assert isinstance(served, Cell)
    assert served.style == "yellow"
    exact = status("a", models=(offer("tiny", Role.VERIFIER, exact=True),))
    served = rows([exact])[0][1]
    assert isinstance(served, Cell)
    assert served.style == ""


def test_a_verifier_of_several_processes_is_told_with_their_number() -> None:
    group = replace(offer("large", Role.VERIFIER, exact=True), rank_count=3)
    assert "verifier=large on 3 ranks, proposer=ngram" in line(
        status("a", models=(group, offer("ngram", Role.PROPOSER)))
    )
    inexact = replace(group, exact=False)
    assert "verifier=large on 3 ranks (not exact)" in line(status("a", models=(inexact,)))


def test_the_asked_node_is_marked_and_has_neither_age_nor_round_trip() -> None:
    text = line(status("mini-1", is_self=True, trip=None))
    assert text.startswith("mini-1 *")
    assert "alive, here" in text
    assert " - " in text


def test_ages_grow_while_nothing_is_told() -> None:
    assert "2.9 s ago" in line(status("a"), waited_seconds=2.5)
    assert "1 min 40 s ago" in line(status("a", Liveness.DEAD, age=100))


def test_a_node_that_only_a_rumour_names_has_no_facts() -> None:
    rumour = NodeStatus("0123456789abcdef", Liveness.SUSPECT, 3.0, None, False, None)
    assert line(rumour).split() == [
        "0123456789ab",
        "-",
        "-",
        "-",
        "suspect,",
        "3.0",
        "s",
        "ago",
        "-",
        "-",
    ]


def test_more_free_than_total_memory_is_nothing_in_use() -> None:
    assert "0.00 / 16.0 GiB" in line(status("a", memory_free_bytes=17 * GIB))


def test_the_heading_counts_who_is_alive() -> None:
    nodes = (status("a"), status("b", Liveness.LEFT), status("c", Liveness.SUSPECT))
    assert heading(FleetSnapshot("home", nodes)) == 'fleet "home": 3 nodes, 1 alive'
    assert heading(FleetSnapshot("home", nodes[:1])) == 'fleet "home": 1 node, 1 alive'


def test_an_archive_is_told_as_join_takes_it() -> None:
    archive = ArchiveOffer(512 * 1024**2, 0, 7001, "torch")
    models = (offer("ngram", Role.PROPOSER),)
    assert "proposer=ngram, archive=512MiB" in line(status("m", models=models, archive=archive))
    assert "archive=3GiB" in line(status("m", archive=replace(archive, capacity_bytes=3 * GIB)))


def test_a_ring_stands_beside_the_address() -> None:
    assert line(status("a")).endswith("10.0.0.1:7600")
    assert line(status("a", ring_address="10.1.0.1:41000")).endswith("10.0.0.1:7600, ring")


def test_on_eighty_columns_names_and_addresses_stay_whole() -> None:
    model = offer("Qwen3-Coder-30B-A3B-Instruct-4bit-DWQ", Role.VERIFIER, exact=True)
    addresses = [f"192.168.178.{number}:7600" for number in (120, 121, 122)]
    nodes = [
        status(f"living-room-mini-{index}", models=(model,), addresses=(address,))
        for index, address in enumerate(addresses)
    ]
    hosts = hosts_of(
        nodes, {node.node_id: node.card.memory_free_bytes for node in nodes if node.card}
    )
    lines = [each.plain for each in ScreenTable(COLUMNS, rows(nodes, hosts), "fleet").lines(80)]
    assert max(map(len, lines)) <= 80
    for whole in (*addresses, model.model_id, "4.00 / 16.0 GiB", "alive, 0.4 s ago"):
        assert any(whole in line for line in lines), whole


def test_piped_a_node_is_one_line_whatever_its_length() -> None:
    node = status("mini-1", models=(offer("m" * 200, Role.VERIFIER),))
    assert line(node).count("m" * 200) == 1
    assert line(node).endswith("10.0.0.1:7600")


def test_a_drawing_of_a_watch_looks_the_machines_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def machines_of(hosts: Iterable[HostMemory]) -> dict[str, HostMemory]:
        looks.append(1)
        return table.machines_of(hosts)

    monkeypatch.setattr(status_watch, "machines_of", machines_of)
    picture = status_watch.Picture()
    nodes = tuple(status(f"n{number}", host_id=f"h{number}") for number in range(50))
    picture.take(FleetSnapshot("home", nodes))
    picture.draw()
    assert looks == [1]
