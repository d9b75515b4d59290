"""Sessions of a fleet with an authority: what they evict goes to a sealed archive, same tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from kakeya.v1 import placement_pb2, runtime_pb2
from kakeya_fleet.node.roles.settings import RoleSettings
from kakeya_fleet.node.rpc.channels import Channels
from kakeya_fleet.node.trust.trust import Trust
from tests.support import calls
from tests.support import neighbourhood as nodes

PROMPT = [(7 * index + index // 11) % 96 for index in range(180)]
MAX_TOKENS = 8


def settings_of(trust: Trust | None) -> RoleSettings:
    return RoleSettings(kv_budget_bytes=64 << 20, trust=trust, channels=Channels(trust))


async def restored_stream(caller: calls.Caller) -> tuple[list[int], Any]:
    """The tokens of a session with an archive, and what it says of itself."""
    session = await caller.stub.CreateSession(
        runtime_pb2.CreateSessionRequest(
            model_id="random",
            kv_strategy=placement_pb2.KV_STRATEGY_RESTORED,
            sink_tokens=4,
            window_tokens=32,
            speculation=runtime_pb2.Speculation(mode=runtime_pb2.SPECULATION_MODE_OFF),
        ),
        timeout=30,
    )
    await caller.append(session.session_id, PROMPT)
    tokens = (await caller.generate(session.session_id, MAX_TOKENS)).token_ids
    return tokens, await caller.info(session.session_id)


async def test_a_session_with_a_sealed_archive_has_the_tokens_of_a_plain_one(
    fleet: list[Trust], checkpoint: Path
) -> None:
    found = []
    for here, there in ((None, None), (fleet[0], fleet[1])):
        ids = [each.node_id if each is not None else "" for each in (here, there)]
        async with nodes.Neighbourhood() as around:
            archive = await around.start(
                ids[0] or "archive", "archive=64MiB", settings=settings_of(here)
            )
            verifier = await around.start(
                ids[1] or "verifier", f"verifier={checkpoint}", settings=settings_of(there)
            )
            tokens, info = await restored_stream(calls.Caller(verifier.channel))
            found.append(tokens)
            assert len(tokens) == MAX_TOKENS
            assert info.restorer.rebuild_count == 0
            assert archive.metric("kakeya_archive_query_seconds_count") > 0
            # A node that is no member gets no archive of theirs, and no session with one.
            if here is None:
                continue
            stranger = await around.start(
                fleet[2].node_id, f"verifier={checkpoint}", settings=settings_of(None)
            )
            with pytest.raises(grpc.aio.AioRpcError, match="archive"):
                await restored_stream(calls.Caller(stranger.channel))
    assert found[0] == found[1]
