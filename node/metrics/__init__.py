"""Every Prometheus metric of the node, on a registry of its own.

`_seconds` and `_bytes` are units, `_total` marks what only rises. Label values
come from closed sets, so that no peer can make series grow without bound.
"""

from kakeya_fleet.node.metrics.node_metrics import NodeMetrics

__all__ = ["NodeMetrics"]
