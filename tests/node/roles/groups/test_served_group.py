"""A node whose verifier is a group: a lost group costs its sessions, never the node."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import grpc.aio
import pytest

from kakeya.v1 import placement_pb2, runtime_pb2
from kakeya_fleet.engine.contracts.verifier import Verifier
from kakeya_fleet.engine.errors import DeviceUnavailable
from kakeya_fleet.engine.verifiers.exactness import Exactness
from kakeya_fleet.fleet.cards.card import Role
from kakeya_fleet.fleet.hostfiles.hostfile import HostfileError
from kakeya_fleet.node.config.backoff import Backoff
from kakeya_fleet.node.config.role_spec import BadRoleSpec
from kakeya_fleet.node.errors import BadGroup, GroupNotStarted
from kakeya_fleet.node.roles.expected_roles import ExpectedRoles
from kakeya_fleet.node.roles.groups.group_settings import GroupLimits, GroupSource
from kakeya_fleet.node.roles.settings import RoleSettings
from kakeya_fleet.node.roles.verifier import verifier_loading
from tests.node.conftest import next_message
from tests.support import calls
from tests.support import neighbourhood as nodes
from tests.support import rank_groups as groups
from tests.support.hash_verifier import ROW_COUNTS
from tests.support.patience import PATIENCE_SECONDS

LIMITS = GroupLimits(silence_seconds=1.5, start_seconds=PATIENCE_SECONDS, again=Backoff(0.05, 60.0))
PROMPT = [(7 * index + index * index) % 48 for index in range(60)]


def known_exact(_verifier: Verifier, _arithmetic: str) -> Exactness:
    """What `tests/engine/group/test_group_verifier.py` finds out about hashes on ranks."""
    return Exactness(exact=True, row_counts=ROW_COUNTS, thread_count=1)


@pytest.fixture(autouse=True)
def hash_ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ranks without weights, that come back soon; none may be left."""
    monkeypatch.setattr(verifier_loading, "settle_once", known_exact)
    monkeypatch.setattr(
        "kakeya_fleet.node.roles.groups.rank_starting.rank_command", groups.hash_rank_command
    )
    yield
    assert groups.ranks_of() == []


def settings_of(path: Path, backend: str = "auto") -> RoleSettings:
    source = GroupSource(path, limits=LIMITS)
    return RoleSettings(kv_budget_bytes=1 << 20, group=source, backend=backend)


async def filled(caller: calls.Caller, history: list[int]) -> str:
    """A session with this history."""
    session_id = await caller.open(model_id="hash", sink=3, window=13)
    await caller.append(session_id, history)
    return session_id


async def stream_of(caller: calls.Caller, session_id: str, count: int) -> list[int]:
    found = await caller.generate(session_id, count)
    return found.token_ids


async def restores_nothing_and_says_so(caller: calls.Caller) -> None:
    request = runtime_pb2.CreateSessionRequest(
        model_id="hash",
        kv_strategy=placement_pb2.KV_STRATEGY_RESTORED,
        sink_tokens=3,
        window_tokens=13,
        restorer=placement_pb2.Restorer(kind=placement_pb2.RESTORER_KIND_ARCHIVE),
    )
    told = await caller.refusal("CreateSession", request)
    assert (told.code, told.reason) == (grpc.StatusCode.UNIMPLEMENTED, "KV_STRATEGY_UNSUPPORTED")
    assert "group of ranks" in told.text


async def test_a_lost_group_ends_its_sessions_by_name_and_comes_back(tmp_path: Path) -> None:
    """One rank is frozen; `tests/scenario/test_verifier_group.py` kills one."""
    async with nodes.Neighbourhood() as around:
        node = await around.start(
            "grouped",
            "verifier=hash",
            "proposer=ngram",
            settings=settings_of(groups.write_hostfile(tmp_path)),
        )
        caller = calls.Caller(node.channel)
        offer = node.roles.offers()[0]
        assert (offer.model_id, offer.rank_count, offer.exact) == ("hash", 2, True)
        await restores_nothing_and_says_so(caller)
        node.roles.changed.clear()
        whole = await stream_of(caller, await filled(caller, PROMPT), 80)
        lost = await filled(caller, PROMPT)
        idle = await filled(caller, PROMPT)
        received: list[int] = []
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            request = runtime_pb2.GenerateRequest(session_id=lost, max_tokens=100_000)
            async for message in caller.stub.Generate(request, timeout=60):
                received += message.tokens.token_ids
                if len(received) >= 40 and groups.ranks_of():
                    for rank in groups.ranks_of()[1:]:
                        rank.send_signal(signal.SIGSTOP)
        told = calls.refused(ended.value)
        assert (told.code, told.reason) == (grpc.StatusCode.UNAVAILABLE, "GROUP_LOST")
        assert told.retry_seconds
        # "rank 1 ended", or "lost with a rank" when the group was given up before the next step.
        assert "rank" in told.text
        assert received[: len(whole)] == whole[: len(received)]
        await asyncio.wait_for(node.roles.changed.wait(), PATIENCE_SECONDS)
        for session_id in (lost, idle):
            with pytest.raises(grpc.aio.AioRpcError) as gone:
                await caller.info(session_id)
            assert calls.refused(gone.value).reason == "GROUP_LOST"
        # The other role goes on.
        assert Role.PROPOSER in {offer.role for offer in node.roles.offers()}
        await calls.until(lambda: Role.VERIFIER in node.roles.served())
        assert node.roles.offers()[0].rank_count == 2
        assert node.roles.load_numbers().session_count == 0
        history = PROMPT + received[:40]
        resumed = await filled(caller, history)
        assert whole[:40] + await stream_of(caller, resumed, 40) == whole


