"""All metrics of one node."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from node.metrics.archives import ArchiveFamilies
from node.metrics.fleet import FleetFamilies
from node.metrics.http import HttpFamilies
from node.metrics.links import LinkFamilies
from node.metrics.rpc import RpcFamilies
from node.metrics.sessions import SessionFamilies
from node.metrics.speculation import SpeculationFamilies


class NodeMetrics(
    SessionFamilies,
    SpeculationFamilies,
    LinkFamilies,
    ArchiveFamilies,
    FleetFamilies,
    RpcFamilies,
    HttpFamilies,
):
    """The node's metrics. Thread-safe; one a node, so that two can share a process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        SessionFamilies.__init__(self, self.registry)
        SpeculationFamilies.__init__(self, self.registry)
        LinkFamilies.__init__(self, self.registry)
        ArchiveFamilies.__init__(self, self.registry)
        FleetFamilies.__init__(self, self.registry)
        RpcFamilies.__init__(self, self.registry)
        HttpFamilies.__init__(self, self.registry)
