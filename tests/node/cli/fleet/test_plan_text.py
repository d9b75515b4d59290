import dataclasses

from kakeya import (
    ArchiveRange,
    KvStrategy,
    Placement,
    Plan,
    Rejection,
    RejectionReason,
    Transport,
    Trial,
)
from kakeya_fleet.node.cli.fleet.plan_text import (
    pair_text,
    plan_lines,
    prediction_text,
    readers_text,
)

VERIFIER = Placement("v" * 64, "mini-1", "127.0.0.1:1", "tiny")
PROPOSER = Placement("p" * 64, "mini-2", "127.0.0.1:2", "ngram")
PAIR = Plan(
    VERIFIER,
    PROPOSER,
    Transport.GRPC,
    8,
    412.0,
    179.0,
    0.00042,
    0.61,
    True,
    13_000_000,
    ("why",),
    (),
    True,
    kv_strategy=KvStrategy.SINK_WINDOW,
    acceptance_rate_low=0.45,
    acceptance_rate_high=0.8,
    predicted_tokens_per_second_low=300.0,
    predicted_tokens_per_second_high=580.0,
    trials=(Trial(dataclasses.replace(PROPOSER, model_id="drafter"), 700.0),),
)
ALONE = Plan(VERIFIER, None, None, 0, 179.0, 179.0, 0.0, 0.0, False, 13_000_000, (), (), True)


def test_a_pair_is_told_with_everything_that_the_prediction_stands_on() -> None:
    text = "\n".join(plan_lines(PAIR))
    for words in (
        "tiny on mini-1 (127.0.0.1:1)",
        "ngram on mini-2 (127.0.0.1:2)",
        "grpc, round trip 0.42 ms",
        "8 drafted tokens",
        "0.61 (0.45 to 0.80) a drafted token, measured",
        "300 tok/s to 580 tok/s in four of five sessions",
        "will try     drafter on mini-2 (127.0.0.1:2): up to 700 tok/s",
        "412 tok/s, 2.30x the verifier alone (179 tok/s)",
        "12.4 MiB at most, sink_window",
        "- why",
    ):
        assert words in text


def test_alone_nothing_is_said_of_drafts() -> None:
    text = "\n".join(plan_lines(ALONE))
    assert "none: the verifier decodes alone" in text
    assert "block size" not in text
    assert prediction_text(ALONE) == "179 tok/s, alone"
    assert pair_text(ALONE) == "tiny on mini-1, alone"


def test_a_plan_says_whom_the_tokens_go_to() -> None:
    third = dataclasses.replace(PROPOSER, node_name="mini-3")
    fourth, fifth = (dataclasses.replace(PROPOSER, node_name=name) for name in ("mini-4", "mini-5"))
    assert readers_text(ALONE) == "mini-1"
    assert readers_text(PAIR) == "mini-1, mini-2"
    tried = dataclasses.replace(PAIR, trials=(Trial(third, 1.0),))
    assert readers_text(tried) == "mini-1, mini-2, mini-3"
    archived = dataclasses.replace(tried, archive=fourth)
    assert readers_text(archived).endswith("; keys and values of what is evicted to mini-4")
    ranges = (ArchiveRange(fourth, 0, 8192), ArchiveRange(fifth, 8192, 9000))
    shared = dataclasses.replace(archived, archives=ranges)
    assert readers_text(shared).endswith("evicted to mini-4, mini-5")
    assert f"  tokens go to {readers_text(shared)}" in plan_lines(shared)


def test_a_pair_that_is_not_exact_is_never_told_like_one_that_is() -> None:
    risky = dataclasses.replace(PAIR, exact=False)
    warning = [line for line in plan_lines(risky) if "WARNING" in line]
    assert warning == [
        "  WARNING      not exact: drafts can change tokens of tiny on mini-1",
    ]
    assert "not exact" in pair_text(risky)
    for plan in (PAIR, ALONE):
        assert "not exact" not in "\n".join([*plan_lines(plan), pair_text(plan)])


def test_every_rejection_is_told_with_its_pair_its_reason_and_its_numbers() -> None:
    rejections = (
        Rejection(VERIFIER, PROPOSER, RejectionReason.SLOWER_THAN_ALONE, "90.1 against 179.", 90.1),
        Rejection(VERIFIER, None, RejectionReason.NOT_ENOUGH_MEMORY, "2 GiB of 1 GiB.", 0.0),
    )
    lines = plan_lines(dataclasses.replace(ALONE, rejections=rejections))
    assert lines[-5:] == [
        "rejected",
        "  - ngram on mini-2 for mini-1: slower than alone",
        "    90.1 against 179.",
        "  - tiny on mini-1: not enough memory",
        "    2 GiB of 1 GiB.",
    ]


def test_archives_are_told_with_their_ranges_when_several_share_a_session() -> None:
    places = [Placement(name * 8, f"mini-{name}", f"10.0.0.{name}:1", "") for name in "34"]
    ranges = (ArchiveRange(places[0], 4, 8192), ArchiveRange(places[1], 8192, 30_000))
    one = dataclasses.replace(ALONE, archive=places[0], archives=ranges[:1])
    assert "  archive      mini-3 (10.0.0.3:1)" in plan_lines(one)
    assert pair_text(one) == "tiny on mini-1, evicted positions on mini-3, alone"
    assert pair_text(dataclasses.replace(one, archives=())) == pair_text(one)
    both = dataclasses.replace(one, archives=ranges)
    lines = plan_lines(both)
    at = lines.index("  archives     mini-3 (10.0.0.3:1), positions 4 to 8,191")
    assert "  predicted    179 tok/s, alone, with the archive" in lines
    assert lines[at + 1] == "               mini-4 (10.0.0.4:1), positions 8,192 to 29,999"
    assert pair_text(both) == "tiny on mini-1, evicted positions on mini-3 and mini-4, alone"