async def test_a_group_that_does_not_come_back_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with nodes.Neighbourhood() as around:
        path = groups.write_hostfile(tmp_path)
        node = await around.start("grouped", "verifier=hash", settings=settings_of(path))
        tries = []

        def command() -> list[str]:
            tries.append(1)
            if len(tries) == 2:
                raise RuntimeError("a fault that nobody thought of")
            return ["/no/such/python"] if len(tries) < 4 else groups.hash_rank_command()

        monkeypatch.setattr("kakeya_fleet.node.roles.groups.rank_starting.rank_command", command)
        groups.ranks_of()[0].kill()
        await calls.until(lambda: not node.roles.offers())
        await calls.until(node.roles.offers)
        assert len(tries) == 5


HERE = '{"ssh": "localhost", "ips": ["127.0.0.1"]}'
UNUSABLE = [
    (None, BadGroup, "cannot be read"),
    ("{", HostfileError, "line 1"),
    ('{"backend": "gloo", "hosts": []}', HostfileError, "no host"),
    ('[{"ssh": "localhost"}, {"ssh": "localhost"}]', BadGroup, "names no backend"),
    (f'{{"backend": "gloo", "hosts": [{HERE}]}}', BadGroup, "has one rank"),
    (
        f'{{"backend": "gloo", "hosts": [{HERE}, {{"ssh": "mini-2", "ips": ["10.9.9.9"]}}]}}',
        BadGroup,
        "do not reach 127.0.0.1",
    ),
    (
        f'{{"backend": "ring", "hosts": [{HERE}, {HERE}]}}',
        BadGroup,
        r"is for mlx \(ring\), and the back end is torch",
    ),
]


async def test_a_hostfile_that_cannot_be_used_says_why(tmp_path: Path) -> None:
    path = tmp_path / "hosts.json"
    for text, error, words in UNUSABLE:
        if text is not None:
            path.write_text(text, "utf-8")
        roles = nodes.roles_of("verifier=hash", settings=settings_of(path, backend="torch"))
        with pytest.raises(error, match=words):
            await roles.load()
        await roles.close()


async def test_a_group_on_a_device_of_torchs_is_refused(tmp_path: Path) -> None:
    settings = replace(settings_of(groups.write_hostfile(tmp_path)), device="cuda")
    roles = nodes.roles_of("verifier=hash", settings=settings)
    with pytest.raises(DeviceUnavailable, match="the ranks of a group choose"):
        await roles.load()
    await roles.close()


def test_a_group_serves_one_verifier(tmp_path: Path) -> None:
    source = GroupSource(groups.write_hostfile(tmp_path))
    for specs in (["verifier=a", "verifier=b"], ["proposer=ngram"]):
        with pytest.raises(BadRoleSpec, match="a hostfile serves one"):
            ExpectedRoles(specs, source)


async def test_a_node_may_leave_while_its_group_starts(tmp_path: Path) -> None:
    """Who waits for the group is cancelled; the group still ends in order."""
    settings = settings_of(groups.write_hostfile(tmp_path))
    roles = nodes.roles_of("verifier=late", settings=settings)
    loading = asyncio.create_task(roles.load())
    await calls.until(lambda: len(groups.ranks_of()) == 2)
    with pytest.MonkeyPatch.context() as patched:
        faults: list[object] = []
        patched.setattr(threading, "excepthook", faults.append)
        loading.cancel()
        await roles.close()
        await asyncio.wait([loading])
        assert groups.ranks_of() == []
        assert faults == []


async def test_a_node_that_leaves_does_not_wait_for_a_frozen_rank(tmp_path: Path) -> None:
    source = GroupSource(
        groups.write_hostfile(tmp_path), limits=replace(LIMITS, silence_seconds=60.0)
    )
    async with nodes.Neighbourhood() as around:
        settings = RoleSettings(kv_budget_bytes=1 << 20, group=source)
        node = await around.start("grouped", "verifier=hash", settings=settings)
        caller = calls.Caller(node.channel)
        session_id = await filled(caller, PROMPT)
        frozen = groups.ranks_of()[1]
        request = runtime_pb2.GenerateRequest(session_id=session_id, max_tokens=100_000)
        stream = caller.stub.Generate(request, timeout=60)
        assert (await next_message(stream)).tokens.token_ids
        frozen.send_signal(signal.SIGSTOP)
        # By then a step waits for it.
        await asyncio.sleep(0.2)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await node.roles.close()
        stream.cancel()


async def test_a_node_that_cannot_start_its_group_does_not_start(tmp_path: Path) -> None:
    path = groups.write_hostfile(tmp_path)
    source = GroupSource(path, limits=replace(LIMITS, start_seconds=1.0))
    roles = nodes.roles_of("verifier=late", settings=RoleSettings(group=source))
    with pytest.raises(GroupNotStarted, match="the time was up"):
        await roles.load()
    assert roles.offers() == ()
    await roles.close()
