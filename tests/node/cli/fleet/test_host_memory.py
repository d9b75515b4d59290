"""Memory in use now, of a machine with several nodes once; and what else people should know."""

from dataclasses import replace

from kakeya import FleetSnapshot, Liveness, NodeStatus, SeedFault
from kakeya_fleet.node.cli.fleet.host_memory import hosts_of, total_text
from kakeya_fleet.node.cli.fleet.notes import note_lines
from kakeya_fleet.node.cli.fleet.table import COLUMNS, heading, rows
from kakeya_fleet.node.cli.terminal.tables import Cell, plain_table
from tests.support.fleet_scene import GIB, status


def on(host_id: str, name: str, liveness: Liveness = Liveness.ALIVE) -> NodeStatus:
    """A node of 16 GiB on that machine; its card says that 12 GiB are free."""
    node = status(name, liveness=liveness)
    assert node.card is not None
    return replace(node, card=replace(node.card, host_id=host_id))


ONE, TWO, FAR = on("h", "mini-1"), on("h", "mini-2"), on("g", "mini-3")


def test_the_memory_of_one_machine_is_counted_once_as_it_is_now() -> None:
    nodes = (ONE, TWO, FAR)
    free = {ONE.node_id: 6 * GIB, TWO.node_id: 6 * GIB, FAR.node_id: 15 * GIB}
    hosts = hosts_of(nodes, free)
    assert total_text(hosts) == "11.0 / 32.0 GiB in use on 2 machines"
    table = plain_table(COLUMNS, rows(nodes, hosts)).splitlines()
    assert "10.0 / 16.0 GiB" in table[1]
    assert "with mini-1" in table[2]
    assert "1.00 / 16.0 GiB" in table[3]
    assert heading(FleetSnapshot("home", nodes), hosts).endswith(", " + total_text(hosts))


def test_the_cores_of_one_machine_are_told_once_as_the_busiest_look_had_them() -> None:
    nodes = (ONE, TWO, FAR)
    free = {node.node_id: 6 * GIB for node in nodes}
    hosts = hosts_of(nodes, free, {ONE.node_id: 0.41, TWO.node_id: 0.436})
    cells = [row[3] for row in rows(nodes, hosts)]
    assert [cell.text for cell in cells if isinstance(cell, Cell)] == ["44 %", "-", "-"]
    assert hosts[1].cpu_share is None
    idle = hosts_of(nodes, free, {FAR.node_id: 0.0})
    assert plain_table(COLUMNS, rows(nodes, idle)).splitlines()[3].count(" 0 %") == 1


def test_nodes_that_do_not_name_their_machine_have_one_each() -> None:
    nodes = (on("", "mini-1"), on("", "mini-2"))
    assert len(hosts_of(nodes, {})) == 2


def test_what_could_not_be_asked_is_marked_and_not_taken_from_the_card() -> None:
    nodes = (ONE, FAR)
    hosts = hosts_of(nodes, {ONE.node_id: 6 * GIB})
    assert "? / 16.0 GiB" in plain_table(COLUMNS, rows(nodes, hosts)).splitlines()[2]
    assert total_text(hosts) == "10.0 / 16.0 GiB in use on 1 machine"
    assert any(note.startswith("?: ") for note in note_lines(nodes, (), hosts))
    assert total_text(hosts_of(nodes, {})) == ""


def test_one_node_that_told_speaks_for_its_machine() -> None:
    assert total_text(hosts_of((ONE, TWO), {TWO.node_id: 4 * GIB})) == (
        "12.0 / 16.0 GiB in use on 1 machine"
    )


def test_a_dead_node_uses_no_memory() -> None:
    dead = on("h", "mini-1", Liveness.DEAD)
    assert hosts_of([dead], {dead.node_id: GIB}) == []
    assert " GiB" not in plain_table(COLUMNS, rows([dead], []))


def test_a_peer_that_cannot_be_joined_is_told_with_its_age_and_mend() -> None:
    fault = SeedFault("10.0.0.9:1", "UNREACHABLE", "Nothing listens there.", "Start it.", 90.0, 9)
    assert note_lines((), [fault], []) == [
        "Nothing listens there. Tried 9 times in 1 min 30 s. Start it."
    ]


def test_a_name_of_several_nodes_is_told_with_their_ids_and_a_free_one() -> None:
    assert TWO.card is not None
    nodes = (ONE, replace(TWO, card=replace(TWO.card, name="mini-1")), FAR)
    (note,) = note_lines(nodes, (), ())
    assert note.startswith("2 nodes are called mini-1: ")
    assert ONE.node_id[:12] in note
    assert TWO.node_id[:12] in note
    assert "--name mini-2" in note
    gone = (nodes[0], replace(nodes[1], liveness=Liveness.LEFT))
    assert note_lines(gone, (), ()) == []
