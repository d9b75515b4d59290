import math
import re
import time

import pytest
from prometheus_client import CollectorRegistry, Histogram, Metric
from prometheus_client.metrics import MetricWrapperBase

from kakeya_fleet.engine.speculation.generation_report import DropReason, StopReason
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.metrics.tallied_histogram import TalliedHistogram
from kakeya_fleet.node.roles.verifier.observer import Outcome


def names(metrics: NodeMetrics) -> set[str]:
    return {sample.name for family in metrics.registry.collect() for sample in family.samples}


def wrappers(metrics: NodeMetrics) -> list[MetricWrapperBase | TalliedHistogram]:
    return [
        each
        for each in vars(metrics).values()
        if isinstance(each, MetricWrapperBase | TalliedHistogram)
    ]


def describe(wrapper: MetricWrapperBase | TalliedHistogram) -> list[Metric]:
    return list(wrapper.describe())


def test_names_follow_the_conventions(metrics: NodeMetrics) -> None:
    metrics.sessions.labels(outcome="closed").inc()
    found = names(metrics)
    assert all(name.startswith("kakeya_") and ":" not in name for name in found)
    assert {
        "kakeya_sessions_active",
        "kakeya_sessions_total",
        "kakeya_spec_decode_num_draft_tokens_total",
        "kakeya_spec_decode_num_accepted_tokens_total",
        "kakeya_time_to_first_token_seconds_bucket",
        "kakeya_kv_bytes",
    } <= found


def test_each_metric_has_its_unit_and_a_sentence(metrics: NodeMetrics) -> None:
    for wrapper in wrappers(metrics):
        [described] = describe(wrapper)
        assert described.documentation.endswith("."), described.name
        for unit in ("seconds", "bytes"):
            if re.search(rf"_{unit}(_|$)", described.name):
                assert described.name.endswith(f"_{unit}"), described.name


def test_each_metric_is_registered_once_and_kept(metrics: NodeMetrics) -> None:
    registered = {family.name for family in metrics.registry.collect()}
    kept = [describe(wrapper)[0].name for wrapper in wrappers(metrics)]
    assert sorted(kept) == sorted(registered)


def test_labels_of_closed_sets_are_told_in_the_text(metrics: NodeMetrics) -> None:
    said = {
        metrics.sessions: [each.value for each in Outcome],
        metrics.generations: [*(each.value for each in StopReason), "left"],
        metrics.proposer_drops: [each.value for each in DropReason],
    }
    for wrapper, values in said.items():
        for value in values:
            assert value in describe(wrapper)[0].documentation


def test_two_nodes_of_a_process_count_apart(metrics: NodeMetrics) -> None:
    other = NodeMetrics()
    metrics.tokens_generated.inc(7)
    assert other.registry.get_sample_value("kakeya_tokens_generated_total") == 0


@pytest.mark.parametrize(
    ("accept", "kind", "last"),
    [
        ("", "text/plain", None),
        ("text/plain;q=0.5", "text/plain", None),
        (
            "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
            "application/openmetrics-text",
            b"# EOF\n",
        ),
    ],
)
def test_the_text_has_the_format_that_is_asked_for(
    metrics: NodeMetrics, accept: str, kind: str, last: bytes | None
) -> None:
    metrics.tokens_generated.inc(7)
    body, content_type = metrics.exposition(accept)
    assert content_type.startswith(kind)
    assert b"kakeya_tokens_generated_total 7.0" in body
    assert body.endswith(b"# EOF\n") == (last is not None)


def test_the_process_memory_is_measured(metrics: NodeMetrics) -> None:
    resident = metrics.registry.get_sample_value("kakeya_process_resident_bytes")
    assert resident is not None
    assert resident > 1e6


def test_shares_of_cores_are_no_number_before_they_are_known(metrics: NodeMetrics) -> None:
    names = [f"kakeya_{kind}_used_ratio" for kind in ("cpu", "process_cpu", "accelerator")]

    def told() -> list[float | None]:
        return [metrics.registry.get_sample_value(name) for name in names]

    assert all(value is not None and math.isnan(value) for value in told())
    metrics.tell_use(0.5, 0.0, None)
    host, own, accelerator = told()
    assert (host, own) == (0.5, 0.0)
    assert accelerator is not None
    assert math.isnan(accelerator)
    assert "kakeya_accelerator_used_ratio NaN" in metrics.exposition()[0].decode()


def test_seconds_of_cores_grow_with_what_the_process_does(metrics: NodeMetrics) -> None:
    def told() -> float:
        metrics.tell_use(None, None, None)
        seconds = metrics.registry.get_sample_value("kakeya_process_cpu_seconds_total")
        assert seconds is not None
        return seconds

    before = told()
    began = time.process_time()
    while time.process_time() - began < 0.01:
        pass
    assert told() >= before + 0.01


def test_a_tallied_histogram_counts_as_the_usual_one_does() -> None:
    registry, bounds = CollectorRegistry(), (0.001, 0.01, 0.1)
    usual = Histogram("kakeya_a_seconds", "A.", registry=registry, buckets=bounds)
    tallied = TalliedHistogram("kakeya_b_seconds", "B.", registry=registry, buckets=bounds)
    for value, count in ((0.0, 1), (0.001, 3), (0.0011, 2), (0.05, 1), (7.0, 4)):
        tallied.observe(value, count)
        for _ in range(count):
            usual.observe(value)

    def samples(letter: str) -> dict[tuple[str, str | None], float]:
        return {
            (sample.name.replace(f"_{letter}_", "_"), sample.labels.get("le")): sample.value
            for family in registry.collect()
            for sample in family.samples
            if f"_{letter}_" in sample.name and not sample.name.endswith("_created")
        }

    assert samples("a") == pytest.approx(samples("b"))
