"""TensorService by hand: what opens, what is refused and by which name, what comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any, Self

import grpc
import numpy as np
import pytest
import pytest_asyncio
from grpc.aio import StreamStreamCall

from kakeya.v1 import placement_pb2, tensor_pb2_grpc
from kakeya.v1 import tensor_pb2 as wire
from kakeya_fleet.engine.backends import make_encoder
from kakeya_fleet.engine.contracts.feature_encoder import EncoderWeights
from kakeya_fleet.engine.contracts.features import FeatureSpec
from kakeya_fleet.fleet.cards.card import ModelKind, ModelOffer, Role
from kakeya_fleet.node.admission.limits import LinkServingLimits
from kakeya_fleet.node.links.features.encoder_fetch import (
    EncoderShelf,
    EncoderUnavailable,
    ProposerAddress,
    fetch_encoder,
)
from kakeya_fleet.node.links.features.feature_inbox import FEATURES, FeatureInbox
from kakeya_fleet.node.links.features.feature_links import (
    ConditionedProposer,
    FeatureLinks,
    weights_tensor,
)
from kakeya_fleet.node.links.protocol.contract import LinkPurpose
from kakeya_fleet.node.links.protocol.tensor import from_floats, to_floats
from kakeya_fleet.node.links.transport.link_table import LinkTable
from kakeya_fleet.node.links.transport.open_links import OpenLinks
from kakeya_fleet.node.links.transport.tensor_service import TensorServicer
from kakeya_fleet.node.links.transport.wire import message_to_wire
from kakeya_fleet.node.metrics import NodeMetrics
from kakeya_fleet.node.rpc.error_interceptor import ErrorInterceptor
from tests.node.conftest import next_message
from tests.support import calls
from tests.support.allowances import allowances_of
from tests.support.patience import PATIENCE_SECONDS
from tests.support.tensor_chunks import chunks_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

Stream = StreamStreamCall[wire.StreamTensorsRequest, wire.StreamTensorsResponse]
TAPS, HIDDEN, WIDTH = (0, 1), 300, 480
Code = grpc.StatusCode


class Served:
    """A server with one drafter's TensorService and nothing else."""

    def __init__(self, weights: EncoderWeights) -> None:
        self.metrics = NodeMetrics()
        self.now = 0.0
        settings = LinkServingLimits(at_once=4, idle_seconds=10.0)
        self.table = LinkTable(lambda: self.now, allowances_of(links=settings))
        proposers = {"drafter": ConditionedProposer(weights, HIDDEN, "target" * 8)}
        self.features = FeatureLinks(proposers, self.table)
        self.servicer = TensorServicer(
            self.table,
            self.metrics,
            OpenLinks(metrics=self.metrics),
            {LinkPurpose.FEATURES: self.features},
        )
        self.server = grpc.aio.server(interceptors=[ErrorInterceptor(self.metrics)])
        tensor_pb2_grpc.add_TensorServiceServicer_to_server(self.servicer, self.server)
        self.port = self.server.add_insecure_port("127.0.0.1:0")

    async def __aenter__(self) -> Self:
        await self.server.start()
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{self.port}")
        self.stub = tensor_pb2_grpc.TensorServiceStub(self.channel)
        return self

    async def __aexit__(self, *_exit: object) -> None:
        await self.channel.close()
        await self.server.stop(0)

    async def open(self, **fields: Any) -> wire.OpenLinkResponse:
        return await self.stub.OpenLink(opening(**fields), timeout=PATIENCE_SECONDS)

    async def stream(self, link_id: str, want_encoder: bool = False) -> Stream:
        call = self.stub.StreamTensors(timeout=PATIENCE_SECONDS)
        first = wire.StreamOpening(link_id=link_id, want_encoder=want_encoder)
        await call.write(wire.StreamTensorsRequest(opening=first))
        await call.initial_metadata()
        return call

    def inbox(self, link_id: str) -> FeatureInbox:
        found = self.features.inbox(link_id)
        assert found is not None
        return found

    def refused(self, fault: str) -> float:
        labels = {"fault": fault}
        return self.metrics.registry.get_sample_value("kakeya_tensors_refused_total", labels) or 0


