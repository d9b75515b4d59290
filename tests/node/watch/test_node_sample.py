"""Samples, and what of a report people notice."""

from kakeya.v1 import capability_pb2 as wire
from kakeya.v1 import placement_pb2
from kakeya_fleet.node.watch.node_sample import (
    KEPT_SECONDS,
    Levels,
    SampleRing,
    Totals,
    sample_between,
)
from kakeya_fleet.node.watch.notable import notable_part


def test_rates_are_means_over_the_time_that_passed() -> None:
    before = Totals(100, 10, 7, 5, 3, 2, 1000)
    after = Totals(150, 40, 17, 11, 9, 6, 5000)
    sample = sample_between(before, after, 2.0, Levels(session_count=4), 9.0)
    assert sample.tokens_per_second == 25.0
    assert sample.prefill_tokens_per_second == 15.0
    assert (sample.drafted_count, sample.accepted_count, sample.verify_forward_count) == (10, 6, 6)
    assert (sample.drafts_per_second, sample.link_bytes_per_second) == (2.0, 2000.0)
    assert (sample.levels.session_count, sample.at_unix) == (4, 9.0)


def test_the_ring_keeps_fifteen_minutes_and_gives_the_latest() -> None:
    ring = SampleRing()
    for second in range(1000):
        ring.add(sample_between(Totals(), Totals(), 1.0, Levels(), float(second)))
    assert len(ring.latest(KEPT_SECONDS)) == 900
    assert [sample.at_unix for sample in ring.latest(3.0)] == [997.0, 998.0, 999.0]
    assert ring.latest(0.0) == ()


def report(**fields: object) -> wire.GetNodeResponse:
    made = wire.GetNodeResponse(
        links=[wire.PeerLink(node_id="n", round_trip_seconds=0.001)],
        tensor_links=[
            wire.TensorLinkStatus(
                peer_node_id="n", transport=placement_pb2.TRANSPORT_LOCAL, byte_count=5
            )
        ],
        acceptances=[wire.MeasuredAcceptance(acceptance_rate=0.5, drafted_count=9)],
    )
    made.load.session_count = 1
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_trembling_means_nothing() -> None:
    other = report()
    other.links[0].round_trip_seconds = 0.00105
    other.load.memory_free_bytes = 12345
    other.load.cpu_share, other.load.process_cpu_share = 0.5, 0.0
    other.tensor_links[0].byte_count = 99
    other.tensor_links[0].changed_seconds_ago = 4.0
    other.acceptances[0].acceptance_rate = 0.501
    other.card.sequence = 3
    assert notable_part(other) == notable_part(report())


def test_what_people_notice_means_something() -> None:
    changed = [report(draining=True)]
    for change in (
        lambda r: setattr(r.load, "session_count", 2),
        lambda r: setattr(r.links[0], "breaker_open", True),
        lambda r: setattr(r.links[0], "round_trip_seconds", 0.01),
        lambda r: setattr(r.tensor_links[0], "transport", 2),
        lambda r: setattr(r.acceptances[0], "acceptance_rate", 0.6),
        lambda r: r.card.models.add(model_id="m"),
    ):
        changed.append(report())
        change(changed[-1])
    meanings = {notable_part(each) for each in (report(), *changed)}
    assert len(meanings) == len(changed) + 1
