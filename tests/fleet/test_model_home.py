"""Where a model is loaded, and what is said of the others."""

from dataclasses import replace

import pytest

from kakeya_fleet.fleet.errors import NoPlacement
from kakeya_fleet.fleet.placement.fit import MemoryOnPaper
from kakeya_fleet.fleet.placement.model_home import Candidate, model_home

GIB = 1 << 30
STEPS = "tiny in bfloat16"


def node(name: str, free_gib: float = 8.0, **facts: object) -> Candidate:
    """A node on whose machine so much is free, for a model whose weights take 4 GiB."""
    free = int(free_gib * GIB)
    memory = MemoryOnPaper(free, 4 * GIB, 5 * GIB, free // 4, GIB // 2)
    return replace(Candidate(name * 8, name, memory=memory), **facts)  # type: ignore[arg-type]


def told(*candidates: Candidate) -> tuple[str, str]:
    home = model_home("m", candidates)
    return home.chosen.name, home.sentence


def test_of_equals_the_one_with_most_room_is_chosen_and_the_others_room_is_told() -> None:
    assert told(node("a", 6), node("b", 12), node("c", 8)) == (
        "b",
        "b: 7.5 GiB are left beside the weights; not a: 1.5 GiB are left there; "
        "not c: 3.5 GiB are left there",
    )


def test_what_cannot_load_it_is_never_chosen_and_says_why() -> None:
    small = node("a", 4.5)
    barred = node("b", 64, problem="it is somebody else's", is_accelerated=True)
    name, sentence = told(small, barred, node("c", 6))
    assert (name, sentence) == (
        "c",
        "c: the only node that can load it; not a: the model takes 5.0 GiB, 4.5 GiB are free; "
        "not b: it is somebody else's",
    )


def test_an_accelerator_comes_before_room_where_no_speed_is_known() -> None:
    name, sentence = told(node("a", 64), node("b", 6, is_accelerated=True))
    assert (name, sentence) == (
        "b",
        "b: it has an accelerator, and 1.5 GiB are left beside the weights; "
        "not a: it has no accelerator",
    )


def test_what_all_have_measured_counts_before_accelerators_and_room() -> None:
    slow = node("a", 64, is_accelerated=True, step_seconds={STEPS: 0.06})
    fast = node("b", 6, step_seconds={STEPS: 0.02, "other": 9.0})
    name, sentence = told(slow, fast)
    assert name == "b"
    assert sentence == (
        "b: as fast as any, by tiny in bfloat16, and 1.5 GiB are left beside the weights; "
        "not a: a step takes 3.0 times as long as the fastest one's"
    )
    # One that never served it cannot be compared: what is known of all decides.
    assert told(slow, fast, node("c", 6))[0] == "a"


def test_steps_that_are_nearly_as_fast_leave_it_to_the_room() -> None:
    seconds = 0.0249
    roomy = node("a", 12, step_seconds={STEPS: seconds})
    assert told(roomy, node("b", 8, step_seconds={STEPS: 0.02}))[0] == "a"
    slower = replace(roomy, step_seconds={STEPS: 0.0251})
    assert told(slower, node("b", 8, step_seconds={STEPS: 0.02}))[0] == "b"


def test_one_that_is_slower_than_the_fastest_says_so_though_another_was_chosen() -> None:
    nodes = [
        node("a", 8, step_seconds={STEPS: 0.020}),
        node("b", 12, step_seconds={STEPS: 0.024}),
        node("c", 64, step_seconds={STEPS: 0.026}),
    ]
    name, sentence = told(*nodes)
    assert name == "b"
    assert sentence.endswith(
        "not a: 3.5 GiB are left there; not c: a step takes 1.3 times as long as the fastest one's"
    )


def test_of_several_models_that_all_served_the_slowest_tells_most() -> None:
    first = node("a", step_seconds={"small": 0.001, "large": 0.5})
    second = node("b", step_seconds={"small": 0.009, "large": 0.1})
    assert told(first, second)[0] == "b"


def test_the_near_one_is_taken_where_nothing_else_differs() -> None:
    name, sentence = told(node("a"), node("b", is_near=True))
    assert (name, sentence.rpartition("; ")[2]) == ("b", "not a: as good, and farther")
    assert told(node("b"), node("a"))[0] == "a"


def test_a_machine_that_tells_nothing_of_its_memory_comes_last_and_may_still_be_it() -> None:
    silent = replace(node("a"), memory=None)
    assert told(silent, node("b", 5))[0] == "b"
    assert told(silent, node("b", 4))[0] == "a"


def test_where_none_can_each_is_told_and_of_many_the_first() -> None:
    with pytest.raises(NoPlacement, match="can load m: none is alive") as caught:
        model_home("m", [])
    assert caught.value.metadata == {"model_id": "m"}
    many = [node(f"n{number}", 1) for number in range(40)]
    with pytest.raises(NoPlacement, match=r"n0: the model takes 5\.0 GiB, 1\.0 GiB are free; n1"):
        model_home("m", many)
    _, sentence = told(*many, node("z"))
    assert sentence.endswith("and 32 more")


def test_the_order_of_the_candidates_decides_nothing() -> None:
    nodes = [node("a", 8), node("b", 8, is_accelerated=True), node("c", 12), node("d", 2)]
    assert {told(*nodes[cut:], *nodes[:cut])[0] for cut in range(len(nodes))} == {"b"}
    # By two models, of which each node has another one as its slowest.
    first = node("a", step_seconds={"x": 0.1, "y": 0.5})
    second = node("b", step_seconds={"x": 0.9, "y": 0.2})
    assert told(first, second)[0] == told(second, first)[0]
