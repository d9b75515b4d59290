"""A verifier over several processes: a rank that dies costs a replay, and the node lives on.

That the group is started again is held by tests of a served group, whose ranks start at once.
"""

import asyncio
import ipaddress
import json
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from kakeya import AsyncClient, Completion, FleetSnapshot, GroupLost, NodeChanged, NodeStatus, Role
from scripts.support.agent_process import LocalFleet
from tests.support.patience import PATIENCE_SECONDS

MAX_TOKENS = 200
IN_FLOAT32 = {"KAKEYA_DTYPE": "float32"}
"""In which the sums of two ranks choose what one process chooses; in bfloat16 they need not."""
SILENCE_SECONDS = "4"


def ranks_of(pid: int) -> list[psutil.Process]:
    """The rank processes of an agent, rank 0 first."""
    found = [
        child
        for child in psutil.Process(pid).children(recursive=True)
        if "kakeya_fleet.node.roles.groups.rank_process" in child.cmdline()
    ]
    return sorted(found, key=lambda child: int(child.environ()["KAKEYA_GROUP_RANK"]))


def listening(process: psutil.Process) -> set[str]:
    """Addresses at which it listens."""
    return {
        entry.laddr.ip
        for entry in process.net_connections("tcp")
        if entry.status == psutil.CONN_LISTEN
    }


async def serving(client: AsyncClient, node_id: str, wanted: bool) -> int:
    """Waits until the node's card has a verifier, or has none; the card's sequence."""
    async with asyncio.timeout(PATIENCE_SECONDS), client.fleet.watch() as events:
        async for event in events:
            nodes: tuple[NodeStatus, ...] = ()
            if isinstance(event, FleetSnapshot):
                nodes = event.nodes
            elif isinstance(event, NodeChanged):
                nodes = (event.node,)
            for node in nodes:
                roles = {model.role for model in node.models}
                if node.node_id == node_id and (Role.VERIFIER in roles) == wanted:
                    # The node itself and its other role were there all the time.
                    assert Role.PROPOSER in roles
                    assert node.card is not None
                    return node.card.sequence
    raise AssertionError("the watch ended")


@pytest.mark.wide
@pytest.mark.timeout(240)
async def test_sessions_of_a_lost_group_resume_elsewhere_and_the_node_lives_on(
    fleet: LocalFleet,
    tmp_path: Path,
    prompt: tuple[int, ...],
    generate: Callable[..., Awaitable[Completion]],
) -> None:
    hosts = [{"ssh": "localhost", "ips": ["127.0.0.1"]}] * 2
    hostfile = tmp_path / "hosts.json"
    hostfile.write_text(json.dumps({"backend": "gloo", "hosts": hosts}), "utf-8")
    grouped = fleet.start(
        "grouped",
        serve=("verifier=tiny", "proposer=ngram"),
        environment={
            "KAKEYA_GROUP": str(hostfile),
            "KAKEYA_GROUP_DEADLINE_SECONDS": SILENCE_SECONDS,
            **IN_FLOAT32,
        },
    )
    single = fleet.start(
        "single", serve=("verifier=tiny",), peers=(grouped.address,), environment=IN_FLOAT32
    )
    ranks = ranks_of(grouped.pid)
    assert len(ranks) == 2
    # Ranks of one host are reached from nowhere else.
    addresses = {address for rank in ranks for address in listening(rank)}
    assert addresses
    assert all(ipaddress.ip_address(address).is_loopback for address in addresses), addresses
    async with AsyncClient(grouped.address) as client, AsyncClient(single.address) as other:
        whole = await generate(other, prompt, MAX_TOKENS)
        session = await client.create_session(
            "tiny", speculation="off", sink_tokens=4, window_tokens=16
        )
        # No cut of the history into blocks changes a bit of what the ranks add up.
        assert session.model.exact
        await session.append(prompt)
        before = await serving(other, grouped.node_id, wanted=True)
        killed = False
        with pytest.raises(GroupLost, match="rank 1"), grouped.slowed():
            async for _ in session.generate(MAX_TOKENS):
                if not killed and session.history_length >= len(prompt) + MAX_TOKENS // 3:
                    killed = True
                    ranks[1].send_signal(signal.SIGKILL)
        received = session.history[len(prompt) :]
        assert MAX_TOKENS // 3 <= len(received) < MAX_TOKENS
        assert received == whole.token_ids[: len(received)]
        gone = await serving(other, grouped.node_id, wanted=False)
        assert before < gone
        assert grouped.running
        # Whatever ranks it starts anew by then end with it.
        ranks += ranks_of(grouped.pid)
        grouped.kill()
        rest = await generate(other, session.history, MAX_TOKENS - len(received))
        assert received + rest.token_ids == whole.token_ids
    _, left = psutil.wait_procs(ranks, timeout=PATIENCE_SECONDS)
    assert not left
