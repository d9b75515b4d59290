"""A fleet with an authority: its keeper's node runs, and others are let in as a test wants.

A test module's fixture `home` is imported from here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from kakeya import AsyncClient, Liveness, Tls
from kakeya.rpc_status import kakeya_error
from kakeya.v1 import trust_pb2, trust_pb2_grpc
from kakeya_fleet.fleet.trust.keys import ApplicationKey
from kakeya_fleet.node.trust.application_keys import ApplicationKeys
from kakeya_fleet.node.trust.certificates import MEMBER_NAME
from kakeya_fleet.node.trust.tls import authorities_pem, channel_options
from kakeya_fleet.node.trust.trust import Trust
from scripts.attack.calls import OVER_WHILE_WRITING
from tests.node.conftest import RunningAgent, StartAgent
from tests.support.members import channel_to, first_keeper, member
from tests.support.patience import PATIENCE_SECONDS

HERE = "127.0.0.1:0"

Metadata = tuple[tuple[str, str], ...]


def bearer(key: str) -> Metadata:
    """What a call carries that shows a key."""
    return (("authorization", f"Bearer {key}"),)


@dataclass
class Home:
    """A keeper's node `a` that runs, and what is needed for others."""

    a: RunningAgent
    keeper: Trust
    folder: Path
    start_agent: StartAgent

    def let_in(self, name: str, *, age: float = 0.0) -> Trust:
        return member(self.folder / name, self.keeper, age=age)

    async def start(self, name: str, **flags: object) -> RunningAgent:
        return await self.start_agent(name, **{"bind": HERE, "peers": [self.a.address]} | flags)

    def own(self, name: str = "a") -> Metadata:
        """What the owner of a node shows."""
        key = (self.folder / name / "trust" / "owner.key").read_text().strip()
        return bearer(key)

    async def key(self, name: str, **fields: Any) -> str:
        """A new key of the fleet, made at `a`."""
        async with grpc.aio.insecure_channel(str(self.a.ready["local_address"])) as channel:
            stub = trust_pb2_grpc.TrustServiceStub(channel)
            request = trust_pb2.CreateKeyRequest(name=name, **fields)
            return str(
                (await stub.CreateKey(request, metadata=self.own(), timeout=PATIENCE_SECONDS)).key
            )

    async def revoke_key(self, name: str) -> None:
        async with grpc.aio.insecure_channel(str(self.a.ready["local_address"])) as channel:
            stub = trust_pb2_grpc.TrustServiceStub(channel)
            request = trust_pb2.RevokeKeyRequest(key=name)
            await stub.RevokeKey(request, metadata=self.own(), timeout=PATIENCE_SECONDS)

    def channels(
        self, caller: Trust
    ) -> tuple[grpc.aio.Channel, grpc.aio.Channel, grpc.aio.Channel]:
        """To each of `a`'s ports: of its own machine, of members as `caller`, of applications."""
        credentials = grpc.ssl_channel_credentials(authorities_pem(self.keeper))
        return (
            grpc.aio.insecure_channel(str(self.a.ready["local_address"])),
            channel_to(self.a.address, caller),
            grpc.aio.secure_channel(
                str(self.a.ready["applications_address"]), credentials, options=channel_options("")
            ),
        )

    def tls(self) -> Tls:
        """How an application knows the fleet's nodes."""
        return Tls(authorities_pem(self.keeper), server_name=MEMBER_NAME)

    def application(self, key: str, agent: RunningAgent | None = None) -> AsyncClient:
        """A client with a key, on a machine that is no member."""
        address = str((agent or self.a).ready["applications_address"])
        return AsyncClient(address, api_key=key, tls=self.tls())


@pytest.fixture
async def home(tmp_path: Path, fleet_name: str, start_agent: StartAgent) -> Home:
    keeper = first_keeper(tmp_path / "a", fleet_name)
    a = await start_agent("a", bind=HERE)
    return Home(a, keeper, tmp_path, start_agent)


def keys_of(agent: RunningAgent) -> tuple[ApplicationKey, ...]:
    """Keys that a node knows."""
    trust = agent.node.ground.trust
    assert trust is not None
    return ApplicationKeys(trust).all()


def local(agent: RunningAgent) -> AsyncClient:
    return AsyncClient(str(agent.ready["local_address"]))


async def known(agent: RunningAgent) -> set[str]:
    async with local(agent) as client:
        nodes = await client.fleet.nodes()
    return {each.node_id for each in nodes if each.liveness is Liveness.ALIVE}


async def refusal(call: Awaitable[object]) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return kakeya_error(caught.value, "").reason


async def reason_of(channel: grpc.aio.Channel, path: str, metadata: Metadata) -> str:
    """Why a call with an empty request was refused; empty when it was not."""
    while (found := await _end_of(channel, path, metadata)) is not None:
        if OVER_WHILE_WRITING not in (found.details() or ""):
            return kakeya_error(found, "").reason
        # A refusal that came while the request was written: gRPC hides it (grpc/grpc#36066).
    return ""


async def _end_of(
    channel: grpc.aio.Channel, path: str, metadata: Metadata
) -> grpc.aio.AioRpcError | None:
    async def requests() -> AsyncIterator[bytes]:
        yield b""

    method: Any = channel.stream_stream(path)
    call = method(requests(), metadata=metadata, timeout=PATIENCE_SECONDS)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await call.read()
            call.cancel()
    except grpc.aio.AioRpcError as error:
        return error
    return None
