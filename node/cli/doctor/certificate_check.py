"""The certificate of the asked node, and the keepers of its fleet."""

from __future__ import annotations

import time

import grpc.aio

from kakeya import Liveness
from kakeya.v1 import trust_pb2, trust_pb2_grpc
from kakeya_fleet.fleet.diagnosis import certificates
from kakeya_fleet.fleet.diagnosis.finding import Finding, not_run
from kakeya_fleet.node.cli.doctor.site import ANSWER_SECONDS, Site
from kakeya_fleet.node.trust.certificates import MEMBER_LIFE


async def check(site: Site) -> list[Finding]:
    """Asks the local agent; another machine's node is asked there."""
    if site.agent is None:
        return [
            not_run(certificates.CHECK, site.absence or "It is told on the node's own machine.")
        ]
    if not site.agent.local_address:
        return certificates.certificates(None)
    async with grpc.aio.insecure_channel(site.agent.local_address) as channel:
        stub = trust_pb2_grpc.TrustServiceStub(channel)
        try:
            trust = await stub.GetTrust(trust_pb2.GetTrustRequest(), timeout=ANSWER_SECONDS)
        except grpc.aio.AioRpcError as error:
            return [not_run(certificates.CHECK, f"The node did not tell: {error.details()}.")]
    alive = {each.node_id for each in site.nodes if each.liveness is Liveness.ALIVE}
    keepers = [each.node_id for each in trust.keepers]
    return certificates.certificates(
        certificates.Membership(
            left=trust.certificate_ends_unix - time.time(),
            life=MEMBER_LIFE.total_seconds(),
            keeper_count=len(keepers),
            reached_count=sum(each in alive for each in keepers),
            tensors_in_clear=trust.tensors_in_clear,
        )
    )