def opening(**fields: Any) -> wire.OpenLinkRequest:
    return wire.OpenLinkRequest(
        **{"purpose": wire.LINK_PURPOSE_FEATURES, "model_id": "drafter", **fields}
    )


@pytest.fixture(scope="module")
def weights() -> EncoderWeights:
    random = np.random.default_rng(3)
    # Larger than one chunk.
    fc = random.standard_normal((WIDTH, len(TAPS) * HIDDEN)).astype(np.float32)
    return EncoderWeights(fc, np.ones(WIDTH, np.float32), 1e-6, TAPS)


@pytest_asyncio.fixture(loop_scope="module")
async def served(weights: EncoderWeights) -> AsyncIterator[Served]:
    async with Served(weights) as started:
        yield started


def address(served: Served, weights: EncoderWeights, **fields: Any) -> ProposerAddress:
    offer = ModelOffer(
        model_id="drafter",
        role=Role.PROPOSER,
        kind=ModelKind.DFLASH,
        encoder_digest=weights.digest,
    )
    offer = replace(offer, **fields)
    return ProposerAddress(served.channel, offer, "self", "")


async def refusal(failing: Awaitable[object]) -> tuple[grpc.StatusCode, str]:
    refused = await calls.refused_by(failing)
    return refused.code, refused.reason


async def test_links_that_cannot_be_are_refused_by_name(served: Served) -> None:
    unsupported = (Code.UNIMPLEMENTED, "LINK_UNSUPPORTED")
    for fields, expected in (
        ({"purpose": wire.LINK_PURPOSE_UNSPECIFIED}, (Code.INVALID_ARGUMENT, "BAD_REQUEST")),
        ({"purpose": 77}, unsupported),
        ({"transports": [placement_pb2.TRANSPORT_RING]}, unsupported),
        ({"model_id": "ngram"}, (Code.NOT_FOUND, "MODEL_NOT_FOUND")),
        (
            {"verifier_weights_digest": "another"},
            (Code.FAILED_PRECONDITION, "TRAINED_FOR_ANOTHER"),
        ),
    ):
        assert await refusal(served.open(**fields)) == expected, fields
        assert len(served.table) == 0


async def test_the_encoder_comes_back_as_it_is(served: Served, weights: EncoderWeights) -> None:
    encoder = await fetch_encoder(address(served, weights), OpenLinks())
    assert encoder.spec == FeatureSpec(TAPS, HIDDEN, WIDTH, weights.digest)
    states = np.random.default_rng(1).standard_normal((3, len(TAPS), HIDDEN)).astype(np.float32)
    # By the same products: NumPy's have another order of sums on some processors.
    assert np.array_equal(encoder.encode(states), make_encoder(weights).encode(states))
    await calls.until(lambda: len(served.table) == 0)


async def test_an_encoder_is_fetched_once_whoever_asks(
    served: Served, weights: EncoderWeights
) -> None:
    shelf = EncoderShelf()
    leaving = asyncio.create_task(shelf.get(address(served, weights)))
    staying = [asyncio.create_task(shelf.get(address(served, weights))) for _ in range(3)]
    await asyncio.sleep(0)
    leaving.cancel()
    first, *others = await asyncio.gather(*staying)
    assert all(other is first for other in others)
    assert await shelf.get(address(served, weights)) is first
    opened = served.metrics.registry.get_sample_value("kakeya_links_opened_total")
    assert opened == 1
    await shelf.close()


async def test_another_encoder_than_the_cards_is_refused_and_a_closed_channel_is_none(
    served: Served, weights: EncoderWeights
) -> None:
    shelf = EncoderShelf()
    for fields in ({"encoder_digest": "0" * 64}, {"model_id": "nobody"}):
        with pytest.raises(EncoderUnavailable):
            await shelf.get(address(served, weights, **fields))
    closed = grpc.aio.insecure_channel(f"127.0.0.1:{served.port}")
    await closed.close()
    offer = address(served, weights).offer
    with pytest.raises(EncoderUnavailable):
        await shelf.get(ProposerAddress(closed, offer, "self", ""))


