import urllib.request

import pytest

from node.errors import PortInUse
from node.metrics import NodeMetrics, serve_metrics


def names(metrics: NodeMetrics) -> set[str]:
    return {sample.name for family in metrics.registry.collect() for sample in family.samples}


def test_names_follow_the_conventions(metrics):
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


def test_two_nodes_of_a_process_count_apart(metrics):
    other = NodeMetrics()
    metrics.tokens_generated.inc(7)
    assert other.registry.get_sample_value("kakeya_tokens_generated_total") == 0


def test_served_at_metrics(metrics):
    metrics.tokens_generated.inc(7)
    server = serve_metrics(metrics, "127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"http://{server.address}/metrics", timeout=5) as answer:
            text = answer.read().decode()
    finally:
        server.close()
    assert "kakeya_tokens_generated_total 7.0" in text


def test_a_port_in_use_is_named(metrics):
    server = serve_metrics(metrics, "127.0.0.1", 0)
    port = int(server.address.rpartition(":")[2])
    try:
        with pytest.raises(PortInUse, match=rf"{port}.*--metrics-bind"):
            serve_metrics(metrics, "127.0.0.1", port)
    finally:
        server.close()
    serve_metrics(metrics, "127.0.0.1", port).close()
