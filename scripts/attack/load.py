"""All that a busy node is for, at once, and for long.

    python -m scripts.attack.load --seconds 600 --out benchmarks/load.json

One agent with the smallest shipped models. Sessions are opened and closed at a rate, others
generate one answer after the other, watches stay open and say nothing, and restored sessions
use their archives. Told are what the agent held in each tenth of the time, what of its bounds
was still taken when all had left, how soon it answered the control plane meanwhile, who was
refused, and how evenly those who generate were served.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import grpc.aio

from kakeya import AsyncClient, AsyncSession, KakeyaError
from kakeya.v1 import (
    capability_pb2,
    capability_pb2_grpc,
    placement_pb2,
    runtime_pb2,
    runtime_pb2_grpc,
)
from scripts.attack.calls import reason_of
from scripts.attack.readings import SAMPLE_SECONDS, Readings
from scripts.attack.subject import MODEL, PROMPT, Subject, attacked
from scripts.bench.machine import command, machine, write_report
from scripts.bench.soak_agent import SINK, WINDOW
from scripts.support.child_process import ChildProcess

OPENERS = 32
"""Callers who open and close, so that one late answer holds up few."""
FIRST_TOKENS = PROMPT[:4]
"""Few: it is not how long a prompt takes that is tried here."""
GENERATED = 16
RESTORED_TOKENS = 128
"""Of a restored session before it is closed and another one opened, so that as much is evicted at
the end as at the beginning: memory for what is evicted grows with it, by doubling."""
WATCHES_A_CONNECTION = 100
"""As HTTP/2 servers commonly allow."""


class Load:
    """What callers did, and what became of it."""

    def __init__(self, subject: Subject, arguments: argparse.Namespace, stack: AsyncExitStack):
        self.leaving = False
        self.opened = 0
        self.refused: Counter[str] = Counter()
        self.tokens: Counter[int] = Counter()
        self.watched: Counter[str] = Counter()
        self._subject = subject
        self._arguments = arguments
        self._stack = stack

    def callers(self) -> list[Coroutine[object, object, None]]:
        """All others: each goes on until it is cancelled."""
        asked = self._arguments
        generating = [self._generates(number) for number in range(asked.generations)]
        watches = []
        for number in range(asked.watches):
            if number % WATCHES_A_CONNECTION == 0:
                channel = self._channel()
                self._stack.push_async_callback(channel.close)
            watches.append(self._watches(channel))
        archives = [self._restores(number) for number in range(asked.archives)]
        return [*generating, *watches, *archives]

    def _channel(self) -> grpc.aio.Channel:
        # Callers with the same options would share one connection.
        options = (("grpc.use_local_subchannel_pool", 1),)
        return grpc.aio.insecure_channel(self._subject.address, options=options)

    def openers(self) -> list[Coroutine[object, object, None]]:
        """They open and close until `leaving`."""
        ticks = itertools.count()
        began = time.perf_counter()
        rate = self._arguments.sessions_per_second
        return [self._opens(lambda: began + next(ticks) / rate) for _ in range(OPENERS)]

    async def _opens(self, next_at: Callable[[], float]) -> None:
        request = runtime_pb2.CreateSessionRequest(
            model_id=MODEL,
            sink_tokens=SINK,
            window_tokens=WINDOW,
            kv_strategy=placement_pb2.KV_STRATEGY_SINK_WINDOW,
        )
        async with self._channel() as channel:
            stub = runtime_pb2_grpc.RuntimeServiceStub(channel)
            # Cancelled between the two calls it would leave a session behind, as it may.
            while not self.leaving:
                await asyncio.sleep(max(0.0, next_at() - time.perf_counter()))
                try:
                    opened = await stub.CreateSession(request, timeout=60)
                    closing = runtime_pb2.CloseSessionRequest(session_id=opened.session_id)
                    await stub.CloseSession(closing, timeout=60)
                except grpc.aio.AioRpcError as error:
                    self.refused[f"open {error.code().name} {reason_of(error)}"] += 1
                    continue
                self.opened += 1

    async def _generates(self, number: int) -> None:
        await self._answers(number, "generate", itertools.repeat(None), kv_strategy="sink_window")

    async def _restores(self, number: int) -> None:
        # The first ones are shorter by turns, so that they do not end all at once.
        first = RESTORED_TOKENS * (number + 1) // self._arguments.archives
        lengths = itertools.chain([first], itertools.repeat(RESTORED_TOKENS))
        await self._answers(-1, "restore", lengths, kv_strategy="restored")

    async def _answers(
        self, number: int, kind: str, lengths: Iterable[int | None], *, kv_strategy: str
    ) -> None:
        """Sessions one after the other, each of so many tokens; None for its model's context."""
        async with AsyncClient(self._subject.address) as client:
            for length in lengths:
                try:
                    async with await opened(client, kv_strategy) as session:
                        room = session.model.context_length - len(FIRST_TOKENS)
                        for _ in range(max(1, min(room, length or room) // GENERATED)):
                            answer = await session.generate(GENERATED).collect()
                            self.tokens[number] += len(answer.token_ids)
                except KakeyaError as error:
                    self.refused[f"{kind} {error.reason}"] += 1
                    await asyncio.sleep(1.0)

    async def _watches(self, channel: grpc.aio.Channel) -> None:
        stub = capability_pb2_grpc.CapabilityServiceStub(channel)
        while True:
            try:
                async for _ in stub.WatchFleet(capability_pb2.WatchFleetRequest()):
                    self.watched["messages"] += 1
            except grpc.aio.AioRpcError as error:
                self.refused[f"watch {error.code().name} {reason_of(error)}"] += 1
                await asyncio.sleep(1.0)


async def opened(client: AsyncClient, kv_strategy: str) -> AsyncSession:
    """A session. Cancelled before it is there it would leave it behind, as it may: it is closed."""
    opening = asyncio.ensure_future(
        client.create_session(
            MODEL,
            tokens=FIRST_TOKENS,
            kv_strategy=kv_strategy,
            sink_tokens=SINK,
            window_tokens=WINDOW,
            speculation="off",
        )
    )
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        await (await opening).close()
        raise


async def sees_most(subject: Subject, most: Counter[str]) -> None:
    """Keeps in `most` the most that it has seen used of each bound, until it is cancelled.

    One look is not enough: a caller that has just closed its session holds nothing.
    """
    while True:
        most |= Counter(await subject.used())
        await asyncio.sleep(SAMPLE_SECONDS)


async def run(subject: Subject, arguments: argparse.Namespace) -> dict[str, object]:
    """The whole run, and what it told."""
    await subject.differing_answers()
    before, used_before = subject.report(), await subject.used()
    used: Counter[str] = Counter()
    began = time.perf_counter()
    readings = Readings(subject.held, lambda: time.perf_counter() - began)
    async with AsyncExitStack() as stack:
        load = Load(subject, arguments, stack)
        opening = [asyncio.create_task(each) for each in load.openers()]
        looking = (readings.run(), sees_most(subject, used))
        tasks = [asyncio.create_task(each) for each in (*load.callers(), *looking)]
        with ChildProcess("scripts.attack.control_probe", [subject.address]) as probe:
            done, _ = await asyncio.wait(
                (*tasks, *opening),
                timeout=arguments.seconds,
                return_when=asyncio.FIRST_EXCEPTION,
            )
            seconds = time.perf_counter() - began
            by_tenth = readings.by_tenth()
            probe.end_input()
            answered = json.loads(await asyncio.to_thread(probe.hear))
        load.leaving = True
        for task in tasks:
            task.cancel()
        await asyncio.wait((*tasks, *opening))
        for task in done:
            task.result()
    generated = [load.tokens[number] for number in range(arguments.generations)]
    median = statistics.median(generated)
    return {
        "seconds": seconds,
        "sessions_opened_and_closed": load.opened,
        "sessions_per_second": load.opened / seconds,
        "tokens_per_second": sum(load.tokens.values()) / seconds,
        "least_over_median_tokens": min(generated) / median if median else None,
        "messages_of_watches": load.watched["messages"],
        "refused": dict(load.refused),
        "control_plane_ms": {name: quantiles(found) for name, found in answered.items()},
        "held_before": before,
        "held_by_tenth": by_tenth,
        "held_after": subject.report(),
        "used_before": used_before,
        "most_used": dict(used),
        "used_after": await subject.used_again(used_before),
        "stalls": await subject.stalls(),
        "log": subject.log_faults(),
        "answers_that_differ": await subject.differing_answers(),
    }


def quantiles(found: Sequence[float]) -> dict[str, float]:
    """What people read of it."""
    ordered = sorted(found)
    return {
        "count": len(ordered),
        "p50": ordered[len(ordered) // 2],
        "p99": ordered[99 * len(ordered) // 100],
        "most": ordered[-1],
    }


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--sessions-per-second", type=float, default=300.0)
    parser.add_argument("--generations", type=int, default=256)
    parser.add_argument("--watches", type=int, default=1000)
    parser.add_argument("--archives", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/load.json"))
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    """Starts the agent, loads it, writes the report."""
    arguments = parse(words)
    with attacked("load") as subject:
        found = asyncio.run(run(subject, arguments))
    asked = {name: value for name, value in vars(arguments).items() if name != "out"}
    report = {"command": command(__file__), "machine": machine(), "asked": asked, **found}
    write_report(arguments.out, report)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
