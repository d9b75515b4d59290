"""All metrics of one node."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from kakeya_fleet.node.metrics.admission import AdmissionFamilies
from kakeya_fleet.node.metrics.archives import ArchiveFamilies
from kakeya_fleet.node.metrics.fleet import FleetFamilies
from kakeya_fleet.node.metrics.http import HttpFamilies
from kakeya_fleet.node.metrics.links import LinkFamilies
from kakeya_fleet.node.metrics.machine import MachineFamilies
from kakeya_fleet.node.metrics.rpc import RpcFamilies
from kakeya_fleet.node.metrics.sessions import SessionFamilies
from kakeya_fleet.node.metrics.speculation import SpeculationFamilies


class NodeMetrics(
    SessionFamilies,
    SpeculationFamilies,
    LinkFamilies,
    ArchiveFamilies,
    FleetFamilies,
    MachineFamilies,
    RpcFamilies,
    HttpFamilies,
    AdmissionFamilies,
):
    """The node's metrics. Thread-safe; one a node, so that two can share a process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        SessionFamilies.__init__(self, self.registry)
        SpeculationFamilies.__init__(self, self.registry)
        LinkFamilies.__init__(self, self.registry)
        ArchiveFamilies.__init__(self, self.registry)
        FleetFamilies.__init__(self, self.registry)
        MachineFamilies.__init__(self, self.registry)
        RpcFamilies.__init__(self, self.registry)
        HttpFamilies.__init__(self, self.registry)
        AdmissionFamilies.__init__(self, self.registry)

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """All samples of now as text, and its content type.

        OpenMetrics when the Accept header asks for it, else Prometheus' own text format.
        """
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type
