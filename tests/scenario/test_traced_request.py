"""One request through gateway, verifier, proposer and archive, as `fleet trace` shows it."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kakeya import AsyncClient, NodeStatus
from scripts.support.agent_process import AgentProcess, LocalFleet
from tests.support.commands import Terminal
from tests.warm.starting import WarmStarts

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CLIENT_SPAN = "00f067aa0ba902b7"
PROMPT = [*range(300, 340)] * 3


def completed(gateway: AgentProcess, **headers: str) -> tuple[dict[str, str], dict[str, object]]:
    """The headers and the body of the answer to a completion."""
    body = {
        "model": "tiny",
        "prompt": PROMPT,
        "max_tokens": 40,
        # A sampled answer may end before.
        "temperature": 0,
        "kakeya": {
            "kv_strategy": "restored",
            "window_tokens": 32,
            "speculation": {"proposer_model": "ngram", "block_size": 2},
        },
    }
    request = urllib.request.Request(
        f"http://{gateway.ready['http_address']}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", **headers},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return dict(response.headers), json.load(response)
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{error}: {error.read().decode()}") from error


def offers(node: NodeStatus) -> int:
    """Models, and an archive: a node is known before its card has them."""
    return len(node.models) + (node.card is not None and node.card.archive is not None)


async def known(agent: AgentProcess, others: Sequence[AgentProcess]) -> None:
    """Waits until the agent knows the others, what they serve, and how far they are."""
    wanted = {(other.node_id, len(other.options.serve)) for other in others}
    async with AsyncClient(agent.address) as client, client.fleet.watch() as events:
        async for _ in events:
            nodes = await client.fleet.nodes()
            if wanted <= {(n.node_id, offers(n)) for n in nodes if n.round_trip_seconds}:
                return
    raise AssertionError("the watch ended")


def test_a_requests_time_line_goes_over_all_its_nodes(
    fleet: LocalFleet, tmp_path: Path, warm_starts: WarmStarts
) -> None:
    gateway = fleet.start("gateway")
    verifier = fleet.start("verifier", serve=("verifier=tiny",), peers=(gateway.address,))
    others = [
        fleet.start("proposer", serve=("proposer=ngram",), peers=(gateway.address,)),
        fleet.start("archive", serve=("archive=64MiB",), peers=(gateway.address,)),
    ]
    asyncio.run(known(verifier, [gateway, *others]))
    asyncio.run(known(gateway, [verifier, *others]))
    header = f"00-{TRACE}-{CLIENT_SPAN}-01"
    headers, _body = completed(gateway, traceparent=header)
    request_id = headers["x-request-id"]
    terminal = Terminal(tmp_path, warm_starts)

    def traced(asked: str) -> list[dict[str, Any]]:
        words = ("trace", asked, "--json", "--node", verifier.address)
        spans: list[dict[str, Any]] = terminal.run(*words).json["spans"]
        return spans

    by_trace = traced(TRACE)
    # A proposer's stream is told once it has ended, a moment behind the session.
    while not any("ProposerService" in span["name"] for span in by_trace):
        by_trace = traced(TRACE)
    by_id = traced(request_id)
    assert {span["span_id"] for span in by_id} == {span["span_id"] for span in by_trace}
    assert {span["trace_id"] for span in by_id} == {TRACE}
    named = {span["name"]: span for span in by_id}
    post = named["POST /v1/completions"]
    assert (post["node_name"], post["parent_span_id"]) == ("gateway", CLIENT_SPAN)
    assert post["depth"] == 0
    of_session = {
        "/kakeya.v1.RuntimeService/CreateSession": "verifier",
        "/kakeya.v1.RuntimeService/Generate": "verifier",
        "/kakeya.v1.ArchiveService/OpenArchive": "archive",
        "/kakeya.v1.ProposerService/Draft": "proposer",
        "generation": "verifier",
    }
    # The gateway refuses a session, and says who has the model.
    assert of_session.items() <= {(span["name"], span["node_name"]) for span in by_id}
    generate = named["/kakeya.v1.RuntimeService/Generate"]
    assert generate["parent_span_id"] == post["span_id"]
    assert named["generation"]["parent_span_id"] == generate["span_id"]
    assert named["/kakeya.v1.ProposerService/Draft"]["parent_span_id"] == generate["span_id"]
    attributes = {each["name"]: each["value"] for each in named["generation"]["attributes"]}
    assert attributes["tokens"] == "40"
    told = json.dumps(by_id)
    assert not any(f" {token}," in told or f'"{token}"' in told for token in set(PROMPT))
    words = ("trace", request_id, "--node", gateway.address)
    shown = terminal.run(*words).out
    assert "POST /v1/completions" in shown
    assert "proposer" in shown
    words = ("trace", "nobody", "--node", gateway.address)
    unknown = terminal.run(*words)
    assert unknown.code == 3
    assert "no node knows a request 'nobody'" in unknown.err
