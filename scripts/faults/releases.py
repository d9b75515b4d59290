"""Row 30: this release beside the one before, while every node is upgraded in turn."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Literal

from kakeya import AsyncClient, KakeyaError
from scripts.faults.row import NotRunHere, Outcome, Row
from scripts.faults.scene import Scene, see_each_other, until
from scripts.faults.streams import PROMPT
from scripts.support import previous_release
from scripts.support.agent_process import AgentProcess

TALKS = 4
ANSWERS, ANSWER_TOKENS = 60, 32
"""Of one session at most: the shipped model has 2,048 positions."""
PAUSE_SECONDS = 0.5
NEW, OLD = "this release", "the one before"


@dataclass
class Talks:
    """Sessions that go on and on, each opened before the upgrade and never again."""

    expected: list[int] = field(default_factory=list)
    answer_count: int = 0
    failures: list[str] = field(default_factory=list)
    differing_token_count: int = 0
    resumption_count: int = 0
    is_over: asyncio.Event = field(default_factory=asyncio.Event)

    async def go_on(self, client: AsyncClient, speculation: Literal["auto", "off"]) -> None:
        """Asks until it is over."""
        try:
            session = await client.create_session(
                "tiny", kv_strategy="sink_window", speculation=speculation, resume=True
            )
            await session.append(PROMPT)
            found: list[int] = []
            for _ in range(ANSWERS):
                answer = await session.generate(ANSWER_TOKENS).collect()
                found += answer.token_ids
                self.answer_count += 1
                if self.is_over.is_set():
                    break
                await asyncio.sleep(PAUSE_SECONDS)
            pairs = zip(found, self.expected, strict=False)
            self.differing_token_count += sum(one != other for one, other in pairs)
            self.resumption_count += len(session.resumptions)
            await session.close()
        except KakeyaError as error:
            beyond = error.metadata.get("resumption_failure", "")
            self.failures.append(f"{error.reason}: {error}; {beyond}")


async def rolling_upgrade(scene: Scene) -> Outcome:
    """Row 30."""
    missing = previous_release.what_is_missing()
    if missing:
        raise NotRunHere(missing)
    sources = scene.folder / "release_before"
    await asyncio.to_thread(previous_release.unpack, sources)

    async def start(name: str, release: str, *peers: AgentProcess) -> AgentProcess:
        own, there = {}, []
        if release == OLD:
            own["PYTHONPATH"] = previous_release.python_path(sources)
            # `python -m` looks where it is started before all else.
            there = ["env", "-C", str(sources)]
        agent = scene.start(
            name,
            "verifier=tiny",
            "proposer=ngram",
            peers=[each.address for each in peers],
            environment={"KAKEYA_DRAIN_SECONDS": "0.1", **own},
            behind=lambda words: [*there, *words],
        )
        await asyncio.to_thread(lambda: agent.ready)
        return agent

    a = await start("a", OLD)
    b = await start("b", OLD, a)
    await see_each_other([a, b])
    talks = Talks()
    clients = [await scene.client(each) for each in (a, b)]
    async with await clients[0].create_session(
        "tiny", kv_strategy="sink_window", speculation="off"
    ) as alone:
        await alone.append(PROMPT)
        for _ in range(ANSWERS):
            talks.expected += (await alone.generate(ANSWER_TOKENS).collect()).token_ids
    running = [
        asyncio.create_task(
            talks.go_on(clients[number % 2], "off" if number < TALKS // 2 else "auto")
        )
        for number in range(TALKS)
    ]
    await until(lambda: talks.answer_count >= TALKS)
    # As `fleet upgrade` does: one node drains, ends and starts anew, then the next one.
    await asyncio.to_thread(a.stop)
    a = await start("a", NEW, b)
    await see_each_other([a, b])
    beside = talks.answer_count
    await asyncio.to_thread(b.stop)
    b = await start("b", NEW, a)
    await see_each_other([a, b])
    talks.is_over.set()
    await asyncio.gather(*running)
    answers = talks.answer_count
    return Outcome(
        not talks.failures and talks.differing_token_count == 0 and talks.resumption_count >= TALKS,
        f"both of two nodes from the release before ({previous_release.COMMIT[:8]}) to this one: "
        f"{TALKS} sessions gave {answers} answers, {beside} of them before the second node was "
        f"stopped, and went on elsewhere {talks.resumption_count} times; {len(talks.failures)} "
        f"failed, {talks.differing_token_count} tokens differ",
        {
            "release_before": previous_release.COMMIT,
            "sessions": TALKS,
            "answers": answers,
            "resumptions": talks.resumption_count,
            "failures": talks.failures,
            "differing_token_count": talks.differing_token_count,
        },
    )


ROWS = (
    Row(30, "rolling upgrade, N and N+1 side by side", "no failed session", rolling_upgrade, 400.0),
)
