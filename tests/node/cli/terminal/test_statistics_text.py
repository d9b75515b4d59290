import dataclasses
from typing import Any

import pytest

from kakeya import (
    DraftFault,
    DropReason,
    GenerationDone,
    LinkChange,
    LinkPurpose,
    Placement,
    Plan,
    ProposerStatistics,
    SpeculationStatistics,
    StopReason,
    Timings,
    Transport,
)
from kakeya_fleet.node.cli.terminal.statistics_text import (
    drafts_text,
    fault_lines,
    forwards_per_token,
    statistics_lines,
    tokens_per_second,
)

NUMBERS = SpeculationStatistics(
    25, 180, 171, 29, 6.9, 0.00042, 0.0011, (), None, 20, 5, "p" * 64, "ngram"
)
DONE = GenerationDone(StopReason.MAX_TOKENS, 200, 260, Timings(0.5, 1.5, 1.6, 3.0), NUMBERS, (), 0)
PLAN = Plan(
    Placement("v" * 64, "mini-1", "a:1", "tiny"),
    Placement("p" * 64, "mini-2", "a:2", "ngram"),
    None, 8, 0.0, 0.0, 0.0, 0.0, False, 0, (), (), True,
)  # fmt: skip


def done(**changes: Any) -> GenerationDone:
    return dataclasses.replace(DONE, speculation=dataclasses.replace(NUMBERS, **changes))


def test_speed_leaves_out_waiting_and_prefill() -> None:
    assert tokens_per_second(DONE) == pytest.approx(200.0)


def test_speed_of_nothing_is_not_known() -> None:
    nothing = dataclasses.replace(
        DONE, generated_token_count=0, timings=Timings(0.0, 0.0, 0.0, 0.0)
    )
    assert tokens_per_second(nothing) == 0.0
    assert forwards_per_token(nothing) == 0.0


def test_statistics_name_every_figure_that_people_compare() -> None:
    text = "\n".join(statistics_lines(DONE, PLAN))
    for words in (
        "200 tokens in 3.00 s, 200 tok/s",
        "first token after 1.60 s",
        "acceptance length 6.90, forwards per token 0.14",
        "ngram on mini-2: 171 of 180 drafted accepted (95 %)",
        "round trip p50 0.42 ms p99 1.10 ms",
    ):
        assert words in text
    assert "seed" not in text


def test_a_drawn_seed_is_told() -> None:
    assert "seed 77" in statistics_lines(dataclasses.replace(DONE, seed=77), PLAN)


def test_what_is_forgotten_is_told_with_its_mends() -> None:
    assert not any("forgotten" in line for line in statistics_lines(DONE, PLAN))
    forgetful = dataclasses.replace(DONE, history_length=3100, forgotten_token_count=2072)
    (line,) = [each for each in statistics_lines(forgetful, PLAN) if "forgotten" in each]
    for words in ("2,072 of 3,100 tokens", "--window", "--kv restored", "--kv full"):
        assert words in line


def test_without_drafts_nothing_is_made_up() -> None:
    assert drafts_text(done(proposer_model_id=""), PLAN) == "no proposer"
    assert "drafted nothing" in drafts_text(done(drafted_count=0), PLAN)


def test_each_proposer_is_told_with_what_it_drafted_itself() -> None:
    two = (
        ProposerStatistics("b" * 64, "ngram", 30, 120, 100, 130, 0.5),
        ProposerStatistics("c" * 64, "drafter", 9, 60, 12, 21, 0.2),
    )
    told = drafts_text(done(proposers=two), PLAN)
    assert "ngram on bbbbbbbbbbbb: 100 of 120 drafted accepted (83 %)" in told
    assert "drafter on cccccccccccc: 12 of 60 drafted accepted (20 %)" in told


def test_a_proposer_that_the_plan_does_not_name_is_told_by_its_id() -> None:
    assert "q" * 12 in drafts_text(done(proposer_node_id="q" * 64), PLAN)


def test_a_fault_and_its_end_are_told_one_line_each() -> None:
    lines = fault_lines(
        done(
            faults=(DraftFault(DropReason.DEADLINE, 1), DraftFault(DropReason.STALE, 2)),
            drop_reason=DropReason.UNREACHABLE,
        )
    )
    assert lines == [
        "fault of the proposer: deadline, once",
        "fault of the proposer: stale, 2 times",
        "the proposer was dropped: it cannot be reached; the verifier went on alone",
    ]


def test_being_slow_is_not_called_a_fault() -> None:
    (line,) = fault_lines(done(drop_reason=DropReason.SLOWER_THAN_ALONE))
    assert "slower than decoding alone" in line
    assert "fault" not in line


def test_every_reason_to_drop_and_to_stop_has_words() -> None:
    for dropped in DropReason:
        (line,) = fault_lines(done(drop_reason=dropped))
        assert line.startswith("the proposer was dropped: "), dropped
    for stopped in StopReason:
        told = statistics_lines(dataclasses.replace(DONE, stop_reason=stopped), PLAN)
        assert "stopped: " in told[0], stopped


def test_changes_of_links_are_told_with_their_time_peer_and_reason() -> None:
    changes = (
        LinkChange(0.25, LinkPurpose.FEATURES, Transport.RING, 1, "It is faster.", "p" * 64),
        LinkChange(1.5, LinkPurpose.FEATURES, Transport.GRPC, 2, "A child died.", "x" * 64),
    )
    lines = statistics_lines(dataclasses.replace(DONE, link_changes=changes), PLAN)
    assert lines[-2:] == [
        "after 250 ms the link for features with mini-2 went over to ring: It is faster.",
        f"after 1.50 s the link for features with {'x' * 12} went over to grpc: A child died.",
    ]
    assert len(statistics_lines(DONE, PLAN)) == len(lines) - 2
