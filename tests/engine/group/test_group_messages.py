"""A group's messages: what is sent arrives, and what nobody sends is refused."""

from __future__ import annotations

import io
import json
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from kakeya_fleet.engine.contracts.cache import CacheKind, CacheSpec
from kakeya_fleet.engine.errors import BadParameters, EngineError, OutOfKvMemory
from kakeya_fleet.engine.group.fields import (
    MalformedMessage,
    flag,
    integer,
    integers,
    section,
    text,
)
from kakeya_fleet.engine.group.messages import MAX_HEADER_BYTES, Message, decode, encode
from kakeya_fleet.engine.group.values import (
    error_from_header,
    error_to_header,
    info_from_header,
    spec_from_header,
    spec_to_header,
)


def frame(message):
    return b"".join(bytes(part) for part in encode(message))


def read_back(data):
    def exactly(count):
        found = stream.read(count)
        if len(found) < count:
            raise EOFError
        return found

    stream = io.BytesIO(data)
    return decode(exactly), stream.read()


@settings(deadline=None, max_examples=15)
@given(
    header=st.dictionaries(
        st.text(max_size=5).filter(lambda key: key != "arrays"),
        st.one_of(st.none(), st.integers(), st.text(max_size=9), st.lists(st.booleans())),
    ),
    found=st.lists(
        arrays(np.float32, array_shapes(min_dims=0, min_side=0, max_dims=3)), max_size=3
    ),
)
def test_what_is_sent_arrives(header, found) -> None:
    message, rest = read_back(frame(Message(header, tuple(found))))
    assert rest == b""
    assert {key: value for key, value in message.header.items() if key != "arrays"} == header
    assert [array.tobytes() for array in message.arrays] == [array.tobytes() for array in found]
    assert [array.shape for array in message.arrays] == [array.shape for array in found]


def test_arrays_of_another_layout_arrive_as_they_look() -> None:
    turned = np.arange(6, dtype=np.float32).reshape(2, 3).T
    message, _ = read_back(frame(Message({}, (turned,))))
    assert np.array_equal(message.arrays[0], turned)


def framed(header: bytes, magic: bytes = b"KGM1", size: int | None = None) -> bytes:
    return struct.pack("<4sI", magic, len(header) if size is None else size) + header


@pytest.mark.parametrize(
    "data",
    [
        framed(b"{}", magic=b"HTTP"),
        framed(b"", size=MAX_HEADER_BYTES + 1),
        framed(b"\xff"),
        framed(b"[]"),
        framed(b"{}"),
        framed(b"[" * 100_000),
        framed(json.dumps({"arrays": [[-1]]}).encode()),
        framed(json.dumps({"arrays": [["2"]]}).encode()),
        framed(json.dumps({"arrays": [[True]]}).encode()),
        framed(json.dumps({"arrays": 7}).encode()),
        framed(json.dumps({"arrays": [[1 << 40]]}).encode()),
        framed(json.dumps({"arrays": [[1 << 20, 1 << 20]]}).encode()),
        # No bytes, and no array either.
        framed(json.dumps({"arrays": [[0, 1 << 70]]}).encode()),
        framed(json.dumps({"arrays": [[0] * 99]}).encode()),
    ],
)
def test_what_is_no_message_is_refused_before_more_is_read(data) -> None:
    with pytest.raises(MalformedMessage):
        read_back(data)


def test_who_has_no_arrays_to_send_fills_no_memory() -> None:
    data = frame(Message({}, (np.zeros((1, 1), np.float32),)))
    with pytest.raises(MalformedMessage, match="more than 0 bytes"):
        decode(io.BytesIO(data).read, most_array_bytes=0)
    assert not decode(io.BytesIO(frame(Message({}))).read, most_array_bytes=0).arrays


@pytest.mark.parametrize("value", [None, True, "1", 1.0, [1]])
def test_values_of_another_type_are_refused(value) -> None:
    with pytest.raises(MalformedMessage):
        integer({"x": value}, "x")
    with pytest.raises(MalformedMessage):
        integers({"x": [value]}, "x")
    with pytest.raises(MalformedMessage):
        section({"x": value}, "x")
    with pytest.raises(MalformedMessage):
        text({"x": [value]}, "x")
    with pytest.raises(MalformedMessage):
        flag({"x": [value]}, "x")


@pytest.mark.parametrize(
    "spec",
    [
        CacheSpec(CacheKind.CONTIGUOUS, capacity=9),
        CacheSpec(CacheKind.SINK_WINDOW, sink=0, window=7),
    ],
)
def test_specs_survive(spec: CacheSpec) -> None:
    assert spec_from_header(spec_to_header(spec)) == spec
    with pytest.raises(MalformedMessage):
        spec_from_header({**spec_to_header(spec), "kind": "restored"})


def test_errors_survive_with_what_programs_read_of_them() -> None:
    sent = OutOfKvMemory("full", needed_bytes="7", free_bytes="3")
    found = error_from_header(error_to_header(sent))
    assert type(found) is OutOfKvMemory
    assert (str(found), found.metadata) == ("full", sent.metadata)
    assert type(error_from_header(error_to_header(BadParameters("no")))) is BadParameters
    assert type(error_from_header(error_to_header(EngineError("no")))) is EngineError
    assert str(error_from_header(error_to_header(ValueError("no")))) == "no"
    with pytest.raises(MalformedMessage, match="NOT_KNOWN"):
        error_from_header({"reason": "NOT_KNOWN", "message": "", "metadata": {}})


def test_another_versions_info_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="another version"):
        info_from_header({"model_id": "tiny"})
