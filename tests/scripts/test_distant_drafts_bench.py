"""What documents say of sessions whose proposers are on another machine."""

from scripts.bench.distant_drafts import on_processor
from scripts.write.figures_distant_drafts import first_tokens, floor, overall, times

KINDS = ("chat", "code", "lists", "rewriting", "summaries", "prose")
EACH = {
    **dict.fromkeys(KINDS, 1.5),
    "all": 1.5,
    "least": 0.75,
    "below_the_floor": 1,
    "answers": 2,
}
FASTER = {**EACH, "all": 2.5}


def cell(round_trip_seconds: float) -> dict[str, object]:
    speeds = {"alone": 10.0, "auto": 15.0, "alone again": 10.0}
    slower = {"alone": 10.0, "auto": 9.0, "alone again": 8.0}
    return {
        "round_trip_seconds": round_trip_seconds,
        "answers_that_differ": 0,
        "first_token_seconds": {"alone": 0.01, "auto": 0.012 + round_trip_seconds},
        "rounds": [{"0.0": EACH, "0.7": EACH}, {"0.0": FASTER, "0.7": EACH}],
        "tokens_per_second": [[("0.0", "chat", speeds)], [("0.7", "code", slower)]],
    }


def test_a_row_is_of_a_round_trip_a_temperature_and_a_round() -> None:
    rows = times({"cells": [cell(0.0), cell(0.02)]})
    assert len(rows) == 8
    first = "| 0 ms, greedy, round 1 | " + " | ".join(["1.50"] * 7) + " | 0.75 | 1 of 2 |"
    assert rows[0] == first
    assert rows[7].startswith("| 20 ms, at 0.7, round 2 | ")


def test_what_is_said_is_of_all_round_trips_and_of_the_longest() -> None:
    found = {"cells": [cell(0.0), cell(0.02)]}
    assert overall(found) == ["2.00", "1.50"] * 2
    assert first_tokens(found) == ["32", "10"]
    # 9 over the mean time of 10 and 8 is more than the floor, which alone again is not.
    assert floor(found) == ["4", "0", "1.01", "2", "0.80", "0"]


def test_each_node_has_a_processor_of_its_own() -> None:
    assert on_processor(1, ["python", "-V"]) == ["taskset", "--cpu-list", "1", "python", "-V"]