def features(
    link_id: str, tensor_id: int, first: int, values: np.ndarray[Any, np.dtype[Any]]
) -> list[wire.StreamTensorsRequest]:
    tensor = from_floats(FEATURES, np.asarray(values, np.float32), first_position=first)
    requests: list[wire.StreamTensorsRequest] = []
    for chunk in chunks_of(tensor, link_id, tensor_id):
        requests.append(wire.StreamTensorsRequest())
        message_to_wire(chunk, requests[-1])
    return requests


async def test_deltas_arrive_and_bad_ones_are_asked_for_again_or_dropped(served: Served) -> None:
    link_id = (await served.open()).link_id
    call = await served.stream(link_id)
    inbox = served.inbox(link_id)
    sent = [
        *features(link_id, 1, 0, np.zeros((3, WIDTH))),
        *features(link_id, 2, 3, np.full((2, WIDTH), np.nan)),
        *features(link_id, 3, 3, np.zeros((2, WIDTH - 1))),
        *features(link_id, 4, 5, np.ones((2, WIDTH))),
    ]
    sent[0].chunk.crc32c ^= 1
    for request in sent:
        await call.write(request)
    asked = (await next_message(call)).road
    assert (asked.generation, asked.step, asked.through_tensor_id) == (0, wire.ROAD_STEP_FAILED, 0)
    # The others wait for it.
    assert inbox.end == 0
    sent[0].chunk.crc32c ^= 1
    await call.write(sent[0])
    assert (await next_message(call)).taken.through_tensor_id == 4
    assert inbox.end == 7
    assert inbox.between(0, 10)[0] == 5
    assert [served.refused(fault) for fault in ("corrupt", "not_finite", "wrong_shape")] == [1] * 3
    call.cancel()
    await calls.until(lambda: len(served.table) == 0)


ROAD = wire.RoadMessage
# Of a version to come.
UNKNOWN: wire.RoadStep.ValueType = 99  # type: ignore[assignment] # no member
ANNOUNCED = wire.TensorAnnouncement(tensor_id=1, name="n", dtype=wire.TENSOR_DTYPE_FLOAT32)
STRANGE: list[dict[str, Any]] = [
    {"taken": wire.TensorsTaken(through_tensor_id=1)},
    {"road": ROAD()},
    {"road": ROAD(step=UNKNOWN)},
    {"road": ROAD(step=wire.ROAD_STEP_ANSWER)},
    # Of a road that is not there, and of none.
    {
        "announcement": wire.TensorAnnouncement(
            tensor_id=1, name="n", dtype=wire.TENSOR_DTYPE_FLOAT32, generation=1
        )
    },
    {"announcement": ANNOUNCED},
]


async def test_what_no_link_takes_ends_it_and_no_other(served: Served) -> None:
    """Chunks that do not fit, and steps out of their order."""
    other = (await served.open()).link_id
    staying = await served.stream(other)

    async def told(make: Callable[[str], wire.StreamTensorsRequest]) -> str:
        link_id = (await served.open()).link_id
        call = await served.stream(link_id)
        await call.write(make(link_id))
        reason = (await refusal(call.read()))[1]
        await calls.until(lambda: served.table.find(link_id) is None)
        return str(reason)

    def chunk(link_id: str) -> wire.StreamTensorsRequest:
        return features(link_id, 1, 0, np.zeros((1, WIDTH)))[0]

    def spoilt(opened: str, /, **fields: object) -> wire.StreamTensorsRequest:
        request = chunk(opened)
        for name, value in fields.items():
            setattr(request.chunk, name, value)
        return request

    assert await told(lambda _: wire.StreamTensorsRequest()) == "BAD_REQUEST"
    wrong: list[dict[str, Any]] = [{"tensor_id": 9}, {"link_id": "other"}, {"offset_bytes": 4}]
    for fields in wrong:
        assert await told(lambda link_id: spoilt(link_id, **fields)) == "TENSOR_REFUSED", fields  # noqa: B023
    for step in STRANGE:
        assert await told(lambda _: wire.StreamTensorsRequest(**step)) == "TENSOR_REFUSED", step  # noqa: B023
    await staying.write(chunk(other))
    inbox = served.inbox(other)
    await calls.until(lambda: inbox.end == 1)


