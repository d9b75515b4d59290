"""Traces of a real node at a collector that parses what it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol, cast

import pytest
import structlog
from aiohttp import web
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from kakeya.v1 import runtime_pb2, runtime_pb2_grpc
from kakeya_fleet.fleet.placement.plan import KvStrategy
from kakeya_fleet.node.config.config import build
from kakeya_fleet.node.errors import BadConfig
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.roles.verifier.observer import Outcome
from kakeya_fleet.node.roles.verifier.open_session import OpenSession
from kakeya_fleet.node.tracing import starting
from kakeya_fleet.node.tracing.session_traces import SessionTraces
from kakeya_fleet.node.tracing.starting import TracesExtraMissing, start_traces, traces_url
from kakeya_fleet.node.tracing.trace_export import MOST_WAITING, TraceExport
from kakeya_fleet.node.tracing.traced import TracedGeneration, TracedSession
from tests.node.conftest import Eventually, RunningAgent, Scrape, StartAgent, next_message
from tests.support.patience import PATIENCE_SECONDS

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PROMPT = [index * 7 % 90 for index in range(40)]


@dataclass
class Collector:
    """Takes OTLP over HTTP; `status` is what it answers, once it is `open`."""

    url: str = ""
    status: int = 200
    resources: list[dict[str, str]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    open: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self, request: web.Request) -> web.Response:
        await self.open.wait()
        assert request.path == "/v1/traces"
        message = otlp.ExportTraceServiceRequest.FromString(await request.read())
        if self.status == 200:
            for sent in message.resource_spans:
                self.resources.append(attributes(sent.resource))
                for scope in sent.scope_spans:
                    self.spans += scope.spans
        return web.Response(status=self.status)

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]


class Attributed(Protocol):
    """A resource, a span or an event of one."""

    @property
    def attributes(self) -> Iterable[KeyValue]: ...


def attributes(of: Attributed) -> dict[str, Any]:
    def value(any_value: AnyValue) -> Any:
        kind = any_value.WhichOneof("value")
        assert kind is not None
        if kind == "array_value":
            return [value(each) for each in any_value.array_value.values]
        return getattr(any_value, kind)

    return {each.key: value(each.value) for each in of.attributes}


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    collector = Collector()
    collector.open.set()
    app = web.Application(client_max_size=64 << 20)
    app.router.add_post("/{path:.*}", collector.take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    collector.url = "http://{}:{}".format(*runner.addresses[0])
    yield collector
    collector.open.set()
    await runner.cleanup()


@pytest.fixture
async def node(
    start_agent: StartAgent, collector: Collector, random_checkpoint: Callable[..., Path]
) -> RunningAgent:
    model = random_checkpoint()
    return await start_agent(
        serve=(f"verifier={model}", "proposer=ngram"), traces_endpoint=collector.url
    )


async def opened(
    node: RunningAgent, proposer: str = "ngram"
) -> tuple[runtime_pb2_grpc.RuntimeServiceAsyncStub, str, str]:
    """A session with the prompt, and its stub."""
    stub = runtime_pb2_grpc.RuntimeServiceStub(node.channel)
    model = next(each["model_id"] for each in node.ready["models"] if each["role"] == "verifier")
    speculation = runtime_pb2.Speculation(
        mode=runtime_pb2.SPECULATION_MODE_FIXED,
        proposer_model_id=proposer,
        proposer_node_id=node.node_id,
    )
    session = await stub.CreateSession(
        runtime_pb2.CreateSessionRequest(model_id=model, speculation=speculation)
    )
    await stub.AppendTokens(
        runtime_pb2.AppendTokensRequest(session_id=session.session_id, token_ids=PROMPT)
    )
    return stub, session.session_id, model


async def test_a_generation_is_a_span_of_its_callers_trace(
    node: RunningAgent, collector: Collector, eventually: Eventually
) -> None:
    stub, session_id, model = await opened(node)
    request = runtime_pb2.GenerateRequest(session_id=session_id, max_tokens=60)
    call = stub.Generate(request, metadata=(("traceparent", f"00-{TRACE}-{PARENT}-01"),))
    done = [message async for message in call][-1].done

    async def arrived() -> bool:
        return bool(collector.named("generation"))

    await eventually(arrived)
    [span] = collector.named("generation")
    assert span.trace_id.hex() == TRACE
    assert span.parent_span_id.hex() == PARENT
    said = attributes(span)
    assert said["gen_ai.request.model"] == model
    assert said["gen_ai.usage.output_tokens"] == 60
    assert said["kakeya.session_id"] == session_id
    assert said["kakeya.kv_strategy"] == "sink_window"
    assert said["kakeya.end"] == "max_tokens"
    assert said["kakeya.proposer.model"] == "ngram"
    assert said["kakeya.acceptance_length"] == pytest.approx(done.speculation.acceptance_length)
    assert said["kakeya.drafted_tokens"] == done.speculation.drafted_count
    assert span.start_time_unix_nano < span.end_time_unix_nano

    blocks = [event for event in span.events if event.name == "block"]
    assert len(blocks) == said["kakeya.blocks"] == done.speculation.verify_forward_count
    assert sum(attributes(block)["committed"] for block in blocks) == 60
    assert all(attributes(block)["verify_seconds"] > 0 for block in blocks)
    assert [event.name for event in span.events].count("first_token") == 1

    [prefill] = collector.named("prefill")
    assert prefill.parent_span_id == span.span_id
    assert attributes(prefill)["kakeya.prefill.tokens"] == len(PROMPT) - 1
    assert prefill.start_time_unix_nano < prefill.end_time_unix_nano <= span.start_time_unix_nano
    [resource] = collector.resources
    assert resource["service.name"] == "kakeya-node"
    assert resource["host.name"] == "mini-1"
    assert resource["service.instance.id"] == node.node_id


async def test_callers_traces_do_not_mix_and_one_that_leaves_is_told_apart(
    node: RunningAgent, collector: Collector, eventually: Eventually
) -> None:
    other = TRACE[::-1]
    stub, session_id, _ = await opened(node)
    for trace in (TRACE, other, ""):
        header = (("traceparent", f"00-{trace}-{PARENT}-01"),) if trace else ()
        request = runtime_pb2.GenerateRequest(session_id=session_id, max_tokens=3)
        async for _message in stub.Generate(request, metadata=header):
            pass
    call = stub.Generate(runtime_pb2.GenerateRequest(session_id=session_id, max_tokens=100_000))
    await next_message(call)
    call.cancel()

    async def arrived() -> bool:
        return len(collector.named("generation")) == 4

    await eventually(arrived)
    first, second, alone, left = collector.named("generation")
    assert [attributes(span)["kakeya.end"] for span in (first, left)] == ["max_tokens", "left"]
    assert attributes(left)["gen_ai.usage.output_tokens"] > 0
    assert first.trace_id.hex() == TRACE
    assert second.trace_id.hex() == other
    assert alone.trace_id.hex() not in {TRACE, other}
    assert alone.parent_span_id == b""


async def test_a_collector_that_is_silent_costs_no_session_anything(
    node: RunningAgent, collector: Collector, eventually: Eventually, scrape: Scrape
) -> None:
    collector.open.clear()
    stub, session_id, _ = await opened(node)
    for _ in range(3):
        request = runtime_pb2.GenerateRequest(session_id=session_id, max_tokens=5)
        async with asyncio.timeout(PATIENCE_SECONDS):
            messages = [message async for message in stub.Generate(request)]
        assert messages[-1].done.generated_token_count == 5
    # Otherwise the node would wait its two seconds for the collector.
    collector.open.set()


def traced(block_count: int = 0) -> TracedGeneration:
    session = TracedSession("s", "tiny", "full", "")
    return TracedGeneration(session, "", 1, [], block_count=block_count, end_ns=2)


async def counted(metrics: NodeMetrics, eventually: Eventually, fate: str, count: int) -> None:
    async def so() -> bool:
        labels = {"fate": fate}
        found = metrics.registry.get_sample_value("kakeya_trace_spans_total", labels) or 0.0
        return found >= count

    await eventually(so)


async def test_what_the_collector_refuses_is_counted_and_told_once(
    collector: Collector, metrics: NodeMetrics, eventually: Eventually
) -> None:
    collector.status = 400
    with structlog.testing.capture_logs() as log:
        export = TraceExport(f"{collector.url}/v1/traces", {}, metrics)
        export.put(traced())
        await counted(metrics, eventually, "dropped", 1)
        export.put(traced())
        await counted(metrics, eventually, "dropped", 2)
        collector.status = 200
        export.put(traced())
        await counted(metrics, eventually, "sent", 1)
        await asyncio.to_thread(export.close)
    # Another test's may still be giving up on a collector that has gone.
    told = [each["event"] for each in log if str(each.get("endpoint")).startswith(collector.url)]
    assert told == ["traces_refused", "traces_accepted"]


async def test_a_full_queue_drops_and_never_waits(
    collector: Collector, metrics: NodeMetrics, eventually: Eventually
) -> None:
    collector.open.clear()
    export = TraceExport(f"{collector.url}/v1/traces", {}, metrics)
    for _ in range(MOST_WAITING + 200):
        export.put(traced())
    await counted(metrics, eventually, "dropped", 100)
    collector.open.set()
    await counted(metrics, eventually, "sent", MOST_WAITING)
    await asyncio.to_thread(export.close)


async def test_what_waits_is_sent_at_the_end(collector: Collector, metrics: NodeMetrics) -> None:
    export = TraceExport(f"{collector.url}/v1/traces", {}, metrics)
    for _ in range(100):
        export.put(traced())
    await asyncio.to_thread(export.close)
    assert len(collector.spans) == 100


def test_a_session_that_ends_leaves_nothing_behind() -> None:
    handed: list[TracedGeneration] = []
    traces = SessionTraces(handed.append, lambda: 1)
    spec = SimpleNamespace(model_id="tiny", kv_strategy=KvStrategy.FULL, restorer=None)
    # What traces look at of a session.
    session = cast("OpenSession", SimpleNamespace(session_id="s", spec=spec))
    traces.prefilled(session, 5, 0.1)
    traces.began(session)
    traces.prefilled(session, 5, 0.1)
    traces.ended(session, Outcome.CLOSED)
    traces.left(session)
    assert len(handed) == 1
    assert handed[0].session == TracedSession("s", "tiny", "full", "")
    assert not traces._prefills
    assert not traces._running


def test_without_the_extra_the_mend_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "_NEEDED", ("opentelemetry_is_not_here.sdk",))
    with pytest.raises(TracesExtraMissing, match=r"pip install 'kakeya-fleet\[traces\]'"):
        start_traces("http://127.0.0.1:4318", {}, NodeMetrics())


def test_a_collectors_address_gets_the_usual_path() -> None:
    assert traces_url("http://127.0.0.1:4318") == "http://127.0.0.1:4318/v1/traces"
    assert traces_url("http://127.0.0.1:4318/") == "http://127.0.0.1:4318/v1/traces"
    assert traces_url("https://otel.example/x/traces") == "https://otel.example/x/traces"


@pytest.mark.parametrize("endpoint", ["127.0.0.1:4318", "grpc://a:1", "http://", "http://[::1"])
def test_another_kind_of_endpoint_is_refused(endpoint: str) -> None:
    with pytest.raises(BadConfig, match="traces_endpoint"):
        build({"traces_endpoint": endpoint}, {})
