from dataclasses import asdict, replace

import pytest

from kakeya.generated import wire as sdk_wire
from kakeya.v1 import placement_pb2
from kakeya_fleet.fleet.placement.plan import (
    ArchiveRange,
    Placement,
    Plan,
    Rejection,
    RejectionReason,
    Transport,
    Trial,
)
from kakeya_fleet.node.planning.plan_wire import plan_to_wire

VERIFIER = Placement("aa", "mini-1", "10.0.0.1:1", "tiny")
PROPOSER = Placement("bb", "mini-2", "10.0.0.2:1", "ngram")
PLAN = Plan(
    verifier=VERIFIER,
    proposer=PROPOSER,
    transport=Transport.GRPC,
    block_size=8,
    predicted_tokens_per_second=200.0,
    predicted_alone_tokens_per_second=100.0,
    round_trip_seconds=0.5,
    acceptance_rate=0.75,
    acceptance_measured=True,
    kv_bytes=2**40,
    reasons=("why",),
    rejections=(
        Rejection(VERIFIER, PROPOSER, RejectionReason.NOT_EXACT, "Drafts could change it.", 7.0),
    ),
    exact=True,
    archive=Placement("cc", "mini-3", "10.0.0.3:1", "drafter"),
    archives=(
        ArchiveRange(Placement("cc", "mini-3", "10.0.0.3:1", "drafter"), 4, 8192),
        ArchiveRange(Placement("dd", "mini-4", "10.0.0.4:1", "drafter"), 8192, 2**40),
    ),
    acceptance_rate_low=0.5,
    acceptance_rate_high=0.875,
    predicted_tokens_per_second_low=110.0,
    predicted_tokens_per_second_high=250.0,
    exploring=True,
    trials=(Trial(Placement("ee", "mini-5", "10.0.0.5:1", "drafter"), 300.0),),
    stand_in=Trial(Placement("ff", "mini-6", "10.0.0.6:1", "ngram"), 200.0),
)


def test_every_field_of_a_plan_reaches_the_client() -> None:
    assert all(getattr(PLAN, name) for name in PLAN.__slots__), "a default proves nothing"
    message = placement_pb2.Plan.FromString(plan_to_wire(PLAN).SerializeToString())
    # Both sides' values have the same names, and their enums the same texts.
    assert asdict(sdk_wire.plan(message)) == asdict(PLAN)


@pytest.mark.parametrize("exact", [True, False])
def test_a_pair_that_is_not_exact_stays_so_over_the_wire(exact: bool) -> None:
    assert plan_to_wire(replace(PLAN, exact=exact)).exact is exact
