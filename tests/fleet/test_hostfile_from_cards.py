from __future__ import annotations

from dataclasses import replace

import pytest

from kakeya_fleet.fleet.hostfiles.from_cards import (
    HostfileRequest,
    Member,
    chosen_members,
    make_hostfile,
)
from kakeya_fleet.fleet.hostfiles.hostfile import GroupBackend, Host, HostfileError

MINI_1 = Member("1f" * 32, "mini-1", "alive", "192.168.1.21:7600", "10.1.0.1:41000")
MINI_2 = Member("2f" * 32, "mini-2", "alive", "mini-2.local:7600", "10.1.0.2:41000")
BOX = Member("3f" * 32, "box", "alive", "192.168.1.30:7600", "")
FLEET = (MINI_2, BOX, MINI_1)
DEVICES = {("mini-1", "mini-2"): "rdma_en2", ("mini-2", "mini-1"): "rdma_en3"}


def refusal(members: tuple[Member, ...], request: HostfileRequest) -> HostfileError:
    with pytest.raises(HostfileError) as raised:
        make_hostfile(members, request)
    return raised.value


def test_a_ring_of_all_live_nodes_that_have_one_by_name() -> None:
    for order in (FLEET, FLEET[::-1]):
        made = make_hostfile(order, HostfileRequest(ssh_user="me", envs=("A=1",)))
        assert made.backend is GroupBackend.RING
        assert made.hosts == (
            Host("me@192.168.1.21", ("10.1.0.1",)),
            Host("me@mini-2.local", ("10.1.0.2",)),
        )
        assert made.envs == ("A=1",)
    gone = replace(MINI_1, liveness="dead")
    other = replace(MINI_1, node_id="4f" * 32, name="mini-4")
    made = make_hostfile((gone, MINI_2, other), HostfileRequest())
    assert [host.ssh for host in made.hosts] == ["mini-2.local", "192.168.1.21"]


def test_the_order_of_named_nodes_is_that_of_the_ranks() -> None:
    request = HostfileRequest(nodes=("mini-2", MINI_1.node_id[:6]), ranks_per_node=2)
    made = make_hostfile(FLEET, request)
    assert [host.ips for host in made.hosts] == [("10.1.0.2",)] * 2 + [("10.1.0.1",)] * 2
    assert chosen_members(FLEET, request.nodes) == (MINI_2, MINI_1)


def test_gloo_needs_no_ring_address_and_uses_the_nodes_own() -> None:
    request = HostfileRequest(GroupBackend.GLOO, nodes=("mini-1", "box"))
    made = make_hostfile(FLEET, request)
    assert [host.ips for host in made.hosts] == [("192.168.1.21",), ("192.168.1.30",)]


def test_jaccl_has_a_device_for_each_pair() -> None:
    request = HostfileRequest(GroupBackend.JACCL, rdma=DEVICES)
    made = make_hostfile(FLEET, request)
    assert [host.rdma for host in made.hosts] == [((), ("rdma_en2",)), (("rdma_en3",), ())]
    lacking = refusal(FLEET, replace(request, rdma={("mini-1", "mini-2"): "rdma_en2"}))
    assert lacking.where == "mini-2"
    assert "--rdma mini-2:mini-1=DEVICE" in str(lacking)
    several = refusal(FLEET, replace(request, ranks_per_node=2))
    assert "one rank a node" in str(several)


def test_a_ring_of_jaccl_has_devices_towards_neighbours_alone() -> None:
    minis = tuple(replace(MINI_1, node_id=f"{index}" * 64, name=f"m{index}") for index in range(4))
    ways = {(f"m{a}", f"m{(a + step) % 4}"): f"d{step % 4}" for a in range(4) for step in (1, -1)}
    made = make_hostfile(minis, HostfileRequest(GroupBackend.JACCL_RING, rdma=ways))
    assert made.hosts[0].rdma == ((), ("d1",), (), ("d3",))


def test_nodes_of_one_machine_are_started_without_ssh() -> None:
    local = tuple(
        replace(one, address="127.0.0.1:7600", ring_address="127.0.0.1:41000")
        for one in (MINI_1, MINI_2)
    )
    made = make_hostfile(local, HostfileRequest(ssh_user="me"))
    assert made.hosts == (Host("127.0.0.1", ("127.0.0.1",)),) * 2
    mixed = refusal((local[0], MINI_2), HostfileRequest())
    assert mixed.where == "mini-1"
    assert "--bind" in str(mixed)


@pytest.mark.parametrize(
    ("changed", "backend", "words"),
    [
        ({"liveness": "dead"}, GroupBackend.RING, ("is dead", "fleet join")),
        ({"liveness": "suspect"}, GroupBackend.GLOO, ("is suspect",)),
        ({"address": ""}, GroupBackend.GLOO, ("no address",)),
        ({"ring_address": ""}, GroupBackend.RING, ("no ring address", "kakeya-fleet[mlx]")),
        ({"ring_address": "[fd00::1]:41000"}, GroupBackend.RING, ("IPv6", "fd00::1")),
        ({"ring_address": "[fd00::1]:41000"}, GroupBackend.JACCL, ("IPv6",)),
    ],
)
def test_a_named_node_that_cannot_take_part_is_refused_by_name_with_the_mend(
    changed: dict[str, str], backend: GroupBackend, words: tuple[str, ...]
) -> None:
    members = (replace(MINI_1, **changed), MINI_2)
    refused = refusal(members, HostfileRequest(backend, nodes=("mini-2", "mini-1"), rdma=DEVICES))
    assert refused.where == "mini-1"
    for word in words:
        assert word in str(refused)


@pytest.mark.parametrize(
    ("asked", "place", "words"),
    [
        (HostfileRequest(nodes=("mini-3",)), "mini-3", "there are: box, mini-1, mini-2"),
        (HostfileRequest(nodes=("mini-1", "")), "", "no node is called that"),
        (HostfileRequest(nodes=("mini-1", "mini-1")), "mini-1", "--ranks-per-node"),
        (HostfileRequest(nodes=("mini-1",)), "mini-1", "one rank is no group"),
        (HostfileRequest(ranks_per_node=0), "", "0 ranks"),
        (HostfileRequest(ssh_user="-v"), "hosts[0].ssh", "no host and no USER@HOST"),
        (HostfileRequest(envs=("x",)), "envs[0]", "NAME=value"),
    ],
)
def test_a_request_that_cannot_be_met(asked: HostfileRequest, place: str, words: str) -> None:
    refused = refusal(FLEET, asked)
    assert refused.where == place
    assert words in str(refused)


def test_names_that_several_nodes_have_are_refused_and_ids_are_not() -> None:
    twin = replace(MINI_1, node_id="4f" * 32)
    refused = refusal((MINI_1, twin, MINI_2), HostfileRequest(nodes=("mini-1", "mini-2")))
    assert twin.node_id[:12] in str(refused)
    made = make_hostfile((MINI_1, twin, MINI_2), HostfileRequest(nodes=("4f4f", "mini-2")))
    assert made.rank_count == 2
    none = refusal((BOX,), HostfileRequest())
    assert "no live node advertises a ring address" in str(none)
