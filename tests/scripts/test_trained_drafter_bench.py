"""What documents say of the benchmark of a trained drafter."""

import pytest

from kakeya_fleet.engine.errors import ModelNotFound
from scripts.bench.trained_drafter import KINDS, main
from scripts.write.figures_trained_drafter import KINDS as TOLD
from scripts.write.figures_trained_drafter import forwards, probed, rival, taps, times


def test_what_documents_say_of_a_report() -> None:
    assert set(TOLD) == set(KINDS)
    each = dict.fromkeys((*TOLD, "all", "least_prompt", "least"), 1.25)
    sides = {"alone": each, "trained": each, "plain int4": each}
    counts = {"alone": 1.0, "trained": 1.5, "plain int4": 8.0}
    found = {
        "answers_that_differ": 0,
        "times_alone": {"0.0": sides, "0.7": sides},
        "tokens_a_forward": {heat: {"all": counts} for heat in ("0.0", "0.7")},
        "tokens_per_second": {"0.0": {"all": {"alone": 90.0, "auto": 200.4, "llama.cpp BF16": 81}}},
    }
    rows = times(found)
    assert len(rows) == 4
    assert rows[0] == "| greedy: trained | " + " | ".join(["1.25"] * 9) + " |"
    assert forwards(found) == ["1.5", "1.5", "8.0", "8.0", "0"]
    assert rival(found) == ["81", "90", "200"]


def test_a_set_of_layers_has_a_row_of_its_guesses() -> None:
    each = {"layers": [1, 28], "right": [0.3, 0.125], "tokens_a_forward": 1.3456}
    found = {"sets": [each], "chosen": [each], "positions": 12_345, "held_out_positions": 678}
    numbers = "30.0 | 12.5 | 1.346 |"
    assert taps(found) == [f"| 1, 28 | {numbers}", f"| 1, 28, chosen | {numbers}"]
    assert probed(found) == ["12,345", "678"]


def test_a_drafter_that_is_nowhere_is_refused_before_a_node_is_started() -> None:
    with pytest.raises(ModelNotFound, match="no-such-drafter"):
        main(["--drafter", "no-such-drafter"])
