"""What the asked node knows of its fleet's authority."""

from __future__ import annotations

import grpc.aio

from kakeya.v1 import trust_pb2, trust_pb2_grpc
from kakeya_fleet.fleet.diagnosis.finding import Finding, not_run
from kakeya_fleet.node.cli.doctor.site import ANSWER_SECONDS, Site


async def asked_trust(site: Site, check: str) -> trust_pb2.GetTrustResponse | Finding | None:
    """None in a fleet without an authority; a finding of `check` where it cannot be told."""
    if site.agent is None:
        return not_run(check, site.absence or "It is told on the node's own machine.")
    if not site.agent.local_address:
        return None
    async with grpc.aio.insecure_channel(site.agent.local_address) as channel:
        stub = trust_pb2_grpc.TrustServiceStub(channel)
        try:
            return await stub.GetTrust(trust_pb2.GetTrustRequest(), timeout=ANSWER_SECONDS)
        except grpc.aio.AioRpcError as error:
            return not_run(check, f"The node did not tell: {error.details()}.")
