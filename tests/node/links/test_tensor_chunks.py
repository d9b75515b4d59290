"""Tensors in chunks: what is put together is what was taken apart, or is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya.v1 import tensor_pb2 as wire
from kakeya_fleet.engine.errors import BadParameters
from kakeya_fleet.node.links.protocol.bfloat16 import from_bfloat16, to_bfloat16
from kakeya_fleet.node.links.protocol.chunks import (
    CHUNK_BYTES,
    RefusedTensor,
    TensorAssembler,
    TensorFault,
    crc32c,
)
from kakeya_fleet.node.links.protocol.contract import RoadKind
from kakeya_fleet.node.links.protocol.messages import (
    Announcement,
    Chunk,
    Message,
    RoadMessage,
    RoadStep,
    Taken,
    TensorHead,
)
from kakeya_fleet.node.links.protocol.tensor import TensorDtype, WireTensor, from_floats, to_floats
from kakeya_fleet.node.links.transport.wire import message_from_wire, message_to_wire
from kakeya_fleet.node.rpc.refusals import TensorOutOfOrder
from tests.support.tensor_chunks import chunks_of

LINK = "link"


def bitwise(data: bytes) -> int:
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def test_the_checksum_is_the_standards() -> None:
    """RFC 3720, appendix B.4, and the check value of the catalogue of CRCs."""
    for data, checksum in (
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (b"123456789", 0xE3069283),
        (b"", 0),
    ):
        assert crc32c(data) == checksum


@settings(deadline=None)
@given(data=st.binary(max_size=1100))
def test_the_checksum_is_that_of_the_definition(data: bytes) -> None:
    assert crc32c(data) == bitwise(data)
    assert crc32c(memoryview(data)) == bitwise(data)


def test_bfloat16_is_the_nearest_and_ties_go_to_the_even_one() -> None:
    bits = np.arange(0x10000, dtype=np.uint32).astype(np.uint16)
    values = from_bfloat16(bits)
    exact = np.isfinite(values)
    assert np.array_equal(to_bfloat16(values)[exact], bits[exact])
    # Every neighbour of every pair of finite neighbours, and the middle between them.
    low = bits[(bits & 0x7FFF) < 0x7F7F].astype(np.uint32)
    for offset, up in ((0x0001, 0), (0x7FFF, 0), (0x8000, None), (0x8001, 1), (0xFFFF, 1)):
        between = ((low << 16) + offset).astype(np.uint32).view(np.float32)
        expected = low + (low & 1 if up is None else up)
        assert np.array_equal(to_bfloat16(between), expected.astype(np.uint16))


def test_bfloat16_of_what_is_not_finite() -> None:
    tricky = np.array([0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF], np.uint32)
    assert np.isnan(from_bfloat16(to_bfloat16(tricky.view(np.float32)))).all()
    infinite = np.array([np.inf, -np.inf, 3.4e38], np.float32)
    assert from_bfloat16(to_bfloat16(infinite)).tolist() == [np.inf, -np.inf, np.inf]


@settings(deadline=None)
@given(
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    dtype=st.sampled_from([TensorDtype.FLOAT32, TensorDtype.BFLOAT16]),
    chunk=st.integers(1, 64),
)
def test_what_is_put_together_is_what_was_taken_apart(
    counts: list[int], dtype: TensorDtype, chunk: int
) -> None:
    random = np.random.default_rng(sum(counts))
    assembler = TensorAssembler(LINK, 1 << 20)
    for tensor_id, count in enumerate(counts, start=1):
        values = random.standard_normal((count, 3)).astype(np.float32)
        if dtype is TensorDtype.BFLOAT16:
            values = from_bfloat16(to_bfloat16(values))
        tensor = from_floats("features", values, dtype, first_position=7)
        pieces = chunks_of(tensor, LINK, tensor_id, chunk)
        *_, last = results = [assembler.add(chunk_over_the_wire(piece)) for piece in pieces]
        assert all(result is None for result in results[:-1])
        assert last is not None
        assert (last.name, last.shape, last.first_position) == ("features", (count, 3), 7)
        floats = to_floats(last)
        assert floats is not None
        assert np.array_equal(floats, values)


def over_the_wire(message: Message) -> Message:
    request = wire.StreamTensorsRequest()
    message_to_wire(message, request)
    return message_from_wire(wire.StreamTensorsRequest.FromString(request.SerializeToString()))


def as_chunk(message: Message) -> Chunk:
    assert isinstance(message, Chunk)
    return message


def chunk_over_the_wire(chunk: Chunk) -> Chunk:
    return as_chunk(over_the_wire(chunk))


def whole(tensor_id: int = 1, **fields: Any) -> wire.StreamTensorsRequest:
    """One chunk that is a whole tensor of eight bytes, as a request."""
    data = fields.pop("data", bytes(8))
    chunk = wire.TensorChunk(
        link_id=LINK,
        tensor_id=tensor_id,
        name="features",
        dtype=wire.TENSOR_DTYPE_FLOAT32,
        shape=[1, 2],
        data=data,
        crc32c=crc32c(data),
    )
    for name, value in fields.items():
        if name == "shape":
            del chunk.shape[:]
            chunk.shape.extend(value)
        else:
            setattr(chunk, name, value)
    return wire.StreamTensorsRequest(chunk=chunk)


def test_chunks_that_do_not_follow_each_other_end_the_link() -> None:
    alone: list[dict[str, Any]] = [
        {"link_id": "another"},
        {"tensor_id": 2},
        {"tensor_id": 0},
        {"offset_bytes": 4},
        {"name": ""},
        {"name": "n" * 65},
        {"dtype": wire.TENSOR_DTYPE_UNSPECIFIED},
        {"dtype": 99},
        {"shape": [1] * 9},
        {"shape": [2**63, 2**63]},
        {"shape": [1000, 1000]},
        {"data": bytes(12)},
        {"data": b""},
        {"data": bytes(CHUNK_BYTES + 1)},
    ]
    for fields in alone:
        with pytest.raises(TensorOutOfOrder):
            TensorAssembler(LINK, 1 << 20).add(as_chunk(message_from_wire(whole(**fields))))
            pytest.fail(f"{fields} was taken")
    second: list[dict[str, Any]] = [
        {"offset_bytes": 3, "data": bytes(4)},
        {"offset_bytes": 4, "data": bytes(5)},
        {"offset_bytes": 4, "data": b""},
        {"tensor_id": 2, "offset_bytes": 4, "data": bytes(4)},
    ]
    for fields in second:
        assembler = TensorAssembler(LINK, 1 << 20)
        assert assembler.add(as_chunk(message_from_wire(whole(data=bytes(4))))) is None
        with pytest.raises(TensorOutOfOrder):
            assembler.add(as_chunk(message_from_wire(whole(**fields))))
            pytest.fail(f"{fields} was taken behind the first")


def test_a_corrupt_tensor_is_dropped_alone() -> None:
    assembler = TensorAssembler(LINK, 1 << 20)
    assert assembler.add(as_chunk(message_from_wire(whole(data=b"abcd", crc32c=1)))) is None
    with pytest.raises(RefusedTensor) as caught:
        assembler.add(as_chunk(message_from_wire(whole(data=b"efgh", offset_bytes=4))))
    assert caught.value.fault is TensorFault.CORRUPT
    following = assembler.add(as_chunk(message_from_wire(whole(tensor_id=2))))
    assert isinstance(following, WireTensor)


def test_formats_without_floats_are_carried_but_not_read() -> None:
    assert to_floats(WireTensor("n", TensorDtype.INT8, (2,), b"ab")) is None


def test_messages_come_over_the_wire_as_they_are() -> None:
    messages: list[Message] = [
        Taken(1 << 40),
        Announcement(7, TensorHead("x", TensorDtype.FLOAT16, (2, 0), 1 << 33), 5, 3),
        Chunk("link", 7, 1 << 20, b"abc", 5),
        *(
            RoadMessage(3, step, kind, b"n" * 32, {"a": "b"}, "why", 9)
            for step, kind in zip(RoadStep, (None, *RoadKind), strict=True)
        ),
    ]
    for message in messages:
        assert over_the_wire(message) == message


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(BadParameters):
        message_from_wire(wire.StreamTensorsRequest())
    # And one of a version to come.
    unknown: wire.RoadStep.ValueType = 99  # type: ignore[assignment] # no member
    for step in (wire.ROAD_STEP_UNSPECIFIED, unknown):
        with pytest.raises(TensorOutOfOrder):
            message_from_wire(wire.StreamTensorsRequest(road=wire.RoadMessage(step=step)))
