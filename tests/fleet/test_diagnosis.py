"""What facts of a machine and its fleet mean: one table a check."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_fleet.fleet.diagnosis import (
    addresses,
    agents,
    clocks,
    local_network,
    memory,
    multicast,
    open_files,
    path_mtu,
    reach,
    ring,
    storage,
    threads,
    versions,
)
from kakeya_fleet.fleet.diagnosis.finding import Finding, Level, listed
from kakeya_fleet.fleet.diagnosis.reach import Answer, Probe, Visit

OK, WARNING, PROBLEM, NOT_RUN = Level.OK, Level.WARNING, Level.PROBLEM, Level.NOT_RUN
GIB = 1 << 30


def levels(findings: list[Finding]) -> list[Level]:
    """The levels, after what every finding promises."""
    for each in findings:
        assert each.what
        if each.level in (WARNING, PROBLEM):
            assert each.cause.endswith((".", "?")), each
            assert each.mend.endswith("."), each
        if each.level is NOT_RUN:
            assert each.cause.endswith("."), each
    return [each.level for each in findings]


@given(
    offset=st.floats(-1e6, 1e6),
    asked=st.floats(0, 1e9),
    waits=st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5)), min_size=1, max_size=4),
    round_trip=st.floats(0, 10),
)
def test_a_clocks_offset_lies_in_its_range_whatever_the_network_does(
    offset: float, asked: float, waits: list[tuple[float, float]], round_trip: float
) -> None:
    told = [
        (asked + before + offset, asked + before + after) for before, after in waits
    ]  # read so long after it was asked, arrived so long after it was read
    found = clocks.offset_of("x", asked, told, round_trip)
    rounding = 1e-3
    assert found.least - rounding <= offset <= found.most + rounding
    assert found.least <= found.guess <= found.most


def test_far_clocks_are_told_each_and_near_ones_together() -> None:
    near = clocks.Offset("a", -0.002, 0.9, 0.001)
    nearer = clocks.Offset("b", -0.0002, 0.9, 0.0001)
    ahead = clocks.Offset("c", 89.0, 91.0, 90.0)
    behind = clocks.Offset("d", -4.0, -3.0, -3.9)
    found = clocks.offsets([near, ahead, nearer, behind])
    assert levels(found) == [WARNING, WARNING, OK]
    assert "clock of c is 90.00 s ahead of" in found[0].what
    assert "clock of d is 3.90 s behind" in found[1].what
    assert "2 peers within 1.00 ms" in found[2].what
    assert "a is about +1.00 ms, surely between -2.00 ms and +900.00 ms" in found[2].what
    assert clocks.offsets([]) == []
    assert levels([clocks.synchronisation(by_ntp=True), clocks.synchronisation(by_ntp=False)]) == [
        OK,
        WARNING,
    ]


def test_multicast_is_told_by_interface() -> None:
    found = multicast.multicast(
        [
            multicast.Interface("10.0.0.1", "en0", is_heard=True, others=("x",)),
            multicast.Interface("10.0.1.1", "en1"),
            multicast.Interface("10.0.2.1", "tun0", "it refuses multicast"),
        ]
    )
    assert levels(found) == [WARNING, WARNING, OK]
    assert "en1 (10.0.1.1) is not heard" in found[0].what
    assert found[1].cause == "it refuses multicast."
    assert found[2].what == "sent and heard on en0 (10.0.0.1); 1 node of other machines heard"
    (alone,) = multicast.multicast([multicast.Interface("10.0.0.1", "en0", is_heard=True)])
    assert "is open" in alone.what


@pytest.mark.parametrize("answer", [each for each in Answer if each is not Answer.NODE])
def test_a_peer_that_answers_nowhere_is_a_problem_with_its_cause(answer: Answer) -> None:
    found = reach.to_peers([Visit("mini-2", "10.0.0.2:7600", answer, liveness="dead")])
    assert levels(found) == [PROBLEM]
    assert f"10.0.0.2:7600: {answer.value}. The fleet holds it dead." == found[0].cause


def test_a_peer_that_answers_at_one_of_two_addresses_is_a_warning_and_others_are_well() -> None:
    found = reach.to_peers(
        [
            Visit("a", "10.0.0.2:1", Answer.NODE, 0.001),
            Visit("a", "10.0.1.2:1", Answer.NO_ROAD),
            Visit("b", "10.0.0.3:1", Answer.NODE, 0.002),
            Visit("c", "10.0.0.4:1", Answer.NODE, 0.003),
        ],
        unvisited_count=3,
    )
    assert levels(found) == [WARNING, OK, NOT_RUN]
    assert found[0].what == "a does not answer at each of its addresses"
    assert found[1].what == "b, c answer at 2 addresses, within 3.00 ms"


def test_each_way_back_is_told() -> None:
    found = reach.from_peers(
        [
            Probe("a", is_reachable=True, seconds=0.001),
            Probe("b"),
            Probe("c", is_unknown=True),
            Probe("d", fault="it does not answer in time"),
        ],
        "mini-1",
        ["10.0.0.1:7600"],
    )
    assert levels(found) == [PROBLEM, WARNING, NOT_RUN, OK]
    assert found[0].what == "b does not reach mini-1"
    assert "10.0.0.1:7600 in vain" in found[0].cause
    assert found[3].what == "a reaches mini-1, within 1.00 ms"


def test_addresses_that_are_gone_or_mute_and_ways_that_do_not_lead_back() -> None:
    found = addresses.addresses(
        [
            addresses.CardAddress("10.0.0.1:1", is_here=True),
            addresses.CardAddress("10.9.0.1:1", is_here=False),
            addresses.CardAddress("10.0.1.1:1", is_here=True, fault="nothing listens there"),
        ],
        [
            addresses.Route("a", "10.0.0.2:1", "10.0.0.1"),
            addresses.Route("b", "10.0.3.2:1", "10.0.3.1", is_on_card=False),
            addresses.Route("c", "10.0.4.2:1", fault="Network is unreachable"),
        ],
    )
    assert levels(found) == [PROBLEM, PROBLEM, WARNING, PROBLEM, OK]
    assert found[-1].what == "the agent answers at 1 address of its card: 10.0.0.1:1"


SPOKEN = versions.Spoken("a", "0.1.0", 1, 2)


@pytest.mark.parametrize(
    ("other", "level", "says"),
    [
        (versions.Spoken("b", "0.1.0", 1, 2), OK, "kakeya-fleet 0.1.0, protocol 1 to 2"),
        (versions.Spoken("b", "0.2.0", 2, 3), WARNING, "2 versions of kakeya-fleet"),
        (versions.Spoken("b", "0.3.0", 3, 3), PROBLEM, "b and a speak no common protocol"),
    ],
)
def test_versions(other: versions.Spoken, level: Level, says: str) -> None:
    found = versions.versions([SPOKEN, other])
    assert levels(found) == [level]
    assert says in found[0].what


@pytest.mark.parametrize(
    ("path", "level"),
    [
        (path_mtu.Path("a", "en0", 1500, 1500, 1448), OK),
        (path_mtu.Path("a", "en0", 1500), OK),
        (path_mtu.Path("a", "lo", 65_536, 65_535, 32_741), OK),
        (path_mtu.Path("a", "en0", 9000, 1500, 1448), WARNING),
        (path_mtu.Path("a", "en0", 9000, 9000, 1448), WARNING),
        (path_mtu.Path("a", "en0", 1500, 1500, 1448, large_fault="it was lost"), PROBLEM),
    ],
)
def test_ways_and_their_packets(path: path_mtu.Path, level: Level) -> None:
    assert levels(path_mtu.path_mtu([path])) == [level]


def test_interfaces_of_different_mtu_are_named() -> None:
    paths = [path_mtu.Path("a", "en0", 1500, 1500), path_mtu.Path("b", "en1", 9000, 9000)]
    (found,) = path_mtu.path_mtu(paths)
    assert "MTU 1500 and 9000 over interfaces of MTU 1500, 9000" in found.what


def place(need: storage.Need, free: int, *, is_writable: bool = True) -> storage.Place:
    return storage.Place(need, "/x", free, 100 * GIB, is_writable)


@pytest.mark.parametrize(
    ("where", "level"),
    [
        (place(storage.STATE, GIB), OK),
        (place(storage.STATE, 100 << 20), WARNING),
        (place(storage.STATE, 1 << 20), PROBLEM),
        (place(storage.STATE, GIB, is_writable=False), PROBLEM),
        (place(storage.MODELS, 9 * GIB), OK),
        (place(storage.MODELS, 0), WARNING),
        (place(storage.MODELS, 9 * GIB, is_writable=False), WARNING),
    ],
)
def test_room_on_disks(where: storage.Place, level: Level) -> None:
    assert levels(storage.storage([where])) == [level]


def test_memory_names_the_limit_that_holds() -> None:
    free = memory.memory(memory.Memory(64 * GIB, 64 * GIB, 32 * GIB))
    held = memory.memory(memory.Memory(64 * GIB, 4 * GIB, 100 << 20))
    assert levels([free, held]) == [OK, WARNING]
    assert "container's limit of 4.0 GiB" in held.what
    assert "killed" in held.cause


@pytest.mark.parametrize(
    ("used", "soft", "hard", "level"),
    [(20, 1 << 16, 1 << 16, OK), (900, 1024, 1 << 16, PROBLEM), (20, 256, 256, WARNING),
     (20, -1, -1, OK), (20, 1024, -1, OK)],
)  # fmt: skip
def test_descriptors(used: int, soft: int, hard: int, level: Level) -> None:
    files = open_files.OpenFiles("mini-1", used, soft, hard)
    assert levels([open_files.open_files(files)]) == [level]


@pytest.mark.parametrize(
    ("omp", "level"),
    [("", OK), ("8", OK), ("4,2", OK), ("9", WARNING), ("x", WARNING), ("0", WARNING)],
)
def test_threads_beside_cores(omp: str, level: Level) -> None:
    assert levels([threads.threads(threads.Threads(8, omp))]) == [level]


def test_only_verifiers_of_the_same_weights_need_the_same_threads() -> None:
    def served(node: str, weights: str, count: int) -> threads.VerifierThreads:
        return threads.VerifierThreads(node, weights, "toy", count)

    same = [served("a", "w", 4), served("b", "w", 4), served("c", "v", 2), served("d", "w", 0)]
    assert threads.verifier_threads(same) == []
    found = threads.verifier_threads([*same, served("e", "w", 8)])
    assert levels(found) == [WARNING]
    assert "4 on a, 4 on b, 8 on e" in found[0].what


def test_verifiers_of_the_same_numbers_need_the_same_arithmetic() -> None:
    def served(node: str, arithmetic: str, form: str = "float32") -> threads.VerifierThreads:
        # Compiled ones compute the same with any number of threads, and tell none.
        count = 0 if "decoder" in arithmetic else 2
        return threads.VerifierThreads(node, "w", "toy", count, arithmetic, form)

    alike = [served("a", "torch 2"), served("b", "torch 2"), served("c", "mlx", "bfloat16")]
    # An earlier version does not tell.
    assert threads.verifier_threads([*alike, served("d", "")]) == []
    found = threads.verifier_threads([*alike, served("e", "torch 2, decoder-1")])
    assert levels(found) == [WARNING]
    assert found[0].what.endswith("torch 2 on a, torch 2 on b, torch 2, decoder-1 on e")


def ring_facts(**facts: object) -> ring.RingFacts:
    known: dict[str, object] = {
        "ring_address": "", "links": "auto", "has_mlx": True, "has_ipv4": True, "serves": True,
        "age_seconds": 1e6,
    }  # fmt: skip
    return ring.RingFacts(**(known | facts))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("facts", "level", "says"),
    [
        ({"ring_address": "10.0.0.1:7600"}, OK, "offered at 10.0.0.1:7600"),
        ({"links": "grpc"}, OK, "--links grpc"),
        ({"has_ipv4": False}, OK, "no IPv4"),
        ({"has_mlx": False}, OK, "MLX is not installed"),
        ({"age_seconds": 5.0}, OK, "none yet"),
        ({"serves": False}, OK, "carries no tensors"),
        ({}, WARNING, "though MLX is installed"),
        ({"links": "ring"}, WARNING, "though MLX is installed"),
    ],
)
def test_rings(facts: dict[str, object], level: Level, says: str) -> None:
    found = ring.ring(ring_facts(**facts))
    assert levels([found]) == [level]
    assert says in found.what


@pytest.mark.parametrize(
    ("calls", "level"),
    [
        ([(True, False), (True, False)], OK),
        ([(False, False)], OK),
        ([(True, True), (True, False)], WARNING),
        ([(True, True)], PROBLEM),
    ],
)
def test_the_local_network_permission_is_suspected_by_how_calls_are_refused(
    calls: list[tuple[bool, bool]], level: Level
) -> None:
    made = [local_network.LocalCall("10.0.0.2:1", *call) for call in calls]
    assert levels([local_network.local_network(made)]) == [level]


def test_what_the_asked_node_is() -> None:
    well = agents.AgentState("a", "10.0.0.1:1", "home", 7, is_draining=False)
    leaving = agents.AgentState("a", "10.0.0.1:1", "home", 0, is_draining=True)
    assert levels([agents.agent(well), agents.agent(leaving)]) == [OK, WARNING]
    assert levels([agents.no_agent([]), agents.no_agent(["a"])]) == [WARNING, WARNING]
    for answer in (Answer.SILENT, Answer.REFUSED):
        found = agents.unreachable_agent("10.0.0.1:1", answer)
        assert levels([found]) == [PROBLEM]
        assert answer.value in found.cause


def test_seed_peers_are_told_in_the_nodes_own_words() -> None:
    assert levels(agents.seeds([])) == [OK]
    found = agents.seeds([agents.SeedTrouble("It is another fleet's.", "Join with --fleet x.")])
    assert levels(found) == [PROBLEM]
    assert (found[0].cause, found[0].mend) == ("It is another fleet's.", "Join with --fleet x.")


def test_a_list_ends_with_how_many_more_there_are() -> None:
    assert listed("ab") == "a, b"
    assert listed("abcdef") == "a, b, c, d and 2 more"