async def test_a_proposal_that_cannot_be_is_refused_and_the_link_goes_on(served: Served) -> None:
    link_id = (await served.open()).link_id
    call = await served.stream(link_id)
    proposal = wire.RoadMessage(
        generation=3,
        step=wire.ROAD_STEP_PROPOSE,
        transport=placement_pb2.TRANSPORT_LOCAL,
        nonce=bytes(32),
    )
    await call.write(wire.StreamTensorsRequest(road=proposal))
    answer = (await next_message(call)).road
    assert (answer.generation, answer.step) == (3, wire.ROAD_STEP_FAILED)
    assert "no road" in answer.reason
    (request,) = features(link_id, 1, 0, np.zeros((1, WIDTH)))
    await call.write(request)
    inbox = served.inbox(link_id)
    await calls.until(lambda: inbox.end == 1)
    # A generation is proposed once.
    await call.write(wire.StreamTensorsRequest(road=proposal))

    async def read_on() -> None:
        while await call.read():
            pass

    assert (await refusal(read_on()))[1] == "TENSOR_REFUSED"


async def test_streams_need_a_link_and_an_opening(served: Served) -> None:
    async def first(request: wire.StreamTensorsRequest) -> None:
        call = served.stub.StreamTensors(timeout=PATIENCE_SECONDS)
        await call.write(request)
        await next_message(call)

    nobody = wire.StreamTensorsRequest(opening=wire.StreamOpening(link_id="nobody"))
    assert await refusal(first(nobody)) == (Code.NOT_FOUND, "LINK_NOT_FOUND")
    for request in (
        wire.StreamTensorsRequest(),
        wire.StreamTensorsRequest(chunk=wire.TensorChunk()),
    ):
        assert (await refusal(first(request)))[1] == "BAD_REQUEST"
    link_id = (await served.open()).link_id
    await served.stream(link_id)
    second = wire.StreamTensorsRequest(opening=wire.StreamOpening(link_id=link_id))
    assert (await refusal(first(second)))[1] == "BAD_REQUEST"
    assert served.table.find(link_id) is not None


async def test_links_end_when_they_are_idle_closed_or_the_node_leaves(served: Served) -> None:
    idle = await served.stream((await served.open()).link_id)
    served.now = 11.0
    closed_id = (await served.open()).link_id
    closed = await served.stream(closed_id)
    served.servicer.sweep()
    assert await refusal(idle.read()) == (Code.NOT_FOUND, "LINK_NOT_FOUND")
    for _ in range(2):
        await served.stub.CloseLink(
            wire.CloseLinkRequest(link_id=closed_id), timeout=PATIENCE_SECONDS
        )
    assert await refusal(closed.read()) == (Code.NOT_FOUND, "LINK_NOT_FOUND")
    open_still = await served.stream((await served.open()).link_id)
    served.servicer.drain()
    assert (await refusal(open_still.read()))[1] == "LINK_NOT_FOUND"
    assert await refusal(served.open()) == (Code.UNAVAILABLE, "DRAINING")


async def test_the_number_of_links_is_bounded(served: Served) -> None:
    links = [await served.open() for _ in range(4)]
    assert await refusal(served.open()) == (Code.RESOURCE_EXHAUSTED, "TOO_MANY_LINKS")
    await served.stub.CloseLink(
        wire.CloseLinkRequest(link_id=links[0].link_id), timeout=PATIENCE_SECONDS
    )
    await served.open()


async def test_weights_are_sent_as_they_lie(weights: EncoderWeights) -> None:
    tensor = weights_tensor("fc.weight", weights.fc)
    assert np.shares_memory(np.frombuffer(tensor.data, np.uint8), weights.fc)
    floats = to_floats(tensor)
    assert floats is not None
    assert np.array_equal(floats, weights.fc)
