"""Tensors of both libraries over a real link: every format comes out as it went in."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from kakeya_fleet.node.links.protocol.tensor import TensorDtype, from_buffer, to_buffer
from tests.support.linked_pairs import linked_pair

LIBRARIES = {"torch": "torch", "mlx": "mlx.core"}
SHAPES = [(), (0,), (7,), (2, 0, 3), (3, 5, 16), (600, 1024)]


class Library:
    """One back end's arrays, made from their bits and read as their bits."""

    def __init__(self, name):
        self.name = name
        self.core = pytest.importorskip(LIBRARIES[name])
        self.buffers = importlib.import_module(
            f"kakeya_fleet.engine.backends.{name}_backend.tensor_buffers"
        )

    def make(self, dtype, shape, seed=0):
        values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * 40
        if self.name == "torch":
            made = self.core.asarray(values).reshape(shape)
            return made.to(getattr(self.core, dtype))
        return self.core.array(values).reshape(shape).astype(getattr(self.core, dtype))

    def floats(self, array):
        if self.name == "torch":
            return array.to(self.core.float32).numpy()
        return np.array(array.astype(self.core.float32))


@pytest.fixture(params=sorted(LIBRARIES))
def library(request):
    return Library(request.param)


@pytest.mark.parametrize("dtype", sorted(TensorDtype))
async def test_arrays_come_over_a_link_as_they_are(library, dtype):
    async with linked_pair() as (caller, served):
        for seed, shape in enumerate(SHAPES):
            sent = library.make(dtype, shape, seed)
            name, sizes, buffer = library.buffers.buffer_of(sent)
            assert (name, sizes, buffer.format, buffer.ndim) == (dtype, shape, "B", 1)
            await caller.send(from_buffer("x", name, sizes, buffer, 3))
            tensor = await served.receive()
            assert tensor.first_position == 3
            got = library.buffers.array_of(*to_buffer(tensor))
            assert got.dtype == sent.dtype
            assert tuple(got.shape) == shape
            assert np.array_equal(library.floats(got), library.floats(sent))


@pytest.mark.parametrize("dtype", sorted(TensorDtype))
def test_what_is_not_in_row_major_order_is_put_in_order(library, dtype):
    whole = library.make(dtype, (6, 8, 5))
    turned = whole.swapaxes(0, 2)[1:, ::2]
    name, sizes, buffer = library.buffers.buffer_of(turned)
    got = library.buffers.array_of(name, sizes, buffer)
    assert np.array_equal(library.floats(got), library.floats(turned))


def test_row_major_memory_is_not_copied():
    torch = Library("torch")
    tensor = torch.make("bfloat16", (40, 50))
    _, _, buffer = torch.buffers.buffer_of(tensor)
    tensor[3, 4] = 1.0
    # 1.0 in bfloat16, little-endian.
    assert bytes(buffer[2 * (3 * 50 + 4) :][:2]) == b"\x80\x3f"
    received = bytearray(buffer)
    got = torch.buffers.array_of("bfloat16", (40, 50), memoryview(received))
    received[0:2] = b"\x80\x3f"
    assert got[0, 0] == 1.0


def test_special_values_keep_their_bits(library):
    bits = np.array([0x7FC1, 0xFFC1, 0x7F80, 0xFF80, 0x8000, 0x0001], np.uint16)
    got = library.buffers.array_of("bfloat16", (6,), memoryview(bits).cast("B"))
    _, _, buffer = library.buffers.buffer_of(got)
    assert bytes(buffer) == bits.tobytes()


def test_what_does_not_travel_is_refused(library):
    with pytest.raises(ValueError, match="do not travel"):
        library.buffers.buffer_of(
            library.make("float32", (2,)).to(library.core.int32)
            if library.name == "torch"
            else library.make("float32", (2,)).astype(library.core.int32)
        )
    with pytest.raises(ValueError, match="do not travel"):
        library.buffers.array_of("float64", (1,), bytes(8))
    for wrong in (bytes(7), bytes(9), b""):
        with pytest.raises(ValueError, match="bytes are no"):
            library.buffers.array_of("bfloat16", (2, 2), wrong)
